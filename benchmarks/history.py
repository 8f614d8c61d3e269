"""Claims about the history of a log with certificates of the usual size (all attacks, full suite).

1. A warm replay, which reads only what is new, is far faster than reading everything, and takes well under a second.
2. So do the guard and `mbd verify` that ask it.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.exporter import fill
from mbd.certificate.guard import admit
from mbd.certificate.keys import TRUST, make_keys
from mbd.certificate.layout import object_name
from mbd.certificate.replay import read_history
from mbd.certificate.trust import read_trust
from mbd.certificate.verify import from_store, verify_bundle
from mbd.files import sha256_file
from mbd.formats.deletion import INDICES
from mbd.formats.leakage import LEAKAGE
from mbd.formats.statement import MODEL, REPORT, WEIGHTS
from mbd.storage import open_store

SIZE = 10000
GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "certificates" / "v1" / "surgery"


def seconds(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(size: int = SIZE) -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as temporary:
        folder = Path(temporary)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        make_keys(folder / "keys", "signer")
        store, trust = open_store(f"file://{folder}/store"), read_trust(folder / "keys" / TRUST)
        fill(store, folder / "keys", size)
        for name in (WEIGHTS, MODEL, INDICES, LEAKAGE, REPORT):
            file = GOLDEN / ("model" if name in {WEIGHTS, MODEL} else "bundle") / name
            store.create(object_name(sha256_file(file)), file)
        cold = seconds(lambda: read_history(store, trust))
        print(f"{size} certificates; cold replay: {cold:.1f} s, {cold / size * 1e3:.1f} ms for each")
        digest = next(iter(read_history(store, trust).certificates))
        works: dict[str, Callable[[], object]] = {
            "replay": partial(read_history, store, trust),
            "verify": lambda: verify_bundle(from_store(store, digest, folder / "out"), trust),
            "guard": lambda: admit(GOLDEN / "model", store, trust),
        }
        for name, work in works.items():
            warm = seconds(work)
            print(f"{name}, warm: {warm:.2f} s; ratio to reading everything: {warm / cold:.4f} (claim: < 0.02)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
