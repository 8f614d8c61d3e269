"""`make cluster`: start the cluster, print how to reach it, and run until interrupted."""

import signal

from tests.cluster.node import cluster
from tests.cluster.tools import program


def main() -> None:
    """Start, print, wait."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with cluster() as started:
        kubectl = f"{program('kubernetes', 'kubectl')} --kubeconfig={started.kubeconfig}"
        print("The cluster runs until Ctrl-C, in a network of its own. In another terminal, as root:")
        print(f"  {started.folder / 'inside'} {kubectl} get nodes", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("the cluster stops")


if __name__ == "__main__":
    main()
