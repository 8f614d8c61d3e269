"""Claims about the history of a log with certificates of the usual size (all attacks, full suite).

1. A warm replay, which reads only what is new, takes a small part of a cold one, which reads everything.
2. So do the guard and `mbd verify`, which ask it: cold on a machine that reads the log for the first time, then warm.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.exporter import Cost, fill
from mbd.certificate.guard import admit
from mbd.certificate.verification import from_store, verify_bundle
from mbd.files import sha256_file
from mbd.formats.files import INDICES, MODEL, REPORT, WEIGHTS
from mbd.formats.layout import object_name
from mbd.formats.leakage import LEAKAGE
from mbd.history.replay import read_history
from mbd.log.reader import Log
from mbd.storage import open_store
from mbd.trust.keys import TRUST, make_keys
from mbd.trust.trust_file import read_trust

SIZE = 10000
GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "certificates" / "v1" / "surgery"


def cost(work: Callable[[], object]) -> Cost:
    """Return how long something takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def main(size: int = SIZE) -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as temporary:
        folder = Path(temporary)
        make_keys(folder / "keys", "signer")
        store, trust = open_store(f"file://{folder}/store"), read_trust(folder / "keys" / TRUST)
        fill(store, folder / "keys", size)
        for name in (WEIGHTS, MODEL, INDICES, LEAKAGE, REPORT):
            file = GOLDEN / ("model" if name in {WEIGHTS, MODEL} else "bundle") / name
            store.create(object_name(sha256_file(file)), file)
        digest = next(leaf.hex() for _, leaf in Log(store, trust).entries())
        works: dict[str, Callable[[], object]] = {
            "replay": partial(read_history, store, trust),
            "verify": lambda: verify_bundle(from_store(store, digest, folder / "out"), trust),
            "guard": lambda: admit(GOLDEN / "model", store, trust),
        }
        print(f"{size} certificates")
        for name, work in works.items():
            os.environ["XDG_CACHE_HOME"] = str(folder / f"cache-{name}")
            cold, warm = cost(work), cost(work)
            ratio = f"ratio {warm.cpu / cold.cpu:.4f} (claim: < 0.02)"
            print(
                f"{name}, cold: {cold}, {cold.cpu / size * 1e3:.1f} ms of CPU for each; warm: {warm}; {ratio}",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
