"""Sums of per-sample gradients against gradients taken one by one, for the layers that modules are made of."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from mbd.deletion.gradients import Batch, Form, sum_over_samples

ROWS, INPUTS, STEPS = 11, 5, 3


class Often(nn.Module):
    """One weight for every step of a sequence, and once more for the whole: used four times for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.out = nn.Linear(INPUTS, INPUTS), nn.Linear(INPUTS, 2)
        self.twin = self.shared

    def forward(self, x: Tensor) -> Tensor:
        sequence = torch.stack([x * (k - 1) + k for k in range(STEPS)], dim=1)
        out: Tensor = self.out(self.twin(torch.tanh(self.shared(sequence)).sum(1)))
        return out


class Convolutions(nn.Module):
    """Over a sequence and over an image, with strides, padding and dilation; one in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv1d(2, 3, 2, stride=2, padding=1, dilation=2)
        self.same = nn.Conv1d(2, 2, 3, padding="same", bias=False, padding_mode="circular")
        self.two = nn.Conv2d(1, 2, (2, 3), stride=(1, 2), padding=1)
        self.grouped = nn.Conv1d(2, 2, 3, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        sequence = torch.stack([x, x.square()], dim=1)
        parts = (self.one(self.same(sequence)), self.two(sequence[:, None]), self.grouped(sequence))
        return torch.cat([torch.tanh(part).flatten(1) for part in parts], dim=1)


class Words(nn.Module):
    """An embedding in which samples use a word several times, or the padding; another one shares its table."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(4, 3, padding_idx=0)
        self.tied, self.matrix = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.matrix.weight = self.tied.weight
        self.alone = nn.Embedding(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        ids = (x.detach() * 2).round().long().clamp(-2, 1) + 2
        hidden = torch.tanh(self.words(ids).sum(1)) + self.tied(ids).mean(1)
        return torch.cat([self.matrix(hidden), self.alone(ids[:, 0])], dim=1).square()


class Attending(nn.Module):
    """Self-attention with a mask, and attention between sequences that come before the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(1, 4)
        self.own = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm, self.across = nn.LayerNorm(4), nn.MultiheadAttention(4, 2, bias=False)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True, norm_first=True)

    def forward(self, x: Tensor) -> Tensor:
        sequence = self.up(x[:, :, None])
        found = self.own(sequence, sequence, sequence, key_padding_mask=(x > 1.5))[0]
        first = self.norm(found.transpose(0, 1))
        mixed = self.across(first[:2], first, first, need_weights=False)[0].transpose(0, 1)
        out: Tensor = self.layer(mixed).mean(1)
        return out


class Outside(nn.Module):
    """Parameters of no layer: positions, a class token, a gate of a sequence, one number, and a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.out = nn.Linear(1, 4), nn.Linear(4, 2)
        self.positions, self.token = nn.Parameter(torch.randn(INPUTS, 4)), nn.Parameter(torch.randn(1, 1, 4))
        self.gate, self.gain = nn.Parameter(torch.randn(4)), nn.Parameter(torch.tensor(0.7))
        self.mixing = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        frames = self.up(x[:, :, None]) + self.positions
        sequence = torch.cat([self.token.expand(len(x), -1, -1), frames], dim=1)
        hidden = torch.tanh((sequence * self.gate) @ self.mixing) * self.gain
        out: Tensor = self.out(hidden.square().sum(1))
        return out


class Normalised(nn.Module):
    """LayerNorm on a vector and on a sequence, with dropout that must not act."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear, self.last = nn.LayerNorm(INPUTS), nn.Linear(INPUTS, 4), nn.LayerNorm((STEPS, 4))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        sequence = torch.stack([self.norm(x * (k + 1)) for k in range(STEPS)], dim=1)
        out: Tensor = self.last(self.dropout(self.linear(sequence)).tanh())
        return out.flatten(1)


def losses(network: nn.Module, batch: Batch) -> Tensor:
    """Three values for each sample, so that every form is summed at once."""
    out = network(batch["x"])
    error = (out - batch["y"].sum(1, keepdim=True)).square()
    return torch.stack([error.sum(1), error.mean(1), out.sum(1)], dim=1)


def batch_of(rows: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    return {name: torch.randn(rows, INPUTS, generator=generator, dtype=dtype) for name in ("x", "y")}


def build(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(3)
    return kind().double()


FORMS: dict[Form, Callable[[Tensor], Tensor]] = {"plain": Tensor.clone, "absolute": Tensor.abs, "square": Tensor.square}


def one_by_one(network: nn.Module, batch: Batch) -> dict[Form, dict[str, Tensor]]:
    """The same sums by a loop over the samples."""
    network.eval()
    parameters = dict(network.named_parameters())
    sums: dict[Form, dict[str, Tensor]] = {
        form: {name: torch.zeros_like(p) for name, p in parameters.items()} for form in FORMS
    }
    for row in range(ROWS):
        values = losses(network, {name: x[row : row + 1] for name, x in batch.items()})[0]
        for value, (form, function) in zip(values, FORMS.items(), strict=True):
            found = torch.autograd.grad(value, list(parameters.values()), retain_graph=True)
            for name, gradient in zip(parameters, found, strict=True):
                sums[form][name] += function(gradient)
    return sums


@pytest.mark.parametrize("kind", [Normalised, Often, Convolutions, Words, Attending, Outside])
def test_sums_are_those_of_gradients_taken_one_by_one(
    kind: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, batch = build(kind), batch_of(ROWS)
    size = sum(p.numel() for p in network.parameters())
    monkeypatch.setattr("mbd.deletion.gradients.LARGEST", 3 * 4 * size)  # four samples at a time
    network.train()
    sums = sum_over_samples(network, losses, [batch], tuple(FORMS))
    assert network.training
    assert (sums.rows, sums.unknown) == (ROWS, set())
    for form, totals in one_by_one(network, batch).items():
        assert sums.totals[form].keys() == totals.keys()
        for name, total in totals.items():
            assert_close(sums.totals[form][name], total, rtol=1e-9, atol=1e-9)


class Remembering(nn.Module):
    """Torch has no rule for single samples of a GRU over packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(1, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x[:, 0] > 0).long().cpu() + 2
        packed = nn.utils.rnn.pack_padded_sequence(x[:, :, None], lengths, batch_first=True, enforce_sorted=False)
        out: Tensor = self.out(self.gru(packed)[1][0])
        return out


def test_parameters_whose_gradients_cannot_be_taken_sample_by_sample_are_named() -> None:
    network = build(Remembering)
    sums = sum_over_samples(network, losses, [batch_of(ROWS)], ("absolute",))
    assert sums.unknown == {name for name, _ in network.named_parameters()}
    assert (sums.rows, sums.totals) == (ROWS, {"absolute": {}})


def test_only_what_is_asked_for_is_differentiated() -> None:
    sums = sum_over_samples(build(Often), losses, [batch_of(ROWS)], tuple(FORMS), ["out.weight"])
    assert all(list(totals) == ["out.weight"] for totals in sums.totals.values())


def test_batches_add_up_to_the_whole() -> None:
    network, batch = build(Often), batch_of(ROWS)
    parts = [{name: x[part] for name, x in batch.items()} for part in (slice(4), slice(4, ROWS))]
    whole, joined = (sum_over_samples(network, losses, given, tuple(FORMS)) for given in ([batch], parts))
    assert joined.rows == whole.rows
    for name, total in whole.totals["absolute"].items():
        assert_close(joined.totals["absolute"][name], total, rtol=1e-12, atol=1e-12)


def test_a_loss_that_depends_on_nothing_has_no_gradients() -> None:
    sums = sum_over_samples(build(Often), lambda _, batch: batch["x"][:, :1], [batch_of(8)], ("absolute",))
    assert (sums.rows, sums.totals["absolute"]) == (8, {})
