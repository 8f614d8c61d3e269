"""Claims about modules of one's own, in CPU time on one thread: a cross-modal transformer on data of MOSI's size.

1. Probing one modality takes less than five epochs of training.
2. Surgery takes less than half of training again without the modality; exact deletion, where the reference is there,
   less than a tenth.
3. The attack suite takes little longer than a training at most.
4. From 1 to 10 to 100 million parameters (`--scale`), probing, saliency and activations take about as long for each
   million, within a factor of three. The attack suite on a few rows (extraction, quantised and pruned variants,
   relearning, old weights put back) takes less for each million. Memory grows no faster than the parameters do.
5. For a transformer of fixed shape (`--transformer`), probing takes less than an epoch of 300 rows, a deletion less
   than ten, and all attacks on the result less than two trainings of 25 epochs. Memory is printed
   beside that of an epoch.
"""

import argparse
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks import fixed_transformer
from mbd.attacks.audit_input import open_audit
from mbd.attacks.suite import run_suite
from mbd.deletion import exact, surgery
from mbd.deletion.calibration import ModuleCalibration
from mbd.deletion.gradients import sum_over_samples
from mbd.deletion.methods import ModelBefore
from mbd.deletion.saliency import saliency
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.formats.features import Shape
from mbd.model import probing
from mbd.model.checkpoint import load_model
from mbd.model.contract import Architecture, example
from mbd.model.examples.late_fusion import LateFusion
from mbd.model.module import ModuleBackbone, architecture_of
from mbd.model.probing import probe
from mbd.params import Params, load_params
from mbd.steps import delete, features, train

GONE = "audio"
REQUEST = DeletionTarget(modalities=(GONE,))
EPOCHS = 25
WIDTHS = {1: 620, 10: 2_140, 100: 6_980}
"""hidden units of late fusion with so many million parameters"""
SHAPES = {"text": Shape.vector(300), GONE: Shape.vector(74)}
FEW = {"train": 64, "valid": 48, "test": 160}
"""rows of the attack suite at every size"""


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time, in which other processes on the machine have no say."""
    start = time.process_time()
    work()
    return time.process_time() - start


def settings() -> Params:
    return load_params(
        None,
        [
            *("features.source.preset=mosi", "training.threads=1", f"training.epochs={EPOCHS}"),
            *("training.optimiser=adamw", "training.learning_rate=0.002", "attacks.figures=false"),
            "model.backbone=mbd.model.examples.crossmodal:CrossModalTransformer",
        ],
    )


def as_first(work: Callable[[], object]) -> float:
    """Return the CPU time without what probing keeps of earlier calls, as in a process of its own."""
    probing._probe.cache_clear()
    return seconds(work)


def compare() -> None:
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):  # no parameters and no store of another folder
        params = settings()
        root = Path(temporary)
        features.run(params, root / "features")
        train.run(params, root / "features", root / "model")
        training = seconds(lambda: train.run(params, root / "features", root / "reference", (GONE,)))
        data, (record, tensors) = FeatureSet.open(root / "features"), load_model(root / "model")
        probed = as_first(lambda: probe(architecture_of(record), GONE))
        print(f"training without {GONE}: {training:.1f} s for {EPOCHS} epochs")
        print(f"probing / one epoch: {probed / (training / EPOCHS):.2f} (claim: less than 5)")
        split = data.split("calibration")
        calibration = ModuleCalibration.of(record, tensors, split)
        epochs = seconds(lambda: saliency(calibration, [GONE])) / (training / EPOCHS)
        print(f"saliency / one epoch: {epochs:.2f} on {calibration.most_rows} rows, as a first call")
        before = ModelBefore(record, tensors, data)
        cut = as_first(lambda: surgery.delete(REQUEST, before, params))
        given = ModelBefore(record, tensors, data, load_model(root / "reference"))
        released = as_first(lambda: exact.delete(REQUEST, given, params))
        print(f"surgery / training again: {cut / training:.2f} (claim: less than 0.5)")
        print(f"exact with a reference / training again: {released / training:.3f} (claim: less than 0.1)")
        delete.run(params, root / "features", root / "model", [GONE], [], root / "deleted")
        audit = open_audit(root / "features", root / "model", root / "deleted", root / "reference", [GONE])
        suite = as_first(lambda: run_suite(audit, params.attacks))
        print(f"attack suite / training: {suite / training:.2f} (claim: at most 1.2)")


def one_size(millions: int) -> None:
    """Print what a module of this size costs, as JSON; what is measured has a process of its own, for its peak."""
    with tempfile.TemporaryDirectory() as folder:
        parts, _ = alone(costs, folder, millions), alone(prepare, folder, millions)
        suite = alone(attacked, folder, millions)
    size = parts["parameters"] / 1e6
    for name, found in (("parts", parts), ("suite", suite)):
        seconds_each, peak_each = found["total"] / size, found["peak"] / size
        print(f"{size:.1f} M, {name}: {seconds_each:.2f} s and {peak_each:.0f} MB for each million")
    print(json.dumps({"parts": parts, "suite": suite}))


def alone(work: Callable[[str, int], dict[str, float]], folder: str, millions: int) -> dict[str, float]:
    """Run a part in a process of its own; add the time of all that it has timed, and its peak memory in MB."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, work, folder, millions).result()


