"""Claims about modules of one's own, in CPU time on one thread: a cross-modal transformer on data of MOSI's size.

1. Probing one modality takes less than five epochs of training.
2. Saliency in closed form is faster than by vmap.
3. Surgery takes less than half of training again without the modality; exact deletion, where the reference is there,
   less than a tenth.
4. The attack suite takes no longer than three trainings.
5. From 1 to 10 to 100 million parameters (`--scale`), probing, saliency and activations take about as long for each
   million, within a factor of three, and memory grows no faster than the parameters do.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from mbd.attacks.audit_input import open_audit
from mbd.attacks.suite import run_suite
from mbd.deletion import exact, surgery
from mbd.deletion.gradients import sum_over_samples
from mbd.deletion.module_calibration import ModuleCalibration
from mbd.deletion.outcome import ModelBefore
from mbd.deletion.saliency import saliency
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.formats.features import Shape
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


def compare() -> None:
    params = settings()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        features.run(params, root / "features")
        train.run(params, root / "features", root / "model")
        training = seconds(lambda: train.run(params, root / "features", root / "reference", (GONE,)))
        data, (record, tensors) = FeatureSet.open(root / "features"), load_model(root / "model")
        probing = seconds(lambda: probe(architecture_of(record), GONE))
        print(f"training without {GONE}: {training:.1f} s for {EPOCHS} epochs")
        print(f"probing / one epoch: {probing / (training / EPOCHS):.2f} (claim: less than 5)")
        split = data.split("calibration")
        closed = seconds(lambda: saliency(ModuleCalibration.of(record, tensors, split), [GONE]))
        with patch("mbd.deletion.gradients.with_closed_form", lambda *_: set()):
            by_vmap = seconds(lambda: saliency(ModuleCalibration.of(record, tensors, split), [GONE]))
        print(f"saliency, closed form / vmap: {closed / by_vmap:.2f} on {len(split)} rows (claim: less than 1)")
        before = ModelBefore(record, tensors, data)
        cut = seconds(lambda: surgery.delete(REQUEST, before, params))
        given = ModelBefore(record, tensors, data, load_model(root / "reference"))
        released = seconds(lambda: exact.delete(REQUEST, given, params))
        print(f"surgery / training again: {cut / training:.2f} (claim: less than 0.5)")
        print(f"exact with a reference / training again: {released / training:.3f} (claim: less than 0.1)")
        delete.run(params, root / "features", root / "model", [GONE], [], root / "deleted")
        audit = open_audit(root / "features", root / "model", root / "deleted", root / "reference", [GONE])
        suite = seconds(lambda: run_suite(audit, params.attacks))
        print(f"attack suite / training: {suite / training:.2f} (claim: at most 3)")


def one_size(millions: int) -> None:
    """Print what a module of this size costs, as JSON."""
    shapes = {"text": Shape.vector(300), GONE: Shape.vector(74)}
    architecture = Architecture(LateFusion, shapes, 1, {"hidden": WIDTHS[millions]})
    parts = {"building": seconds(architecture.build)}
    module = architecture.build()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    parts["probing"] = seconds(lambda: probe(architecture, GONE, draws=6))
    rows, available = example(shapes, 32, seed=0)

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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"parameters": parameters, "peak": peak, **parts}))


def scale(sizes: list[int]) -> None:
    print("late fusion: seconds of CPU time, and peak memory")
    for millions in sizes:
        command = [sys.executable, __file__, "--size", str(millions)]
        found = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
        size = found.pop("parameters") / 1e6
        peak = found.pop("peak")
        shown = ", ".join(f"{name} {value:.1f} s" for name, value in found.items())
        each = sum(found.values()) / size
        print(f"  {size:.1f} M: {shown}; {each:.2f} s and {peak / size:.0f} MB for each million ({peak:.0f} MB)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, help="measure one size, in millions of parameters (used by the program)")
    parser.add_argument("--scale", default="1,10,100", help="sizes to compare, in millions of parameters")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if options.size:
            one_size(options.size)
            return
        compare()
        scale([int(part) for part in options.scale.split(",") if part])


if __name__ == "__main__":
    main()
