"""Closed forms of per-sample gradients against `torch.func`, layer by layer, in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from mbd.deletion.gradients import Batch, Losses, Sums, sum_over_samples
from mbd.deletion.layers import LayerRow
from mbd.deletion.per_sample import Form

ROWS, INPUTS, STEPS = 23, 5, 3


class TwoLayers(nn.Module):
    """Linear layers with and without a bias, one vector for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(INPUTS, 7), nn.Linear(7, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.tanh(self.first(x)))
        return out


class InPlace(TwoLayers):
    """What comes out of a layer is changed in place."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        out: Tensor = self.second(hidden.mul_(2).relu_())
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


class WithRow(nn.Module):
    """A property embedding that every sample gets, beside a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.property = nn.Parameter(torch.randn(1, 3))
        self.unused = nn.Linear(2, 2)
        self.linear = nn.Linear(INPUTS + 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(torch.cat([x, self.property.expand(len(x), -1)], dim=1))
        return out


class Foreign(nn.Module):
    """Layers without a closed form, and a Linear whose weight is used behind the layer's back."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(1, 2, 3)
        self.gain = nn.Parameter(torch.tensor(0.7))
        self.linear = nn.Linear(INPUTS, INPUTS)
        self.clean = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.linear(torch.tanh(self.linear(x)), self.linear.weight.T) * self.gain
        out: Tensor = self.clean(torch.tanh(self.convolution(hidden[:, None])).flatten(1))
        return out


class Convolutions(nn.Module):
    """Over a sequence and over an image, with strides, padding and dilation; one in groups has no closed form."""

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


class Folded(nn.Module):
    """Steps folded into the first axis, where a layer cannot distinguish samples."""

    def __init__(self) -> None:
        super().__init__()
        self.folded, self.out = nn.Linear(INPUTS, 3), nn.Linear(3 * STEPS, 2)

    def forward(self, x: Tensor) -> Tensor:
        sequence = torch.stack([x * (k + 1) for k in range(STEPS)], dim=1).flatten(0, 1)
        out: Tensor = self.out(torch.tanh(self.folded(sequence)).reshape(len(x), -1))
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


class BeforeSamples(nn.Module):
    """Positions of sequences that come before the samples, in two shapes, and a gate that mixes samples if copied."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.out = nn.Linear(1, 3), nn.Linear(3, 2)
        self.positions, self.times = nn.Parameter(torch.randn(INPUTS, 1, 3)), nn.Parameter(torch.randn(ROWS))

    def forward(self, x: Tensor) -> Tensor:
        sequence = torch.tanh(self.linear(x.T[:, :, None]) + self.positions)  # steps × samples × 3
        longer = sequence.mean(0)[None] * torch.tanh(self.times)[:, None, None]  # as long as there are samples
        out: Tensor = self.out(longer.square().sum(0) + sequence.sum(0))
        return out


def losses(network: nn.Module, batch: Batch) -> Tensor:
    """Three values for each sample, so that every form is summed from one forward pass."""
    out = network(batch["x"])
    error = (out - batch["y"].sum(1, keepdim=True)).square()
    return torch.stack([error.sum(1), error.mean(1), out.sum(1)], dim=1)


def batch_of(rows: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    return {name: torch.randn(rows, INPUTS, generator=generator, dtype=dtype) for name in ("x", "y")}


def per_sample(network: nn.Module, wanted: Losses, batch: Batch, column: int) -> dict[str, Tensor]:
    """The gradients of every sample, one by one, by torch itself."""
    network.eval()

    class Call(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, sample: dict[str, Tensor]) -> Tensor:
            return wanted(self.network, {name: value[None] for name, value in sample.items()})[0, column]

    call = Call()
    parameters = {f"network.{name}": p.detach() for name, p in network.named_parameters()}
    one_by_one = vmap(grad(lambda p, sample: functional_call(call, p, (sample,))), in_dims=(None, 0))
    with sdpa_kernel(SDPBackend.MATH):
        found = one_by_one(parameters, dict(batch))
    return {name.removeprefix("network."): value for name, value in found.items()}


def build(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(3)
    return kind().double()


FORMS: dict[Form, Callable[[Tensor], Tensor]] = {"plain": Tensor.clone, "absolute": Tensor.abs, "square": Tensor.square}


def assert_equal(sums: Sums, network: nn.Module, batch: Batch) -> None:
    for column, (form, function) in enumerate(FORMS.items()):
        expected = per_sample(network, losses, batch, column)
        for name, gradients in expected.items():
            found = sums.totals[form].get(name, torch.zeros_like(gradients[0]))
            assert_close(found, function(gradients).sum(0), rtol=1e-10, atol=1e-10)
        if form == "plain":
            norms = torch.stack([g.reshape(ROWS, -1).square().sum(1) for g in expected.values()]).sum(0).sqrt()
            assert sums.largest_gradient == pytest.approx(float(norms.max()), rel=1e-10)


@pytest.mark.parametrize(
    ("kind", "rows", "by_vmap"),
    [
        (TwoLayers, {}, set()),
        (InPlace, {}, set()),
        (Normalised, {}, set()),
        (Often, {}, set()),
        (WithRow, {"property": LayerRow("linear.weight", slice(INPUTS, None))}, set()),
        (WithRow, {"property": LayerRow("linear.weight", slice(0, 3))}, {"property"}),
        (WithRow, {}, set()),
        (Foreign, {}, {"linear.weight"}),
        (Outside, {}, set()),
        (BeforeSamples, {}, {"positions", "times"}),
        (Folded, {}, {"folded.weight", "folded.bias"}),
        (Convolutions, {}, {"grouped.weight", "grouped.bias"}),
        (Words, {}, {"tied.weight"}),
        (Attending, {}, set()),
    ],
)
def test_sums_are_those_of_gradients_taken_one_by_one(
    kind: Callable[[], nn.Module], rows: dict[str, LayerRow], by_vmap: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mbd.deletion.per_sample.LARGEST", 100)  # a few samples at a time, where they have to be held
    monkeypatch.setattr("mbd.deletion.gradients.LARGEST", 100)
    network, batch = build(kind), batch_of(ROWS)
    network.train()
    sums = sum_over_samples(network, losses, [batch], tuple(FORMS), rows)
    assert network.training
    assert (sums.rows, sums.by_vmap) == (ROWS, by_vmap)
    assert_equal(sums, network, batch)


class SequenceFirst(nn.Module):
    """Sequences as long as the batch has samples, before the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.out = nn.Linear(1, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        steps = x.T[:, :, None].expand(-1, -1, 1).repeat(7, 1, 1)[:ROWS]
        out: Tensor = self.out(torch.tanh(self.linear(steps)).sum(0))
        return out


def test_samples_are_distinguished_from_a_sequence_that_is_as_long() -> None:
    network, batch = build(SequenceFirst), batch_of(ROWS)
    sums = sum_over_samples(network, losses, [batch], tuple(FORMS))
    assert not sums.by_vmap
    assert_equal(sums, network, batch)


class Remembering(nn.Module):
    """Torch has no rule for single samples of a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(1, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.gru(x[:, :, None])[1][0])
        return out


def test_parameters_whose_gradients_cannot_be_taken_sample_by_sample_are_named() -> None:
    sums = sum_over_samples(build(Remembering), losses, [batch_of(ROWS)], ("absolute",))
    assert all(name.startswith("gru.") for name in sums.unknown | sums.by_vmap)
    assert "out.weight" in sums.totals["absolute"]


def test_a_product_alone_would_be_an_upper_bound_where_a_weight_is_used_often() -> None:
    network, batch = build(Often), batch_of(ROWS)
    exact = sum_over_samples(network, losses, [batch], tuple(FORMS)).totals["absolute"]
    captured: list[tuple[Tensor, Tensor]] = []

    def note(_: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        out.retain_grad()
        captured.append((inputs[0].detach(), out))

    hook = network.get_submodule("shared").register_forward_hook(note)
    losses(network, batch)[:, 1].sum().backward()  # type: ignore[no-untyped-call]
    hook.remove()
    bound = sum(out.grad.flatten(0, -2).abs().T @ x.flatten(0, -2).abs() for x, out in captured if out.grad is not None)
    assert isinstance(bound, Tensor)
    assert (bound >= exact["shared.weight"] - 1e-12).all()
    assert (bound > 1.1 * exact["shared.weight"]).any()


def test_energies_are_squares_of_what_a_parameter_multiplies_over_those_of_its_row() -> None:
    network, batch = build(Normalised), batch_of(ROWS)
    energies = sum_over_samples(network, losses, [batch], ("plain",)).energies
    x = torch.stack([functional.layer_norm(batch["x"] * (k + 1), (INPUTS,)) for k in range(STEPS)], dim=1)
    norm = network.get_submodule("norm")
    assert isinstance(norm, nn.LayerNorm)
    uses = ROWS * STEPS
    assert_close(energies["norm.weight"].own, x.square().sum((0, 1)))
    assert_close(energies["norm.bias"].row, x.square().sum((0, 1)) + uses)
    inputs = norm(torch.stack([batch["x"] * (k + 1) for k in range(STEPS)], dim=1)).detach()
    assert_close(energies["linear.weight"].own, inputs.square().sum((0, 1)))
    assert_close(energies["linear.weight"].row, inputs.square().sum() + uses)
    assert float(energies["linear.bias"].own) == uses


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shards_add_up_to_the_whole(dtype: torch.dtype) -> None:
    network, batch = build(Often).to(dtype), batch_of(96, dtype)
    batches = [{name: value[start : start + 16] for name, value in batch.items()} for start in range(0, 96, 16)]
    forms = tuple(FORMS)
    whole = sum_over_samples(network, losses, batches, forms)
    shards = [sum_over_samples(network, losses, batches[k::2], forms) for k in (0, 1)]
    before = shards[0].totals["absolute"]["out.weight"].clone()
    joined = Sums()
    for shard in reversed(shards):
        joined += shard
    assert torch.equal(shards[0].totals["absolute"]["out.weight"], before)
    assert (joined.rows, joined.largest_gradient) == (whole.rows, whole.largest_gradient)
    for name, total in whole.totals["absolute"].items():
        if dtype is torch.float32:
            assert torch.equal(joined.totals["absolute"][name], total)
        else:
            assert_close(joined.totals["absolute"][name], total, rtol=1e-13, atol=0)
    one = sum_over_samples(network, losses, [batch], forms)
    for name, total in whole.totals["absolute"].items():
        assert_close(one.totals["absolute"][name], total, rtol=2e-6, atol=1e-6)


def test_a_loss_that_depends_on_nothing_has_no_gradients() -> None:
    sums = sum_over_samples(build(TwoLayers), lambda _, batch: batch["x"][:, :1], [batch_of(8)], ("absolute",))
    assert (sums.rows, sums.totals["absolute"]) == (8, {})
