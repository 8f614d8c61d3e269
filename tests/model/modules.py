"""Modules as users write them, for tests: none of them knows more of this package than the contract."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mbd.formats.features import Shape

Tensors = dict[str, Tensor]
VECTORS = {"text": Shape.vector(6), "audio": Shape.vector(4), "video": Shape.vector(5)}
SEQUENCES = {
    "text": Shape(kind="sequence", size=(7, 6)),
    "audio": Shape(kind="sequence", size=(9, 4)),
    "video": Shape(kind="sequence", size=(5, 5)),
}
MIXED = {
    "text": Shape(kind="tokens", size=(6,), vocabulary=40),
    "audio": Shape(kind="sequence", size=(8, 4)),
    "image": Shape(kind="image", size=(2, 8, 8)),
}


class Concatenation(nn.Module):
    """What a user writes first: BatchNorm on each modality, a concatenation, two layers with weight norm."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, hidden: int = 8) -> None:
        super().__init__()
        self.norms = nn.ModuleDict({m: nn.BatchNorm1d(s.width) for m, s in modalities.items()})
        width = sum(s.width for s in modalities.values())
        self.hidden = nn.utils.parametrizations.weight_norm(nn.Linear(width, hidden))
        self.out = nn.Linear(hidden, outputs)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        parts = [norm(features[m]) * available[m][:, None] for m, norm in self.norms.items()]
        scores: Tensor = self.out(torch.tanh(self.hidden(torch.cat(parts, dim=1))))
        return scores


class Recurrent(nn.Module):
    """A GRU for each modality over packed sequences, and a shared one over their last states."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, hidden: int = 6) -> None:
        super().__init__()
        self.grus = nn.ModuleDict({m: nn.GRU(s.width, hidden, batch_first=True) for m, s in modalities.items()})
        self.over = nn.GRU(hidden * len(modalities), hidden, batch_first=True)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        states = []
        for m, gru in self.grus.items():
            packed = nn.utils.rnn.pack_padded_sequence(
                features[m], features[f"{m}_lengths"].cpu(), batch_first=True, enforce_sorted=False
            )
            states.append(gru(packed)[1][0] * available[m][:, None])
        scores: Tensor = self.out(self.over(torch.cat(states, dim=1)[:, None])[0][:, 0])
        return scores


class Perception(nn.Module):
    """Token ids by an embedding that is used twice, a convolution over frames, one over pixels."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, hidden: int = 6) -> None:
        super().__init__()
        self.shapes = dict(modalities)
        if "text" in modalities:
            self.words = nn.Embedding(modalities["text"].vocabulary or 0, hidden)
            self.mixing = nn.Linear(hidden, modalities["text"].vocabulary or 0, bias=False)
            self.mixing.weight = self.words.weight
        if "audio" in modalities:
            self.frames = nn.Conv1d(modalities["audio"].width, hidden, 3, padding=1)
        if "image" in modalities:
            self.pixels = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
            self.flat = nn.Linear(4 * 3 * 3, hidden)
        self.out = nn.Linear(hidden * len(modalities), outputs)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        parts = {}
        if "text" in self.shapes:
            pooled = self.words(features["text"]).mean(1)
            parts["text"] = pooled + self.mixing(pooled).softmax(dim=1) @ self.words.weight
        if "audio" in self.shapes:
            parts["audio"] = self.frames(features["audio"].transpose(1, 2)).mean(2)
        if "image" in self.shapes:
            parts["image"] = self.flat(self.pixels(features["image"] / 255))
        scores: Tensor = self.out(torch.cat([x * available[m][:, None] for m, x in parts.items()], dim=1))
        return scores


