"""Claims about deletion, in CPU time on one thread, with the default joint model and 5,000 calibration rows.

1. Saliency in closed form takes at most 1/20 of vmap(grad) and of a loop over the rows, and at most twice one forward
   and backward pass over the same rows.
2. At the size of MOSEI (`--mosei`) surgery is at least 50 times faster than training again without the modality (270
   in the paper, where training takes hours instead of minutes), and exact deletion at least 1,000 times at any size. A
   certified deletion is mostly its fine-tuning, and at least 3 times faster. To forget three subjects exactly, the
   modules that have seen the modality (4 of 7) are trained again: always faster than training everything, by how much
   depends on the modality.
3. From 1× to 8× the width the cost of a parameter stays flat, and peak memory grows with the parameters, not the rows.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from mbd.deletion import certified, exact, surgery
from mbd.deletion.calibration import Calibration, property_rows, reconstruction
from mbd.deletion.gradients import sum_over_samples
from mbd.deletion.outcome import ModelBefore
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.model.joint import from_tensors
from mbd.model.networks import JointNetwork
from mbd.params import Params, load_params
from mbd.steps import features
from mbd.training.joint import train_joint
from mbd.training.lattice import train_lattice

GONE = "audio"
REQUEST = DeletionTarget(modalities=(GONE,))
AT_ONCE = 32  # samples for which vmap holds all gradients at a time; more is slower here
REPEATS = 5


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time, in which other processes on the machine have no say."""
    start = time.process_time()
    work()
    return time.process_time() - start


def median_seconds(work: Callable[[], object]) -> float:
    return float(np.median([seconds(work) for _ in range(REPEATS)]))


class Reconstruction(torch.nn.Module):
    """L_re of audio as a module, for the ways that are compared with."""

    def __init__(self, network: JointNetwork) -> None:
        super().__init__()
        self.network, self.losses = network, reconstruction(GONE)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the loss of each row."""
        return self.losses(self.network, batch)[:, 0]


def by_vmap(call: Reconstruction, parameters: dict[str, Tensor], rows: dict[str, Tensor]) -> dict[str, Tensor]:
    def loss(values: dict[str, Tensor], row: dict[str, Tensor]) -> Tensor:
        out: Tensor = functional_call(call, values, ({name: value[None] for name, value in row.items()},))
        return out[0]

    per_sample = vmap(grad(loss), in_dims=(None, 0))
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in parameters.items()}
    for start in range(0, len(rows[GONE]), AT_ONCE):
        part = {name: value[start : start + AT_ONCE] for name, value in rows.items()}
        for name, gradients in per_sample(parameters, part).items():
            totals[name] += gradients.abs().sum(0)
    return totals


def by_loop(call: Reconstruction, parameters: dict[str, Tensor], rows: dict[str, Tensor]) -> dict[str, Tensor]:
    free = {name: p.detach().requires_grad_() for name, p in parameters.items()}
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in parameters.items()}
    for i in range(len(rows[GONE])):
        row = {name: value[i : i + 1] for name, value in rows.items()}
        gradients = torch.autograd.grad(functional_call(call, free, (row,))[0], list(free.values()))
        for name, gradient in zip(free, gradients, strict=True):
            totals[name] += gradient.abs()
    return totals


def forward_and_backward(call: Reconstruction, parameters: dict[str, Tensor], batches: list[dict[str, Tensor]]) -> None:
    free = {name: p.detach().requires_grad_() for name, p in parameters.items()}
    for batch in batches:
        torch.autograd.grad(functional_call(call, free, (batch,)).sum(), list(free.values()))


def compare_saliency(original: ModelBefore) -> None:
    network = from_tensors(original.record, original.tensors).network
    given = Calibration(original.data.split("calibration"), network, original.record.task)
    batches = [dict(batch) for batch in given.batches(having=GONE)]
    rows = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    call, own = Reconstruction(network), f"modality.{GONE}.property"
    used = {n: p for n, p in network.named_parameters() if n == own or n.startswith(f"modality.{GONE}.generator.")}
    parameters: dict[str, Tensor] = {f"network.{name}": p for name, p in used.items()}

    def closed() -> dict[str, Tensor]:
        return sum_over_samples(network, reconstruction(GONE), batches, ("absolute",), property_rows(network)).totals[
            "absolute"
        ]

    found, vmapped = closed(), by_vmap(call, parameters, rows)
    worst = max(float((found[name] / vmapped[f"network.{name}"] - 1).abs().max()) for name in used)
    pairs = [
        (seconds(closed), seconds(lambda: forward_and_backward(call, parameters, batches))) for _ in range(REPEATS)
    ]
    ours, pass_once = (float(np.median(column)) for column in zip(*pairs, strict=True))
    others = {
        "vmap(grad)": seconds(lambda: by_vmap(call, parameters, rows)),
        "a loop": seconds(lambda: by_loop(call, parameters, rows)),
    }
    size = sum(p.numel() for p in used.values())
    print(f"saliency of {GONE}, {len(rows[GONE])} rows, {size:,} parameters: {ours:.3f} s")
    print(f"largest relative difference to vmap(grad) in float32: {worst:.1e}")
    for name, duration in others.items():
        print(f"ratio {name} / closed form: {duration / ours:.1f} (claim: at least 20)")
    print(f"ratio closed form / (forward + backward): {ours / pass_once:.2f} (claim: at most 2)")


def compare_retraining(features_folder: Path, params: Params, original: ModelBefore, work: Path) -> float:
    """Return what training again takes."""
    without = FeatureSet.open(features_folder, without=(GONE,))
    again = seconds(lambda: train_joint(without, params, work=work, progress=False))
    surgery.delete(REQUEST, original, params)  # first calls and imports
    operation = median_seconds(lambda: surgery.delete(REQUEST, original, params))
    printed = load_params(
        None, [f"deletion.surgery.{s}" for s in ("cut=false", "order=importance", "threshold=absolute")]
    )
    as_printed = median_seconds(lambda: surgery.delete(REQUEST, original, printed))
    start = time.process_time()
    outcome = certified.delete(REQUEST, original, params)
    noising = time.process_time() - start
    epochs = f"{outcome.facts['finetuning']['epochs']} of {params.training.epochs} epochs"
    print(f"training again without {GONE}: {again:.1f} s")
    print(f"surgery: {operation:.2f} s; ratio {again / operation:.0f} (claim: at least 50 at MOSEI size)")
    print(f"surgery as printed, without the cut: {as_printed:.2f} s; ratio {again / as_printed:.0f}")
    print(f"certified: {noising:.2f} s; ratio {again / noising:.1f} (claim: at least 3; fine-tuning takes {epochs})")
    return again


def compare_exact(features_folder: Path, params: Params, joint: float, work: Path) -> None:
    data = FeatureSet.open(features_folder)
    trained = train_lattice(data, params, work=work, progress=False)
    original = ModelBefore(trained.record, trained.tensors, data)
    without = FeatureSet.open(features_folder, without=(GONE,))
    again = seconds(lambda: train_lattice(without, params, work=work, progress=False))
    taken = median_seconds(lambda: exact.delete(REQUEST, original, params))
    print(f"lattice trained again without {GONE}: {again:.1f} s")
    print(f"exact: {taken * 1000:.2f} ms; ratio {again / taken:.0f} (claim: at least 1,000)")
    everything = median_seconds(lambda: train_lattice(data, params, work=work, progress=False))
    print(f"lattice trained again with everything: {everything:.2f} s; joint / lattice {joint / everything:.0f}")
    three = tuple(np.unique(data.split("train").groups)[:3].tolist())
    for m in data.modalities:
        request = DeletionTarget(modalities=(m,), subjects=three)
        taken = median_seconds(lambda request=request: exact.delete(request, original, params))  # type: ignore[misc]
        print(f"exact, {m} of three subjects only: {taken:.2f} s; ratio {everything / taken:.1f} (claim: above 1)")


WIDTH = """
import json, sys, time
from pathlib import Path
import torch
from mbd.deletion.calibration import Calibration, property_rows, reconstruction
from mbd.deletion.gradients import sum_over_samples
from mbd.features.contract import FeatureSet
from mbd.model.networks import JointNetwork
from mbd.params.learning import JointSettings
torch.set_num_threads(1)
def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
data = FeatureSet.open(Path(sys.argv[1]))
network = JointNetwork(data.modalities, 1, JointSettings(hidden=int(sys.argv[2]))).requires_grad_(False)
given = Calibration(data.split("calibration"), network, "regression")
own = [p for n, p in network.named_parameters() if n.startswith("modality.audio.generator.")]
def saliency():
    sum_over_samples(network, reconstruction("audio"), given.batches(having="audio"), ("absolute",),
                     property_rows(network))
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
saliency()
peak = memory("VmHWM") - before
times = []
for _ in range(3):
    start = time.process_time()
    saliency()
    times.append(time.process_time() - start)