def _measured(work: Callable[[str, int], dict[str, float]], folder: str, millions: int) -> dict[str, float]:
    torch.set_num_threads(1)
    with threadpool_limits(1):
        found = work(folder, millions)
    # Not getrusage: that counts what the parent had before this process was started.
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024
    total = sum(value for name, value in found.items() if name != "parameters")
    return {**found, "total": total, "peak": peak}


def costs(_: str, millions: int) -> dict[str, float]:
    """Return the seconds that building, probing, saliency and activations take."""
    architecture = Architecture(LateFusion, SHAPES, 1, {"hidden": WIDTHS[millions]})
    parts = {"building": seconds(architecture.build)}
    module = architecture.build()
    parts["probing"] = seconds(lambda: probe(architecture, GONE))
    rows, available = example(SHAPES, 32, seed=0)

    def losses(network: torch.nn.Module, batch: object) -> torch.Tensor:
        hidden = {**available, GONE: torch.zeros_like(available[GONE])}
        n = len(next(iter(batch.values())))  # type: ignore[attr-defined]
        here, gone = ({m: bits[:n] for m, bits in given.items()} for given in (available, hidden))
        difference: torch.Tensor = network(batch, here) - network(batch, gone)
        return difference.square()

    parts["saliency"] = seconds(lambda: sum_over_samples(module, losses, [rows], ("absolute",)))
    backbone = ModuleBackbone(module, architecture, "regression")
    given = {m: x.numpy() for m, x in rows.items()}
    there = {m: np.ones(len(x), bool) for m, x in given.items()}
    parts["activations"] = seconds(lambda: backbone.activations(given, there))
    return {"parameters": sum(parameter.numel() for parameter in module.parameters()), **parts}


def prepare(folder: str, millions: int) -> dict[str, float]:
    """Write data of few rows, a model of this size, its reference, and what an exact deletion leaves."""
    dims = ", ".join(f"{m}: {shape.width}" for m, shape in SHAPES.items())
    rows = ", ".join(f"{split}: {count}" for split, count in FEW.items())
    params = load_params(
        None,
        [
            *(f"features.source.synthetic.dims={{{dims}}}", f"features.source.synthetic.rows={{{rows}}}"),
            *("model.backbone=mbd.model.examples.late_fusion:LateFusion", "training.threads=1", "training.epochs=1"),
            *(f"model.options={{hidden: {WIDTHS[millions]}}}", "deletion.method=exact", "training.learning_rate=1e-4"),
        ],
    )
    root = Path(folder)
    features.run(params, root / "features")
    train.run(params, root / "features", root / "model")
    train.run(params, root / "features", root / "reference", (GONE,))
    delete.run(params, root / "features", root / "model", [GONE], [], root / "deleted", reference=root / "reference")
    return {}


def attacked(folder: str, _: int) -> dict[str, float]:
    """Return the seconds of each part of the attack suite."""
    root, settings = Path(folder), load_params(None, ["attacks.figures=false"]).attacks
    audit = open_audit(root / "features", root / "model", root / "deleted", root / "reference", [GONE])
    found: dict[str, float] = {}
    everything = seconds(lambda: found.update(run_suite(audit, settings).seconds))
    variants = sum(value for name, value in found.items() if ", " in name)
    elapsed, each = sum(found.values()), {"variants": variants, "diff": found["diff"]}
    parts = {name: everything * value / elapsed for name, value in each.items()}  # CPU time by shares of elapsed time
    return {**parts, "the rest": everything - sum(parts.values())}


def scale(sizes: list[int]) -> None:
    print(f"late fusion: seconds of CPU time and peak memory; the attack suite on {FEW['test']} test rows")
    for millions in sizes:
        command = [sys.executable, __file__, "--size", str(millions)]
        found = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
        size = found["parts"].pop("parameters") / 1e6
        for name, parts in found.items():
            total, peak = parts.pop("total"), parts.pop("peak")
            shown = ", ".join(f"{part} {value:.1f} s" for part, value in parts.items())
            each = f"{total / size:.2f} s and {peak / size:.0f} MB for each million"
            print(f"  {size:.1f} M, {name}: {shown}; {each} ({peak:.0f} MB)")


def transformer(sizes: list[int]) -> None:
    print("a transformer of fixed shape: CPU time, and peak memory above the program's own")
    for millions in sizes:
        whole = 0.0
        for part in fixed_transformer.PARTS:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found = pool.submit(fixed_transformer.measure, part, millions).result()
            took, size = found["seconds"], found["numbers"] / 1e6
            whole = whole or took
            print(
                f"  {size:.1f} M, {part}: {took:.1f} s, {took / whole:.2f} of an epoch, {took / size:.2f} s for each "
                f"million; {found['peak'] / found['weights']:.1f} times the weights"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, help="measure one size, in millions of parameters (used by the program)")
    parser.add_argument("--scale", default="1,10,100", help="sizes to compare, in millions of parameters")
    parser.add_argument("--transformer", default="10,100", help="sizes of the transformer, in millions of parameters")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if options.size:
            one_size(options.size)
            return
        if options.scale:
            compare()
        scale([int(part) for part in options.scale.split(",") if part])
    transformer([int(part) for part in options.transformer.split(",") if part])


if __name__ == "__main__":
    main()
