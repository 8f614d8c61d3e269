"""Models the way they are published, for tests: a fixed shape, three positional inputs, no notion of absence.

Each class has traits that made trouble (:data:`FOREIGN` names them) and is small enough to train in a test. Under the
contract it is one line: `NAME = under_contract(PublishedNAME)`, whose import path is `tests.foreign_modules:NAME`.
:func:`foreign_set` writes data for them in which audio says something about the label that nothing else says.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from mbd.formats.features import Shape
from mbd.params import load_params
from mbd.steps import features
from mbd.tensors import Array
from tests.features.build import write_npz

MODALITIES = ("text", "audio", "visual")
Kind = Literal["vectors", "sequences", "tokens"]
_LENGTH, _VOCABULARY = 6, 30
_SEQUENCES = {
    "text": Shape(kind="sequence", size=(_LENGTH, 6)),
    "audio": Shape(kind="sequence", size=(_LENGTH, 4)),
    "visual": Shape(kind="sequence", size=(_LENGTH, 5)),
}
SHAPES: dict[Kind, dict[str, Shape]] = {
    "vectors": {"text": Shape.vector(6), "audio": Shape.vector(4), "visual": Shape.vector(5)},
    "sequences": _SEQUENCES,
    "tokens": {**_SEQUENCES, "text": Shape(kind="tokens", size=(_LENGTH,), vocabulary=_VOCABULARY, dtype="int64")},
}
SIZES = {"train": 256, "valid": 64, "test": 128, "calibration": 64}


class PublishedCrossModal(nn.Module):
    """Each modality attends to both others; all that it heard is joined by a memory of its own (as in MulT)."""

    def __init__(self, text: Shape, audio: Shape, visual: Shape, outputs: int, width: int = 4) -> None:
        super().__init__()
        shapes = {"l": text, "a": audio, "v": visual}
        self.projections = nn.ModuleDict({m: nn.Conv1d(s.width, width, 1, bias=False) for m, s in shapes.items()})
        pairs = [(m, other) for m in shapes for other in shapes if m != other]
        self.pairs = nn.ModuleDict({f"{m}_with_{other}": CrossAttention(width) for m, other in pairs})
        self.memories = nn.ModuleDict(
            {m: nn.TransformerEncoderLayer(2 * width, 2, 16, dropout=0.1, batch_first=True) for m in shapes}
        )
        self.mix = nn.Linear(6 * width, 6 * width)
        self.out = nn.Linear(6 * width, outputs)

    def forward(self, text: Tensor, audio: Tensor, visual: Tensor) -> Tensor:
        given = {"l": text, "a": audio, "v": visual}
        x = {m: self.projections[m](given[m].transpose(1, 2)).transpose(1, 2) for m in given}
        heard = []
        for m, asking in x.items():
            pair = [self.pairs[f"{m}_with_{other}"](asking, asked) for other, asked in x.items() if other != m]
            heard.append(self.memories[m](torch.cat(pair, dim=2))[:, -1])
        joined = torch.cat(heard, dim=1)
        scores: Tensor = self.out(joined + torch.relu(self.mix(joined)))
        return scores


class CrossAttention(nn.Module):
    """One modality asks another: attention, residual, norm, feed-forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, asking: Tensor, asked: Tensor) -> Tensor:
        x: Tensor = asking + self.attention(asking, asked, asked)[0]
        x = x + self.feed(self.norm(x))
        return x


