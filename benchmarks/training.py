"""Claims about training, on synthetic data of MOSI and MOSEI size.

1. the whole lattice takes at most as long as the joint model (25 epochs);
2. from MOSI to MOSEI size the time grows no faster than the rows;
3. on seven skewed classes, with logistic members and calibration, the lattice takes at most 5 times as long as ridges
   alone with 256 landmarks in all directions (what a module was before it had a logistic member);
and, for both backbones, rows per second and how much of the time the matrix products alone would take at the speed this
machine reaches on large ones (what the hardware could do).
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from mbd.blocks import Wide
from mbd.features.contract import FeatureSet
from mbd.params import Params, load_params
from mbd.steps import features
from mbd.tensors import Array
from mbd.training.joint import train_joint
from mbd.training.lattice import module, ridge, train_lattice
from mbd.training.lattice.classes import ClassCalibration
from mbd.training.lattice.ridge import Fit, FoldedRidge, Strengths, System

EPOCHS = 4
SIZES = ("mosi", "mosei")


def seconds_joint(data: FeatureSet, params: Params, work: Path) -> tuple[float, float]:
    """Return seconds for each epoch, start-up left out, and the products' operations in it."""

    def run(epochs: int) -> float:
        short = params.model_copy(update={"training": params.training.model_copy(update={"epochs": epochs})})
        start = time.perf_counter()
        train_joint(data, short, work=work, progress=False)
        return time.perf_counter() - start

    run(1)  # warm up
    epoch = (run(1 + EPOCHS) - run(1)) / EPOCHS
    one = params.model_copy(update={"training": params.training.model_copy(update={"epochs": 1})})
    with FlopCounterMode(display=False) as counter:
        train_joint(data, one, work=work, progress=False)
    return epoch, float(counter.get_total_flops())


@contextmanager
def counted_operations() -> Iterator[list[float]]:
    """Within: add up the operations of Gram matrices and factorisations."""
    total = [0.0]
    make, solve = ridge._gram, FoldedRidge._solve

    def counted_make(x: Wide, y: Array, rows: Array) -> Array:
        total[0] += len(rows) * (x.shape[1] + 1 + y.shape[1]) ** 2  # half of a product: the result is symmetric
        return make(x, y, rows)

    def counted_solve(self: FoldedRidge, system: System, strengths: Strengths) -> Fit:
        total[0] += sum(self.blocks) ** 3 / 3
        return solve(self, system, strengths)

    with patch.object(ridge, "_gram", counted_make), patch.object(FoldedRidge, "_solve", counted_solve):
        yield total


def seconds_lattice(data: FeatureSet, params: Params, work: Path) -> tuple[float, float]:
    start = time.perf_counter()
    train_lattice(data, params, work=work, progress=False)
    took = time.perf_counter() - start
    with counted_operations() as total:
        train_lattice(data, params, work=work, progress=False)
    return took, total[0]


def ratio_of_classes(folder: Path, params: Params) -> float:
    """Return CPU time of a lattice of skewed classes over that of one that has ridges alone and 256 landmarks."""
    skewed = [f"features.source.synthetic.{setting}" for setting in ("classes=7", "skew=0.8")]
    features.run(load_params(None, ["features.source.preset=iemocap", *skewed]), folder)
    data = FeatureSet.open(folder)

    def seconds(params: Params) -> float:
        start = time.process_time()
        train_lattice(data, params, work=folder, progress=False)
        return time.process_time() - start

    whole = min(seconds(params) for _ in range(3))
    before = load_params(None, ["model.lattice.landmarks=256", "model.lattice.kernel_components=256"])
    with (
        patch.object(module, "_MOST_LANDMARKS", 1),
        patch.object(module, "train_logistic", lambda x, y, *_: ((x[:0], np.zeros(7)), y)),
        patch.object(module, "calibrate", lambda *_: ClassCalibration(np.ones(3), np.zeros(7))),
    ):
        return whole / min(seconds(before) for _ in range(3))


def peak(dtype: torch.dtype, threads: int) -> float:
    """Return operations per second of a large matrix product."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a = torch.ones(1500, 1500, dtype=dtype)
    best = np.inf
    for _ in range(6):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    torch.set_num_threads(before)
    return float(2 * 1500**3 / best)


def main() -> None:
    params = load_params(None)
    epochs, cores = params.training.epochs, torch.get_num_threads()
    peaks = peak(torch.float32, params.training.threads), peak(torch.float64, cores)
    print(
        f"large products: {peaks[0] / 1e9:.0f} GFLOP/s in float32 on {params.training.threads} threads (joint),",
        end=" ",
    )
    print(f"{peaks[1] / 1e9:.0f} in float64 on {cores} (lattice)")
    rows, joint, lattice = {}, {}, {}
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):  # no parameters and no store of another folder
        for size in SIZES:
            folder = Path(temporary) / size
            features.run(load_params(None, [f"features.source.preset={size}"]), folder)
            data = FeatureSet.open(folder)
            rows[size] = len(data.split("train"))
            joint[size], work_joint = seconds_joint(data, params, Path(temporary) / "work")
            lattice[size], work_lattice = seconds_lattice(data, params, Path(temporary) / "work")
            whole = joint[size] * epochs
            print(f"{size}: joint {joint[size]:.2f} s an epoch, {rows[size] / joint[size]:,.0f} rows/s,", end=" ")
            print(f"{work_joint / peaks[0] / joint[size]:.0%} of it products at full speed")
            print(f"{size}: lattice {lattice[size]:.2f} s in all, {rows[size] / lattice[size]:,.0f} rows/s,", end=" ")
            print(f"{work_lattice / peaks[1] / lattice[size]:.0%} of it products at full speed")
            print(f"{size}: ratio lattice / joint ({epochs} epochs): {lattice[size] / whole:.2f} (claim: at most 1)")
        ratio = ratio_of_classes(Path(temporary) / "classes", params)
        print(f"seven classes: ratio to ridges alone with 256 landmarks: {ratio:.2f} (claim: at most 5)")
    growth = rows["mosei"] / rows["mosi"]
    for name, times in (("joint", joint), ("lattice", lattice)):
        ratio = times["mosei"] / times["mosi"] / growth
        print(f"{name}: growth of time / growth of rows ({growth:.1f}×): {ratio:.2f} (claim: at most 1)")


if __name__ == "__main__":
    main()