class SixStreams(nn.Module):
    """In the style of published cross-modal transformers: three positional tensors in, a dictionary out, no masks.

    Each modality attends to each of the two others; both streams of a modality are joined by a layer of their own.
    """

    def __init__(self, text: int, audio: int, video: int, outputs: int, width: int = 4) -> None:
        super().__init__()
        self.project = nn.ModuleDict({m: nn.Conv1d(d, width, 1) for m, d in (("l", text), ("a", audio), ("v", video))})
        self.streams = nn.ModuleDict(
            {f"{m}_with_{o}": nn.MultiheadAttention(width, 2) for m in "lav" for o in "lav" if m != o}
        )
        self.memories = nn.ModuleDict({m: nn.TransformerEncoderLayer(2 * width, 2, 16, dropout=0.1) for m in "lav"})
        self.mix = nn.Linear(6 * width, 6 * width)
        self.out = nn.Linear(6 * width, outputs)

    def forward(self, text: Tensor, audio: Tensor, video: Tensor) -> dict[str, Tensor]:
        given = {"l": text, "a": audio, "v": video}
        x = {m: self.project[m](given[m].transpose(1, 2)).permute(2, 0, 1) for m in given}
        last = []
        for m in x:
            pair = [self.streams[f"{m}_with_{o}"](x[m], x[o], x[o])[0] for o in x if o != m]
            last.append(self.memories[m](torch.cat(pair, dim=2))[-1])
        joined = torch.cat(last, dim=1)
        return {"output": self.out(joined + torch.relu(self.mix(joined)))}


class WrappedSixStreams(SixStreams):
    """The few lines that put such a model under the contract."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, width: int = 4) -> None:
        text, audio, video = (modalities[m].width for m in ("text", "audio", "video"))
        super().__init__(text, audio, video, outputs, width)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:  # type: ignore[override]
        del available
        return super().forward(features["text"], features["audio"], features["video"])["output"]


SIX_STREAMS_BRANCHES = {
    "audio": ("streams.l_with_a", "streams.v_with_a", "memories.a"),
    "text": ("streams.a_with_l", "streams.v_with_l", "memories.l"),
}


class SixStreamsOfVectors(SixStreams):
    """The same for data whose rows are vectors: each is taken as two frames."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, width: int = 4) -> None:
        text, audio, video = (modalities[m].width // 2 for m in ("text", "audio", "visual"))
        super().__init__(text, audio, video, outputs, width)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:  # type: ignore[override]
        del available
        frames = [features[m].reshape(len(features[m]), 2, -1) for m in ("text", "audio", "visual")]
        return super().forward(*frames)["output"]


class FixedVectors(nn.Module):
    """All modalities written into the code, `available` ignored."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, width: int = 6) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict(
            {m: nn.Sequential(nn.Linear(modalities[m].width, width), nn.Tanh()) for m in ("text", "audio", "visual")}
        )
        self.out = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        del available
        scores: Tensor = self.out(torch.cat([encoder(features[m]) for m, encoder in self.encoders.items()], dim=1))
        return scores


class Nonverbal(nn.Module):
    """Audio and visual share a network of their own; all modalities are written into the code."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, width: int = 6) -> None:
        super().__init__()
        self.verbal = nn.Sequential(nn.Linear(modalities["text"].width, width), nn.ReLU())
        both = modalities["audio"].width + modalities["visual"].width
        self.nonverbal = nn.Sequential(nn.Linear(both, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(2 * width, outputs)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        del available
        nonverbal = self.nonverbal(torch.cat([features["audio"], features["visual"]], dim=1))
        scores: Tensor = self.out(torch.cat([self.verbal(features["text"]), nonverbal], dim=1))
        return scores


class EveryKind(nn.Module):
    """Modalities of any names and kinds, each by an encoder for its kind, added up."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, hidden: int = 6) -> None:
        super().__init__()
        self.shapes = dict(modalities)
        first = {
            m: nn.Embedding(s.vocabulary or 0, hidden)
            if s.kind == "tokens"
            else nn.Conv2d(s.width, hidden, 3)
            if s.kind == "image"
            else nn.Linear(s.width, hidden)
            for m, s in modalities.items()
        }
        self.encoders = nn.ModuleDict(first)
        self.out = nn.ModuleDict({m: nn.Linear(hidden, outputs) for m in modalities})

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        scores = []
        for m, shape in self.shapes.items():
            x = features[m] / 255 if shape.kind == "image" else features[m]
            x = self.encoders[m](x)
            if shape.has_lengths:
                inside = torch.arange(shape.size[0], device=x.device) < features[f"{m}_lengths"][:, None]
                x = (x * inside[..., None]).sum(1) / inside.sum(1, keepdim=True)
            elif shape.kind == "image":
                x = x.mean((2, 3))
            scores.append(self.out[m](torch.tanh(x)) * available[m][:, None])
        return torch.stack(scores).sum(0)