class SubNetwork(nn.Module):
    """BatchNorm, dropout and three layers of ReLU for one modality (as in TFN and LMF)."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(size)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        encoded: Tensor = self.layers(self.drop(self.norm(x)))
        return encoded


class PublishedTensorFusion(nn.Module):
    """The outer product of three ReLU codes, each with a constant one beside it (as in TFN)."""

    def __init__(self, text: Shape, audio: Shape, visual: Shape, outputs: int, code: int = 4) -> None:
        super().__init__()
        self.text_net, self.audio_net, self.visual_net = (SubNetwork(s.width, code) for s in (text, audio, visual))
        self.fusion = nn.Linear((code + 1) ** 3, 8)
        self.out = nn.Linear(8, outputs)

    def forward(self, text: Tensor, audio: Tensor, visual: Tensor) -> Tensor:
        t, a, v = _with_ones(self.text_net(text), self.audio_net(audio), self.visual_net(visual))
        product = torch.einsum("ni,nj,nk->nijk", t, a, v).flatten(1)
        scores: Tensor = self.out(torch.relu(self.fusion(product)))
        return scores


class PublishedLowRankFusion(nn.Module):
    """The same outer product through factors of low rank, which are bare parameters of the model (as in LMF)."""

    def __init__(self, text: Shape, audio: Shape, visual: Shape, outputs: int, code: int = 4, rank: int = 3) -> None:
        super().__init__()
        self.text_net, self.audio_net, self.visual_net = (SubNetwork(s.width, code) for s in (text, audio, visual))
        self.text_factor, self.audio_factor, self.visual_factor = (
            nn.Parameter(nn.init.xavier_normal_(torch.empty(rank, code + 1, outputs))) for _ in MODALITIES
        )
        self.weights = nn.Parameter(nn.init.xavier_normal_(torch.empty(1, rank)))
        self.bias = nn.Parameter(torch.zeros(1, outputs))

    def forward(self, text: Tensor, audio: Tensor, visual: Tensor) -> Tensor:
        t, a, v = _with_ones(self.text_net(text), self.audio_net(audio), self.visual_net(visual))
        product = (t @ self.text_factor) * (a @ self.audio_factor) * (v @ self.visual_factor)
        return (self.weights @ product.permute(1, 0, 2))[:, 0] + self.bias


def _with_ones(*codes: Tensor) -> list[Tensor]:
    return [torch.cat([torch.ones_like(code[:, :1]), code], dim=1) for code in codes]


class PublishedGatedShift(nn.Module):
    """Word embeddings moved by what is heard and seen at each word, in an encoder of tokens (as in MAG-BERT).

    Beside what it uses it has what published encoders have: a padding row, more positions than words, a buffer of ids,
    and a pooler and a head of the pretraining that nothing calls.
    """

    position_ids: Tensor

    def __init__(self, text: Shape, audio: Shape, visual: Shape, outputs: int, width: int = 8) -> None:
        super().__init__()
        vocabulary = text.vocabulary or 0
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.positions = nn.Embedding(4 * text.size[0], width)
        self.register_buffer("position_ids", torch.arange(4 * text.size[0]), persistent=True)
        self.shift = Shift(width, audio.width, visual.width)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=True, activation="gelu")
        self.pooler = nn.Linear(width, width)
        self.vocabulary_head = nn.Linear(width, vocabulary)
        self.out = nn.Linear(width, outputs)

    def forward(self, text: Tensor, audio: Tensor, visual: Tensor) -> Tensor:
        words = text != 0
        words[:, 0] = True  # attention needs something to look at
        embedded = self.words(text) + self.positions(self.position_ids[: text.shape[1]])
        encoded = self.encoder(self.shift(embedded, audio, visual), src_key_padding_mask=~words)
        scores: Tensor = self.out((encoded * words[..., None]).sum(1) / words.sum(1, keepdim=True))
        return scores


class Shift(nn.Module):
    """A vector from audio and visual, each behind a gate that also hears the words, no longer than the words' own."""

    def __init__(self, width: int, audio: int, visual: int) -> None:
        super().__init__()
        self.visual_gate, self.audio_gate = nn.Linear(visual + width, width), nn.Linear(audio + width, width)
        self.visual_map, self.audio_map = nn.Linear(visual, width), nn.Linear(audio, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)

    def forward(self, words: Tensor, audio: Tensor, visual: Tensor) -> Tensor:
        seen = torch.relu(self.visual_gate(torch.cat([visual, words], -1))) * self.visual_map(visual)
        heard = torch.relu(self.audio_gate(torch.cat([audio, words], -1))) * self.audio_map(audio)
        shift = seen + heard
        longest = words.norm(dim=-1, keepdim=True) / (shift.norm(dim=-1, keepdim=True) + 1e-6)
        moved: Tensor = self.norm(self.drop(words + shift * longest.clamp(max=1.0)))
        return moved


