"""A transformer of fixed shape, as published ones are, and what it costs to import it and to find what is audio's.

Each part has a process of its own. Memory is what it has at its peak above that of the program before anything is
built, in multiples of the weights; activations are in it. An epoch is that of 300 rows, taken from sixteen of them.
"""

import re
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mbd.formats.features import Shape
from mbd.model.branches import propose
from mbd.model.contract import Architecture, example
from mbd.model.probing import probe
from mbd.params import load_params
from mbd.steps import features, import_model
from mbd.tensors import Array

FRAMES, VOCABULARY, ROWS = 24, 10_000, 16
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
        root, rng = Path(folder), np.random.default_rng(0)
        arrays: dict[str, Array] = {}
        for split in ("train", "valid", "test", "calibration"):
            arrays |= {
                f"{split}_ids": np.array([f"{split}{row}_0" for row in range(ROWS)]),
                f"{split}_labels": rng.uniform(-1, 1, ROWS).astype(np.float32),
                f"{split}_text": rng.integers(1, VOCABULARY, (ROWS, FRAMES)),
                f"{split}_audio": rng.standard_normal((ROWS, FRAMES, 74), dtype=np.float32),
            }
        arrays["train_text"][0, 0] = VOCABULARY - 1
        np.savez(root / "data.npz", **arrays)  # type: ignore[arg-type]
        options = ", ".join(f"{name}: {value}" for name, value in architecture.options.items())
        settings = [f"features.source.path={root / 'data.npz'}", "training.threads=1"]
        settings += ["model.backbone=benchmarks.fixed_transformer:FixedTransformer", f"model.options={{{options}}}"]
        params = load_params(None, settings)
        features.run(params, root / "features")
        save_file(architecture.build().state_dict(), root / "weights.safetensors")
        given = (root / "weights.safetensors", root / "features", list(SHAPES), root / "model")
        return _seconds(lambda: import_model.run(params, *given))


PARTS: dict[str, Callable[[Architecture], float]] = {
    "one epoch of training": epoch,
    "probing": probing,
    "branches": branches,
    "import": importing,
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
    start = time.process_time()
    work()
    return time.process_time() - start


def _memory(name: str) -> float:
    return int(re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024
