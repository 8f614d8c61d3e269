"""Both proxies of importance against what they stand for."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import functional_call, jacrev, vmap

from mbd.deletion.calibration import JointCalibration
from mbd.deletion.importance import activation_ratios, gauss_newton, importance, swiftprune
from mbd.errors import DataError
from mbd.params.deletion import SurgerySettings
from mbd.randomness import stream
from mbd.tensors import Array
from tests.deletion.models import calibration, home_with_models, model_before, patchy_home

LONGER = ("training.epochs=12", "training.weight_decay=0.0001")


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_models(tmp_path_factory.mktemp("model_workspace"), *LONGER)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_models(
        tmp_path_factory.mktemp("classes"), *LONGER, features=("features.source.synthetic.classes=3",)
    )


class Output(torch.nn.Module):
    """The output of rows whose audio is hidden, and generated."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        network = self.network
        inputs = {m: batch[m] for m in ("text", "audio", "visual")}
        there = {m: torch.tensor([m != "audio"]) for m in inputs}
        complete = {**inputs, "audio": network.generate("audio", inputs)}  # type: ignore[operator]
        out: torch.Tensor = network.answer(network.fuse(complete, there), inputs, there)  # type: ignore[operator]
        return out


@pytest.mark.parametrize("task", ["model_workspace", "classes"])
def test_gauss_newton_is_the_expansion_of_the_supervised_loss(task: str, request: pytest.FixtureRequest) -> None:
    """g and the diagonal of Jᵀ H J from explicit Jacobians, with H the Hessian of the loss by the output."""
    given = calibration(model_before(request.getfixturevalue(task)))
    found = gauss_newton(given, ["audio"])
    call = Output(given.network)
    parameters = {f"network.{name}": p.detach() for name, p in given.network.named_parameters()}
    batch = next(iter(given.batches(hidden=["audio"])))
    labels = batch["labels:"]

    def output(values: dict[str, torch.Tensor], row: dict[str, torch.Tensor]) -> torch.Tensor:
        rows = {name: value[None] for name, value in row.items() if ":" not in name}
        return functional_call(call, values, (rows,))[0]  # type: ignore[no-any-return]

    jacobians = vmap(jacrev(output), in_dims=(None, 0))(parameters, dict(batch))
    z = vmap(output, in_dims=(None, 0))(parameters, dict(batch))
    if given.task == "regression":
        slope, hessian = 2 * (z - labels[:, None]), torch.full((len(z), 1, 1), 2.0, dtype=z.dtype)
    else:
        p = z.softmax(1)
        slope = p - torch.nn.functional.one_hot(labels, 3)
        hessian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    for name, parameter in given.network.named_parameters():
        j = jacobians[f"network.{name}"].flatten(2)
        g = torch.einsum("nk,nkq->q", slope, j) / len(z)
        h = torch.einsum("nkq,nkl,nlq->q", j, hessian, j) / len(z)
        w = parameter.detach().flatten()
        expected = (-w * g + w**2 / 2 * h).numpy()
        assert found[name].ravel() == pytest.approx(expected, rel=1e-8, abs=1e-13)


def test_swiftprune_is_the_formula_of_the_paper(model_workspace: Path) -> None:
    given = calibration(model_before(model_workspace))
    found = swiftprune(given, ["audio"], 0.99)
    batch = next(iter(given.batches(hidden=["audio"])))
    inputs = {m: batch[m] for m in ("text", "audio", "visual")}
    inputs["audio"] = given.network.generate("audio", inputs)
    x = torch.cat(list(inputs.values()), dim=1).numpy()
    weight = model_before(model_workspace).tensors["fusion.hidden.weight"].astype(np.float64)
    chi = (x**2).sum(0) / ((x**2).sum() + len(x))
    assert found["fusion.hidden.weight"] == pytest.approx(weight**2 / 2 / (1 - chi), rel=1e-9)
    bias = model_before(model_workspace).tensors["fusion.hidden.bias"].astype(np.float64)
    share = len(x) / ((x**2).sum() + len(x))
    assert found["fusion.hidden.bias"] == pytest.approx(bias**2 / 2 / (1 - share), rel=1e-9)
    unused = "modality.text.decomposition.hidden.weight"
    assert found[unused] == pytest.approx(model_before(model_workspace).tensors[unused].astype(np.float64) ** 2 / 2)
    assert max(float(values.max()) for values in activation_ratios(given, ["audio"]).values()) > 0.01
    heads = (swiftprune(given, ["audio"], chi_max)["head.weight"] for chi_max in (0.01, 0.99))
    assert (next(heads) < next(heads)).any()