class PublishedSharedTrunk(nn.Module):
    """A norm and a map for each modality, one trunk for all of them, and modalities dropped at random in training.

    Beside that it has reconstructors and a head of another task that only its authors' training called, a `version`,
    and a buffer that counts batches.
    """

    batches: Tensor

    def __init__(self, text: Shape, audio: Shape, visual: Shape, outputs: int, width: int = 6) -> None:
        super().__init__()
        shapes = dict(zip(MODALITIES, (text, audio, visual), strict=True))
        self.norms = nn.ModuleDict({m: nn.BatchNorm1d(s.width) for m, s in shapes.items()})
        self.maps = nn.ModuleDict({m: nn.Linear(s.width, width) for m, s in shapes.items()})
        self.trunk = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.Sigmoid())
        self.reconstructors = nn.ModuleDict({m: nn.Linear(width, s.width) for m, s in shapes.items()})
        self.heads = nn.ModuleDict({task: nn.Linear(3 * width, outputs) for task in ("own", "other")})
        self.register_buffer("version", torch.tensor([2.0]))
        self.register_buffer("batches", torch.zeros(()))

    def forward(self, text: Tensor, audio: Tensor, visual: Tensor) -> Tensor:
        parts = []
        for m, x in zip(MODALITIES, (text, audio, visual), strict=True):
            code = self.trunk(self.maps[m](self.norms[m](x)))
            parts.append(code * (torch.rand(len(code), 1) > 0.2) if self.training else code)
        if self.training:
            self.batches += 1.0
        scores: Tensor = self.heads["own"](torch.cat(parts, dim=1))
        return scores


class PublishedEarlyFusion(nn.Module):
    """All inputs side by side in one layer: audio has columns of it and nothing else."""

    def __init__(self, text: Shape, audio: Shape, visual: Shape, outputs: int, width: int = 8) -> None:
        super().__init__()
        everything = text.width + audio.width + visual.width
        self.norm = nn.LayerNorm(everything)
        self.layers = nn.Sequential(nn.Linear(everything, width), nn.GELU(), nn.Linear(width, outputs))

    def forward(self, text: Tensor, audio: Tensor, visual: Tensor) -> Tensor:
        scores: Tensor = self.layers(torch.cat([text, audio, visual], dim=-1))
        return scores


