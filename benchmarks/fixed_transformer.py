"""A transformer of fixed shape, as published ones are: what import, probing, deletions and an audit of it cost.

Each part has a process of its own. Memory is what it has at its peak above that of the program before anything is
built, in multiples of the weights; activations are in it. An epoch is that of 300 rows, taken from sixteen of them. A
deletion and an audit start from folders, as the commands do, with 300 train rows.
"""

import multiprocessing
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mbd.attacks.audit_input import open_audit
from mbd.attacks.suite import run_suite
from mbd.formats.features import Shape
from mbd.model.branches import propose
from mbd.model.contract import Architecture, example
from mbd.model.probing import probe
from mbd.params import Params, load_params
from mbd.steps import delete, features, import_model, train
from mbd.tensors import Array

FRAMES, VOCABULARY, ROWS = 24, 10_000, 16
SPLITS = ("train", "valid", "test", "calibration")
AUDITED = {"train": 300, "valid": 64, "test": 160, "calibration": 64}
"""rows of a deletion and an audit"""
BRANCHES = ("frames", "listening", "asking")
"""what `mbd branches` proposes for audio"""
SHAPES = {
    "text": Shape(kind="tokens", size=(FRAMES,), vocabulary=VOCABULARY, dtype="int64"),
    "audio": Shape(kind="sequence", size=(FRAMES, 74)),
}
SIZES = {10: {"width": 320, "layers": 4}, 100: {"width": 768, "layers": 7}}
"""options by millions of parameters, about"""


class FixedTransformer(nn.Module):
    """A tower of words, a tower of frames, and words that ask the frames; `available` is ignored."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(modalities["text"].vocabulary or 0, width, padding_idx=0)
        self.frames = nn.Linear(modalities["audio"].width, width)
        self.reading, self.listening = (
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True),
                layers,
                enable_nested_tensor=False,
            )
            for _ in range(2)
        )
        self.asking = nn.MultiheadAttention(width, 4, batch_first=True)
        self.out = nn.Linear(2 * width, outputs)

    def forward(self, features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor:
        """Return scores or logits of each row."""
        del available
        read, heard = self.reading(self.words(features["text"])), self.listening(self.frames(features["audio"]))
        asked = self.asking(read, heard, heard, need_weights=False)[0]
        scores: Tensor = self.out(torch.cat([read.mean(1), asked.mean(1)], dim=1))
        return scores


def epoch(architecture: Architecture) -> float:
    """Return the seconds of an epoch of 300 rows."""
    module = architecture.build()
    optimiser, rows = torch.optim.AdamW(module.parameters()), example(SHAPES, ROWS, seed=0)
    start = time.process_time()
    module(*rows).square().mean().backward()
    optimiser.step()
    return (time.process_time() - start) * 300 / ROWS


def probing(architecture: Architecture) -> float:
    """Return the seconds of probing for audio."""
    return _seconds(lambda: probe(architecture, "audio"))


def branches(architecture: Architecture) -> float:
    """Return the seconds that a proposal for audio takes after the module was probed."""
    probe(architecture, "audio")
    return _seconds(lambda: propose(architecture, "audio"))


def importing(architecture: Architecture) -> float:
    """Return the seconds of `mbd import` with data of sixteen rows a split."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        root = Path(folder)
        params = load_params(None, settings(root, architecture))
        write_features(root, params, dict.fromkeys(SPLITS, ROWS))
        save_file(architecture.build().state_dict(), root / "weights.safetensors")
        given = (root / "weights.safetensors", root / "features", list(SHAPES), root / "model")
        return _seconds(lambda: import_model.run(params, *given))


def settings(root: Path, architecture: Architecture) -> list[str]:
    """Return the settings for the module on the features of a folder."""
    options = ", ".join(f"{name}: {value}" for name, value in architecture.options.items())
    module = ["model.backbone=benchmarks.fixed_transformer:FixedTransformer", f"model.options={{{options}}}"]
    source = [f"features.source.path={root / 'data.npz'}", "training.threads=1", "attacks.figures=false"]
    return [*source, *module, f"model.branches={{audio: [{', '.join(BRANCHES)}]}}"]


def write_features(root: Path, params: Params, rows: Mapping[str, int]) -> None:
    """Write features with so many rows a split in a folder."""
    rng, arrays = np.random.default_rng(0), dict[str, Array]()
    for split, count in rows.items():
        arrays |= {
            f"{split}_ids": np.array([f"{split}{row}_0" for row in range(count)]),
            f"{split}_labels": rng.uniform(-1, 1, count).astype(np.float32),
            f"{split}_text": rng.integers(1, VOCABULARY, (count, FRAMES)),
            f"{split}_text_lengths": np.full(count, FRAMES),
            f"{split}_audio": rng.standard_normal((count, FRAMES, 74), dtype=np.float32),
        }
    arrays["train_text"][0, 0] = VOCABULARY - 1
    np.savez(root / "data.npz", **arrays)  # type: ignore[arg-type]
    features.run(params, root / "features")


def deleting(architecture: Architecture, method: str, *, attacked: bool = False) -> float:
    """Return the seconds of `mbd delete` by a method, or those of all attacks on what it left."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        root, ahead = Path(folder), [train_both, delete_audio] if attacked else [train_both]
        for work in ahead:  # what it held in memory ends with its process
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                pool.submit(work, root, architecture, method).result()
        if attacked:
            audit = open_audit(root / "features", root / "model", root / "deleted", root / "reference", ["audio"])
            return _seconds(lambda: run_suite(audit, load_params(None, settings(root, architecture)).attacks))
        return _seconds(lambda: delete_audio(root, architecture, method))


def train_both(root: Path, architecture: Architecture, _: str) -> None:
    """Write features, a model and its reference in a folder."""
    torch.set_num_threads(1)
    params = load_params(None, [*settings(root, architecture), "training.epochs=1", "training.learning_rate=1e-4"])
    write_features(root, params, AUDITED)
    train.run(params, root / "features", root / "model")
    train.run(params, root / "features", root / "reference", ("audio",))


def delete_audio(root: Path, architecture: Architecture, method: str) -> None:
    """Write what a method leaves of the model in a folder."""
    torch.set_num_threads(1)
    params = load_params(None, [*settings(root, architecture), f"deletion.method={method}"])
    reference = root / "reference" if method == "exact" else None
    delete.run(params, root / "features", root / "model", ["audio"], [], root / "deleted", reference)


PARTS: dict[str, Callable[[Architecture], float]] = {
    "one epoch of training": epoch,
    "probing": probing,
    "branches": branches,
    "import": importing,
    "exact": partial(deleting, method="exact"),
    "surgery": partial(deleting, method="surgery"),
    "certified": partial(deleting, method="certified"),
    "attacks on exact": partial(deleting, method="exact", attacked=True),
}


def measure(part: str, millions: int) -> dict[str, float]:
    """Return seconds, peak memory and weights of a part, in MB; the process is to be its own."""
    torch.set_num_threads(1)
    architecture = Architecture(FixedTransformer, SHAPES, 1, SIZES[millions], name="a transformer of fixed shape")
    before = _memory("VmRSS")
    took = PARTS[part](architecture)
    numbers = sum(parameter.numel() for parameter in architecture.blank().parameters())
    return {"seconds": took, "peak": _memory("VmHWM") - before, "weights": 4 * numbers / 2**20, "numbers": numbers}


def _seconds(work: Callable[[], object]) -> float:
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of this work
    start = time.process_time()
    work()
    return time.process_time() - start


def _memory(name: str) -> float:
    return int(re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024
