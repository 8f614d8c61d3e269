"""Claims about `mbd serve` and `mbd exporter` beside clients that wear a server out, all on the loopback interface.

1. Beside 2,500 clients that never end the head of a request, `/healthz` and `/metrics` take less than 100 ms each.
2. The same beside 100 clients that post 16 MB of JSON for inference again and again, and beside both.
3. Beside 100 bodies of 16 MB that are never completed, the server holds little more memory than it keeps for
   bodies.

The clients are a process of their own; on two processors they and the server get one each.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.monitoring.golden_store import golden
from tests.serving.site import Site
from tests.serving.slow import attack, watch
from tests.serving.test_inference import site_with_a_model
from tests.serving.waiting import wait_until

HALF_OPEN, BODIES, SIZE = 2500, 100, 16_000_000
SECONDS = 5.0
NAME = golden("exact").predicate.model
PATH = f"/v2/models/{NAME}/infer"


def measure(what: str, url: str) -> float:
    """Print how long health and metrics take; return the longest time of 95 in 100."""
    longest = 0.0
    for path in ("/healthz", "/metrics"):
        times, answers = watch(url + path, SECONDS)
        most = float(np.quantile(times, 0.95))
        longest = max(longest, most)
        print(
            f"  {what:34} {path:9} median {np.median(times) * 1e3:6.1f} ms, 95 in 100 within {most * 1e3:6.1f} ms, "
            f"longest {max(times) * 1e3:6.1f} ms, answers {dict(answers)}",
            flush=True,
        )
    return longest


def resident(pid: int) -> float:
    """Return the memory of a process, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


@contextmanager
def exporter(site: Site) -> Iterator[str]:
    """Run the exporter of a site; yield its address."""
    command = [sys.executable, "-c", "from mbd.cli import main; main()", "-q", "exporter", "--port", "0"]
    command += ["--store", site.golden.url, "--trust", str(site.golden.trust_file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process.stdout.readline().strip().removesuffix("/metrics")
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        site = site_with_a_model(Path(temporary), "serving.rate_per_minute=0")
        longest = []
        with exporter(site) as url:
            wait_until(lambda: watch(f"{url}/readyz", 0.1)[1]["200"])
            print("mbd exporter", flush=True)
            longest.append(measure("alone", url))
            with attack(url, half_open=HALF_OPEN):
                longest.append(measure(f"{HALF_OPEN} half-open connections", url))
        with site.process() as (url, process):
            wait_until(lambda: watch(f"{url}/v2/models/{NAME}/ready", 0.1)[1]["200"])
            print("mbd serve", flush=True)
            longest.append(measure("alone", url))
            with attack(url, half_open=HALF_OPEN):
                longest.append(measure(f"{HALF_OPEN} half-open connections", url))
            with attack(url, bodies=BODIES, size=SIZE, path=PATH):
                longest.append(measure(f"{BODIES} large bodies", url))
            with attack(url, half_open=HALF_OPEN, bodies=BODIES, size=SIZE, path=PATH):
                longest.append(measure("both", url))
            before = resident(process.pid)
            with attack(url, bodies=BODIES, size=SIZE, path=PATH, whole=False):
                longest.append(measure(f"{BODIES} bodies that are never complete", url))
                print(f"  memory: {before:.0f} MB before, {resident(process.pid):.0f} MB beside them")
    print(f"95 in 100 answers within {max(longest) * 1e3:.1f} ms at worst (claim: less than 100)")


if __name__ == "__main__":
    main()