def under_contract(published: type[nn.Module]) -> type[nn.Module]:
    """Return the class with the two signatures of :mod:`mbd.model.contract`."""

    def __init__(self: Any, modalities: dict[str, Shape], outputs: int, **options: Any) -> None:  # noqa: N807
        published.__init__(self, *(modalities[m] for m in MODALITIES), outputs, **options)

    def forward(self: Any, features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor:
        del available
        scores: Tensor = published.forward(self, *(features[m] for m in MODALITIES))
        return scores

    name = published.__name__.removeprefix("Published")
    return type(name, (published,), {"__init__": __init__, "forward": forward, "__module__": __name__})


CrossModal = under_contract(PublishedCrossModal)
TensorFusion = under_contract(PublishedTensorFusion)
LowRankFusion = under_contract(PublishedLowRankFusion)
GatedShift = under_contract(PublishedGatedShift)
SharedTrunk = under_contract(PublishedSharedTrunk)
EarlyFusion = under_contract(PublishedEarlyFusion)


@dataclass(frozen=True)
class ForeignModule:
    """A model that other people wrote, and what is true of it by construction."""

    factory: type[nn.Module]
    kind: Kind
    """of data that it takes"""
    branches: tuple[str, ...]
    """the outermost submodules that close audio off; empty: none does"""
    unused: tuple[str, ...] = ()
    """beginnings of the names of tensors that no modality uses"""
    traits: tuple[str, ...] = field(default=(), compare=False)

    @property
    def backbone(self) -> str:
        """Its import path."""
        return f"{__name__}:{self.factory.__name__}"

    @property
    def shapes(self) -> dict[str, Shape]:
        """What it is built for."""
        return SHAPES[self.kind]

    @property
    def params(self) -> dict[str, object]:
        """Parameters of a model with its branches."""
        branches = {"model.branches": {"audio": list(self.branches)}} if self.branches else {}
        return {"model.backbone": self.backbone, **branches}


FOREIGN = {
    "cross-modal": ForeignModule(
        CrossModal, "sequences", ("pairs.l_with_a", "pairs.v_with_a", "memories.a"), traits=("cross-modal attention",)
    ),
    "tensor fusion": ForeignModule(
        TensorFusion, "vectors", ("audio_net",), traits=("products of ReLUs", "BatchNorm for each modality")
    ),
    "low-rank fusion": ForeignModule(LowRankFusion, "vectors", ("audio_net",), traits=("bare parameters as factors",)),
    "gated shift": ForeignModule(
        GatedShift,
        "tokens",
        ("shift.audio_map",),
        ("pooler.", "vocabulary_head."),
        ("gated shifting of embeddings", "tokens with padding", "unused heads", "more positions than words"),
    ),
    "shared trunk": ForeignModule(
        SharedTrunk,
        "vectors",
        ("maps.audio",),
        ("reconstructors.", "heads.other.", "version", "batches"),
        ("shared trunk", "BatchNorm for each modality", "counters as buffers", "modalities dropped inside"),
    ),
    "early fusion": ForeignModule(EarlyFusion, "vectors", (), ("norm.",), ("nothing of one modality's own",)),
}


def foreign_set(folder: Path, kind: Kind, *settings: str, sizes: dict[str, int] | None = None) -> Path:
    """Write data of a kind by the real step: a third of the label's variance is in each modality, and nowhere else."""
    arrays: dict[str, Array] = {}
    for split, rows in (sizes or SIZES).items():
        arrays |= {f"{split}_{name}": array for name, array in _rows(split, rows, SHAPES[kind]).items()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = write_npz(folder.with_suffix(".npz"), arrays)
    features.run(load_params(None, [f"features.source.path={file}", *settings]), folder)
    return folder


def _rows(split: str, count: int, shapes: dict[str, Shape]) -> dict[str, Array]:
    rng, fixed = np.random.default_rng([count, len(split)]), np.random.default_rng(0)
    hidden = {m: rng.uniform(-1, 1, count) for m in shapes}
    rows: dict[str, Array] = {
        "ids": np.array([f"{split}{i // 4}_{i % 4}" for i in range(count)]),
        "labels": np.clip(sum(hidden.values()) + 0.05 * rng.standard_normal(count), -3, 3).astype(np.float32),
    }
    for m, shape in shapes.items():
        direction = fixed.uniform(0.5, 1.5, shape.width)
        if shape.has_lengths:
            rows[f"{m}_lengths"] = rng.integers(_LENGTH // 2, _LENGTH + 1, count)
        if shape.kind == "tokens":
            half = (_VOCABULARY - 1) // 2
            rows[m] = 1 + rng.integers(0, half, (count, *shape.size)) + half * (hidden[m] > 0)[:, None]
        else:
            signal = np.multiply.outer(hidden[m], np.broadcast_to(direction, shape.size))
            rows[m] = (signal + 0.2 * rng.standard_normal((count, *shape.size))).astype(np.float32)
        if m == "audio":
            rows[f"{m}_attribute"] = (hidden[m] > 0).astype(np.int64)
    return rows
