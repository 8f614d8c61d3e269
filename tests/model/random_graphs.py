"""Random architectures of which is known, by construction, what each entry of the state is there for.

A graph is a list of nodes; each computes a vector from earlier ones. Beside `forward`, every node states two rules
about single coordinates: which of its outputs can be other than zero when some of its inputs are zero (`support`), and
which entries and inputs matter when some of its outputs do (`reach`). Walking the graph once in each direction gives
the entries that are alive, without a gradient or a random number.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mbd.formats.features import Shape
from mbd.tensors import Array

WIDTH, FRAMES, VOCABULARY = 4, 3, 23
Reach = tuple[dict[str, Array], list[Array]]
"""entries that matter, by the name of their tensor in the node, and what matters of each input"""


class Node(nn.Module):
    """A node whose outputs are functions of one coordinate each, with f(0) = 0; nothing of it is learned."""

    takes = 1
    function: Any = staticmethod(torch.tanh)

    def forward(self, *inputs: Tensor) -> Tensor:
        found: Tensor = self.function(*inputs)
        return found

    def support(self, *inputs: Array) -> Array:
        return inputs[0]

    def reach(self, needed: Array, *inputs: Array) -> Reach:
        return {}, [needed for _ in inputs]


class Rectified(Node):
    function: Any = staticmethod(torch.relu)


class Squashed(Node):
    """f(0) is not 0, nor is it the same at every coordinate."""

    function: Any = staticmethod(lambda x: torch.sigmoid(x + torch.arange(WIDTH)))

    def support(self, *inputs: Array) -> Array:
        return np.ones_like(inputs[0])


class Sum(Node):
    takes = 2
    function: Any = staticmethod(torch.add)

    def support(self, *inputs: Array) -> Array:
        found: Array = np.any(inputs, axis=0)
        return found


class Largest(Sum):
    function: Any = staticmethod(lambda *inputs: torch.stack(inputs).amax(0))


class Product(Node):
    """Gating: what is multiplied by zero does not matter."""

    takes = 2
    function: Any = staticmethod(torch.mul)

    def support(self, *inputs: Array) -> Array:
        found: Array = np.all(inputs, axis=0)
        return found

    def reach(self, needed: Array, *inputs: Array) -> Reach:
        one, other = inputs
        return {}, [needed & other, needed & one]


class RectifiedProduct(Product):
    function: Any = staticmethod(lambda one, other: torch.relu(one) * functional.relu6(other))


class Dense(Node):
    """A linear map of two inputs side by side, with a bias or without."""

    takes = 2

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(2 * WIDTH, WIDTH, bias=bias)

    def forward(self, *inputs: Tensor) -> Tensor:
        found: Tensor = self.layer(torch.cat(inputs, dim=1))
        return found

    def support(self, *inputs: Array) -> Array:
        return np.full(WIDTH, np.any(inputs) or self.layer.bias is not None)

    def reach(self, needed: Array, *inputs: Array) -> Reach:
        entries = {"layer.weight": needed[:, None] & np.concatenate(inputs)[None]}
        if self.layer.bias is not None:
            entries["layer.bias"] = needed
        return entries, [np.full(WIDTH, needed.any()) for _ in inputs]


class Normed(Node):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, *inputs: Tensor) -> Tensor:
        found: Tensor = self.norm(inputs[0])
        return found

    def support(self, *inputs: Array) -> Array:
        return np.ones_like(inputs[0])

    def reach(self, needed: Array, *inputs: Array) -> Reach:
        return {"norm.weight": needed & inputs[0].any(), "norm.bias": needed}, [np.full(WIDTH, needed.any())]


class BatchNormed(Node):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, *inputs: Tensor) -> Tensor:
        found: Tensor = self.norm(inputs[0])
        return found

    def support(self, *inputs: Array) -> Array:
        return np.ones_like(inputs[0])

    def reach(self, needed: Array, *inputs: Array) -> Reach:
        return {f"norm.{name}": needed for name in ("weight", "bias", "running_mean", "running_var")}, [needed]


class Attention(Node):
    """The first input asks both, of which the second is marked, so that they never are the same."""

    takes = 2

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def forward(self, *inputs: Tensor) -> Tensor:
        stacked = torch.stack(inputs, dim=1) + torch.arange(2)[:, None]
        scores = (self.key(stacked) @ self.query(inputs[0])[:, :, None]).softmax(dim=1)
        mixed: Tensor = (scores * self.value(stacked)).sum(1)
        return mixed

    def support(self, *inputs: Array) -> Array:
        return np.ones_like(inputs[0])

    def reach(self, needed: Array, *inputs: Array) -> Reach:
        query = np.broadcast_to(needed.any() & inputs[0][None], (WIDTH, WIDTH))
        entries = {
            "value.weight": np.broadcast_to(needed[:, None], (WIDTH, WIDTH)),
            "key.weight": np.full((WIDTH, WIDTH), query.any()),
            "query.weight": query,
        }
        return entries, [np.full(WIDTH, needed.any()) for _ in inputs]


class Outer(Node):
    """Tensor fusion: the outer product of both inputs, each with a one beside it, and a linear map of it."""

    takes = 2

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear((WIDTH + 1) ** 2, WIDTH, bias=False)

    def forward(self, *inputs: Tensor) -> Tensor:
        one, other = (torch.cat([torch.relu(x), torch.ones_like(x[:, :1])], dim=1) for x in inputs)
        found: Tensor = self.layer((one[:, :, None] * other[:, None]).flatten(1))
        return found

    def support(self, *inputs: Array) -> Array:
        return np.ones_like(inputs[0])

    def reach(self, needed: Array, *inputs: Array) -> Reach:
        one, other = (np.append(x, True) for x in inputs)
        entries = {"layer.weight": needed[:, None] & np.outer(one, other).ravel()[None]}
        return entries, [np.full(WIDTH, needed.any()) for _ in inputs]


NODES = (
    *(Node, Rectified, Squashed, Sum, Largest, Product, RectifiedProduct, Normed, BatchNormed, Attention, Outer),
    *(lambda: Dense(bias=True), lambda: Dense(bias=False)),
)


class Words(nn.Module):
    """Rows of a table for token ids, by their mean over the words that are there; a row may be for padding."""

    def __init__(self, *, padding: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0 if padding else None)
        self.places = nn.Embedding(2 * FRAMES, WIDTH)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        there = torch.arange(ids.shape[1])[None] < lengths[:, None]
        words = self.table(ids) + self.places(torch.arange(ids.shape[1]))
        found: Tensor = (words * there[..., None]).sum(1)
        return found


class Graph(nn.Module):
    """A random graph over three modalities, of fixed shape; `seed` decides everything."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.shapes = {m: modalities[m] for m in ("text", "audio", "visual")}
        self.words = nn.ModuleDict(
            {m: Words(padding=bool(rng.integers(2))) for m, s in modalities.items() if s.kind == "tokens"}
        )
        self.nodes = nn.ModuleList()
        self.inputs: list[tuple[int, ...]] = []
        self.masked: list[bool] = []
        for number in range(int(rng.integers(2, 9))):
            node: Any = self.nodes[int(rng.integers(number))] if number and rng.random() < 0.15 else _node(rng)
            self.nodes.append(node)
            self.inputs.append(tuple(map(int, rng.choice(len(modalities) + number, node.takes, replace=False))))
            self.masked.append(bool(rng.random() < 0.15))
        self.read = tuple(map(int, rng.choice(len(modalities) + len(self.nodes), 2, replace=False)))
        self.out = nn.Linear(2 * WIDTH, outputs)
        self.other_head = nn.Linear(WIDTH, outputs)

    def forward(self, features: Mapping[str, Tensor], available: Mapping[str, Tensor]) -> Tensor:
        values = [
            self.words[m](features[m], features[f"{m}_lengths"]) if m in self.words else features[m]
            for m in self.shapes
        ]
        for node, inputs, masked in zip(self.nodes, self.inputs, self.masked, strict=True):
            value = node(*(values[i] for i in inputs))
            values.append(value * available["audio"][:, None] if masked else value)
        scores: Tensor = self.out(torch.cat([values[i] for i in self.read], dim=1))
        return scores

    def alive(self, *, audio: bool, branches: Sequence[int] = ()) -> dict[str, Array]:
        """Return the entries of the state that matter with audio in all rows, or in none and these nodes silent."""
        support = [np.full(WIDTH, audio or m != "audio" or m in self.words) for m in self.shapes]
        silent = [not audio and (masked or i in branches) for i, masked in enumerate(self.masked)]
        for node, inputs, off in zip(self.nodes, self.inputs, silent, strict=True):
            found = node.support(*(support[i] for i in inputs))  # type: ignore[operator]
            support.append(found & (not off))
        alive = {name: np.zeros(tuple(t.shape), bool) for name, t in self.state_dict().items() if t.is_floating_point()}
        needed = [np.zeros(WIDTH, bool) for _ in support]
        for i in self.read:
            needed[i] = np.ones(WIDTH, bool)
        alive["out.weight"][:] = np.concatenate([support[i] for i in self.read])
        alive["out.bias"][:] = True
        first = len(self.shapes)
        for number in reversed(range(len(self.nodes))):
            matters = needed[first + number] & (not silent[number])
            given = [support[i] for i in self.inputs[number]]
            entries, through = self.nodes[number].reach(matters, *given)  # type: ignore[operator]
            for name, bits in entries.items():
                for same in self._names(number):
                    alive[f"nodes.{same}.{name}"] |= bits
            for i, bits in zip(self.inputs[number], through, strict=True):
                needed[i] = needed[i] | bits
        for place, m in enumerate(self.shapes):
            if m in self.words:
                table = self.words[m].table
                read = slice(None) if audio or m != "audio" else slice(0, 1)
                alive[f"words.{m}.table.weight"][read] = needed[place]
                if table.padding_idx is not None:  # type: ignore[union-attr]
                    alive[f"words.{m}.table.weight"][0] = False
                lengths = FRAMES if audio or m != "audio" else 1
                alive[f"words.{m}.places.weight"][:lengths] = needed[place]
        return alive

    def _names(self, number: int) -> list[int]:
        """Return the places of a node that is there several times."""
        return [i for i, node in enumerate(self.nodes) if node is self.nodes[number]]


def _node(rng: np.random.Generator) -> nn.Module:
    made: nn.Module = NODES[rng.integers(len(NODES))]()
    return made


def random_shapes(rng: np.random.Generator) -> dict[str, Shape]:
    """Return three modalities, each a vector or token ids."""
    tokens = Shape(kind="tokens", size=(FRAMES,), vocabulary=VOCABULARY, dtype="int64")
    return {m: tokens if rng.random() < 0.3 else Shape.vector(WIDTH) for m in ("text", "audio", "visual")}
