"""Claims about feature data, at MOSEI size (22,856 rows of 768 + 74 + 512 numbers).

1. npz → FeatureSet takes at most 1.5× of numpy reading the file and writing the same bytes (both synced to disk);
2. opening a FeatureSet and drawing one random batch makes resident memory grow by less than a tenth of the set.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import numpy as np

from mbd.features.sources import read_source
from mbd.outputs import step_run
from mbd.params import load_params
from mbd.steps.features import convert
from mbd.tensors import Array

REPEATS = 5

DRAW = """
import sys, numpy as np
from pathlib import Path
from mbd.features.contract import FeatureSet
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
split = FeatureSet.open(Path(sys.argv[1])).split("train")
before = resident()
split.take(np.random.default_rng(0).integers(0, len(split), 64))
print(resident() - before)
"""


def write_archive(path: Path) -> None:
    settings = [
        "features.source.preset=mosei",
        "features.source.synthetic.rows={train: 16326, valid: 1871, test: 4659}",
    ]
    arrays: dict[str, Array] = {}
    for split, rows in read_source(load_params(None, settings).features).splits.items():
        arrays |= {f"{split}_ids": rows.ids, f"{split}_labels": rows.labels, f"{split}_groups": rows.groups}
        arrays |= {f"{split}_{m}": x for m, x in rows.features.items()}
    np.savez(path, **arrays)  # type: ignore[arg-type]


def numpy_copies(archive: Path, folder: Path) -> None:
    folder.mkdir()
    with np.load(archive) as arrays:
        for name in arrays.files:
            with (folder / f"{name}.npy").open("wb") as stream:
                np.save(stream, arrays[name])
                stream.flush()
                os.fsync(stream.fileno())


def we_convert(archive: Path, folder: Path) -> None:
    settings = ["features.source.kind=npz", f"features.source.path={archive}", "features.calibration.size=0"]
    params = load_params(None, settings).features
    with step_run("features", folder, {"features": params}) as step:
        convert(params, step)


def seconds(work: Callable[[Path, Path], None], archive: Path, folder: Path) -> float:
    os.sync()  # what an earlier run left to be written is not this one's cost
    start = time.perf_counter()
    work(archive, folder)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):
        root = Path(temporary)
        archive = root / "mosei.npz"
        write_archive(archive)
        pairs = []
        for n in range(REPEATS):
            theirs = seconds(numpy_copies, archive, root / f"numpy{n}")
            ours = seconds(we_convert, archive, root / f"ours{n}")
            pairs.append((ours, theirs))
        ours, theirs = (float(np.median(column)) for column in zip(*pairs, strict=True))
        megabytes = archive.stat().st_size / 1e6
        print(f"npz → FeatureSet, {megabytes:.0f} MB: {ours:.2f} s; numpy copies: {theirs:.2f} s")
        print(f"ratio ours / numpy: {ours / theirs:.2f} (claim: at most 1.5)")
        grown = int(subprocess.check_output([sys.executable, "-c", DRAW, str(root / "ours0")]))
        print(
            f"one batch of 64 rows: resident memory grows by {grown / archive.stat().st_size:.3f} of the set", end=" "
        )
        print("(claim: less than 0.1)")


if __name__ == "__main__":
    main()