print(json.dumps({"parameters": sum(p.numel() for p in own), "seconds": min(times), "peak": peak}))
"""


def compare_widths(features_folder: Path) -> None:
    rows = []
    for times in (1, 2, 4, 8):
        command = [sys.executable, "-c", WIDTH, str(features_folder), str(256 * times)]
        rows.append(json.loads(subprocess.check_output(command)) | {"times": times})
    first = rows[0]["seconds"] / rows[0]["parameters"]
    for row in rows:
        cost, memory = row["seconds"] / row["parameters"] / first, row["peak"] / row["parameters"]
        print(
            f"width {row['times']}×: {row['parameters']:>9,} parameters in {row['seconds']:.2f} s, "
            f"cost of a parameter {cost:.2f}× (claim: flat), "
            f"peak memory {row['peak'] / 1e6:.0f} MB, {memory:.0f} bytes a parameter (claim: falls to a constant)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mosei", action="store_true", help="the size of MOSEI instead of MOSI (several minutes)")
    preset = "mosei" if parser.parse_args().mosei else "mosi"
    torch.set_num_threads(1)
    params = load_params(None, [f"features.source.preset={preset}", "training.threads=1"])
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        features.run(params, root / "data")
        data = FeatureSet.open(root / "data")
        trained = train_joint(data, params, work=root / "work", progress=False)
        original = ModelBefore(trained.record, trained.tensors, data)
        print(f"size of {preset}: {data.manifest.splits['train'].rows} train rows")
        compare_saliency(original)
        joint = compare_retraining(root / "data", params, original, root / "work")
        compare_exact(root / "data", params, joint, root / "work")
        compare_widths(root / "data")


if __name__ == "__main__":
    main()