def increments(given: JointCalibration, name: str, positions: Array) -> Array:
    """What the loss without audio grows by when one weight becomes zero, for some weights of a tensor."""
    batch, losses = next(iter(given.batches(hidden=["audio"]))), given.prediction(["audio"])
    flat, found = given.network.get_parameter(name).view(-1), []
    with torch.no_grad():
        base = losses(given.network, batch)[:, 0].mean()
        for q in positions:
            old = flat[q].clone()
            flat[q] = 0
            found.append(float(losses(given.network, batch)[:, 0].mean() - base))
            flat[q] = old
    return np.array(found)


def test_gauss_newton_is_exact_where_the_output_is_linear(model_workspace: Path) -> None:
    given = calibration(model_before(model_workspace))
    found = gauss_newton(given, ["audio"])
    for name in ("linear.weight", "modality.text.beside.weight"):
        every = np.arange(given.network.get_parameter(name).numel())
        assert found[name].ravel() == pytest.approx(increments(given, name, every), rel=1e-6, abs=1e-12)


def test_gauss_newton_ranks_true_increments_and_swiftprune_does_not(tmp_path: Path) -> None:
    """Of networks alone: a linear map beside them leaves them errors that they were not trained on."""
    given = calibration(model_before(home_with_models(tmp_path, *LONGER, "model.joint.linear_share=0")))
    name = "fusion.hidden.weight"
    positions = stream(0, "test").choice(given.network.fusion.hidden.weight.numel(), 150, replace=False)
    true = increments(given, name, positions)
    second, first = gauss_newton(given, ["audio"], [name]), swiftprune(given, ["audio"], 0.99, [name])
    ranks = [stats.spearmanr(proxy[name].ravel()[positions], true).statistic for proxy in (second, first)]
    assert ranks[0] > 0.95
    assert ranks[1] < 0.8


def test_the_parameter_chooses_and_only_what_is_asked_for_is_measured(model_workspace: Path) -> None:
    given, name = calibration(model_before(model_workspace)), "head.weight"
    chosen = {
        kind: importance(given, ["audio"], SurgerySettings.model_validate({"importance": kind}), [name])
        for kind in ("swiftprune", "gauss_newton")
    }
    assert chosen["swiftprune"].keys() == chosen["gauss_newton"].keys() == {name}
    assert np.array_equal(chosen["swiftprune"][name], swiftprune(given, ["audio"], 0.99)[name])
    assert np.array_equal(chosen["gauss_newton"][name], gauss_newton(given, ["audio"], [name])[name])


def test_rows_that_are_left_with_nothing_have_no_say(tmp_path: Path) -> None:
    some, none = ([*range(6)], [*range(12)])
    given = calibration(model_before(patchy_home(tmp_path, {"text": none, "visual": some})))
    assert sum(len(batch["labels:"]) for batch in given.batches(hidden=["audio"])) == 6
    assert np.isfinite(gauss_newton(given, ["audio"])["head.weight"]).all()
    for kind in ("swiftprune", "gauss_newton"):
        with pytest.raises(DataError, match="any of the retained modalities"):
            importance(given, ["audio", "visual"], SurgerySettings.model_validate({"importance": kind}))
