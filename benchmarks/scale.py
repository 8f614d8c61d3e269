"""Claims about memory and scale: each step on N and on 10 N train rows, in a process of its own.

1. a step takes at most 1.5 GB beside its model, whatever the number of rows;
2. its time grows no faster than the rows.

    python benchmarks/scale.py [--rows N] [--dims 48,24,16] [--once] [--classes C] [--without STEP …]

`--once` measures N alone: `--rows 200000 --dims 768,74,512 --once` is a FeatureSet of 1.2 GB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.tensors import Array

NAMES = ("text", "audio", "vision")
_BLOCK = 8192
LIMIT = 1.5e9


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    seconds: float
    peak: float
    """of resident memory, in bytes"""
    cpu: float
    """seconds, which other work on the machine disturbs less"""


def measured(*command: str) -> Cost:
    """Run `mbd` with these arguments and one thread for each process; return what it took."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", "from mbd.cli import main; main()", "-q", *command], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"mbd {' '.join(command)} failed with {os.waitstatus_to_exitcode(status)}")
    return Cost(time.perf_counter() - start, usage.ru_maxrss * 1024.0, usage.ru_utime + usage.ru_stime)


def write_archive(path: Path, rows: int, dims: tuple[int, ...], classes: int) -> None:
    """Write train, valid and test rows as numpy.savez does, some thousand rows at a time."""
    draw = np.random.default_rng(0)
    to_signal = [draw.standard_normal((8, d)).astype(np.float32) for d in dims]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for split, n in (("train", rows), ("valid", max(rows // 20, 500)), ("test", max(rows // 20, 500))):
            signal = draw.standard_normal((n, 8)).astype(np.float32)
            labels = np.clip(signal[:, 0] + 0.3 * signal[:, 1] ** 2, -3, 3).astype(np.float32)
            names = [f"{split}{i // 20}_{i % 20}" for i in range(n)]
            _write(archive, f"{split}_ids", iter([np.array(names)]), (n,))
            kind = np.clip(np.round(labels), -classes // 2, classes // 2).astype(np.int64) if classes else labels
            _write(archive, f"{split}_labels", iter([kind - kind.min() if classes else kind]), (n,))
            for name, d, maps in zip(NAMES, dims, to_signal, strict=True):
                blocks = (
                    signal[at : at + _BLOCK] @ maps
                    + 2 * draw.standard_normal((min(_BLOCK, n - at), d), dtype=np.float32)
                    for at in range(0, n, _BLOCK)
                )
                _write(archive, f"{split}_{name}", blocks, (n, d))


def _write(archive: zipfile.ZipFile, name: str, blocks: Iterator[Array], shape: tuple[int, ...]) -> None:
    first = next(blocks)
    with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
        header = {"descr": first.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(stream, header)
        stream.write(np.ascontiguousarray(first).tobytes())
        for block in blocks:
            stream.write(np.ascontiguousarray(block).tobytes())


def steps(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the command of each step."""
    data, lattice, joint = (str(folder / name) for name in ("features", "lattice", "joint"))
    given = ("--features", data)
    short, exact = ("--set", "training.epochs=1"), ("--set", "model.backbone=lattice", "--set", "deletion.method=exact")
    reference, deleted = str(folder / "reference"), str(folder / "deleted")
    models = ("--before", lattice, "--after", deleted, "--reference", reference)
    return {
        "features": ("features", "--out", data, "--set", f"features.source.path={folder / 'rows.npz'}"),
        "train lattice": ("train", *given, "--out", lattice, "--set", "model.backbone=lattice"),
        "train joint, 1 epoch": ("train", *given, "--out", joint, "--set", "model.backbone=joint", *short),
        "evaluate": ("evaluate", *given, "--model", lattice, "--out", str(folder / "evaluation")),
        "predict lattice": ("predict", *given, "--model", lattice, "--split", "train", "--out", str(folder / "p.csv")),
        "train reference": ("train", *given, "--out", reference, *exact, "--without", "audio"),
        "delete": ("delete", *given, "--model", lattice, "--modality", "audio", "--out", deleted, *exact),
        "attack": ("attack", *given, *models, "--modality", "audio", "--out", str(folder / "leakage")),
        "predict joint": ("predict", *given, "--model", joint, "--split", "train", "--out", str(folder / "q.csv")),
    }


def measure(folder: Path, rows: int, dims: tuple[int, ...], classes: int, without: list[str]) -> dict[str, Cost]:
    folder.mkdir()
    write_archive(folder / "rows.npz", rows, dims, classes)
    found = {}
    for step, command in steps(folder).items():
        if any(word in step for word in without):
            continue
        cost = found[step] = measured(*command)
        print(
            f"  {rows:>9,} rows, {step}: {cost.seconds:.1f} s, {cost.cpu:.1f} CPU s, {cost.peak / 1e9:.2f} GB",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="memory and time of each step over the number of rows")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dims", default="48,24,16")
    parser.add_argument("--classes", type=int, default=0)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--without", nargs="*", default=[], help="leave out the steps with these words")
    given = parser.parse_args()
    dims = tuple(int(d) for d in given.dims.split(","))
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as temporary, chdir(temporary):
        root = Path(temporary)
        few = measure(root / "few", given.rows, dims, given.classes, given.without)
        for step, cost in few.items():
            print(f"{step}: {cost.peak / 1e9:.2f} GB (claim: at most {LIMIT / 1e9:.1f})")
        if given.once:
            return
        many = measure(root / "many", 10 * given.rows, dims, given.classes, given.without)
        for step, cost in many.items():
            slower, larger = cost.cpu / few[step].cpu, cost.peak / few[step].peak
            print(
                f"{step}, 10 times the rows: {slower:.1f} times the CPU time (claim: at most 10), {larger:.1f} times "
                f"the memory, {cost.peak / 1e9:.2f} GB (claim: at most {LIMIT / 1e9:.1f})"
            )


if __name__ == "__main__":
    main()
