"""Proxy quality: true increments are those of really removing a parameter, and the numbers are the paper's."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from mbd.attacks import proxy
from mbd.attacks.audit_input import open_audit
from mbd.attacks.proxy import ProxyQuality, leave_one_out, proxy_quality, spearman
from mbd.deletion.calibration import Calibration
from mbd.model.networks import JointNetwork
from mbd.params import load_params
from mbd.params.attacks import AttacksSettings
from mbd.steps import delete
from tests.deletion.models import calibration, model_before
from tests.evaluation.models import TINY


def loss_of(given: Calibration, hidden: tuple[str, ...]) -> Callable[[], Tensor]:
    batch, losses = next(iter(given.batches(hidden=hidden))), given.prediction(hidden)

    def loss() -> Tensor:
        return losses(given.network, batch)[:, 0].mean()

    return loss


@pytest.mark.parametrize(
    "name",
    ["fusion.hidden.weight", "fusion.hidden.bias", "fusion.out.weight", "head.weight", "head.bias"]
    + [f"modality.audio.generator.{part}" for part in ("hidden.weight", "out.weight", "out.bias")],
)
@torch.inference_mode()
def test_an_increment_is_what_removing_the_parameter_costs(model_workspace: Path, name: str) -> None:
    given = calibration(model_before(model_workspace))
    network: JointNetwork = given.network
    loss, parameter = loss_of(given, ("audio",)), network.get_parameter(name)
    positions = np.unique(np.linspace(0, parameter.numel() - 1, 5).astype(np.int64))
    found = leave_one_out(network, loss, name, positions)
    whole = loss()
    for position, increment in zip(positions.tolist(), found, strict=True):
        kept = parameter.view(-1)[position].clone()
        parameter.view(-1)[position] = 0
        assert float(loss() - whole) == pytest.approx(float(increment), abs=1e-12)
        parameter.view(-1)[position] = kept


def quality(model_workspace: Path, after: Path, **settings: object) -> ProxyQuality | None:
    audit = open_audit(
        model_workspace / "data", model_workspace / "model", after, model_workspace / "reference", ["audio"]
    )
    return proxy_quality(audit, AttacksSettings.model_validate(settings))


def test_the_second_order_proxy_ranks_and_the_papers_does_not(model_workspace: Path) -> None:
    found = quality(model_workspace, model_workspace / "deleted", proxy_parameters=200)
    assert found
    facts = found.facts()
    assert facts["parameters"] == 200
    assert facts["gauss_newton"]["spearman"] > 0.9 > facts["swiftprune"]["spearman"]
    assert facts["gauss_newton"]["share_within_8_percent"] > facts["swiftprune"]["share_within_8_percent"]
    assert facts == quality(model_workspace, model_workspace / "deleted", proxy_parameters=200).facts()  # type: ignore[union-attr]


def test_proxies_and_increments_are_of_the_same_rows(model_workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "_ROWS", 16)
    found = quality(model_workspace, model_workspace / "deleted", proxy_parameters=100)
    assert found
    assert (found.rows, len(found.tensors)) == (16, 100)
    assert found.facts()["gauss_newton"]["spearman"] > 0.9


def test_without_the_cut_the_sample_is_of_what_was_edited(model_workspace: Path, tmp_path: Path) -> None:
    params = load_params(None, [*TINY, "deletion.surgery.cut=false"])
    delete.run(params, model_workspace / "data", model_workspace / "model", ["audio"], [], tmp_path / "out")
    found = quality(model_workspace, tmp_path / "out", proxy_parameters=30)
    assert found
    assert (found.sampled_from, len(found.increments)) == ("edited parameters", 30)


def test_nothing_is_measured_where_nothing_is_asked_or_there_was_no_surgery(model_workspace: Path) -> None:
    assert quality(model_workspace, model_workspace / "deleted", proxy_parameters=0) is None
    assert quality(model_workspace, model_workspace / "reference") is None


def test_the_numbers_of_the_table_by_hand() -> None:
    increments = np.array([1.0, 2.0, 3.0, 4.0])
    facts = ProxyQuality(increments, {"swiftprune": np.array([1.05, 2.5, 2.0, 4.0])}, 1, "x", 0.99).facts()
    assert facts["swiftprune"] == {
        "spearman": pytest.approx(0.8),
        "share_within_8_percent": 0.5,
        "largest_relative_error": 0.5,
        "overdelete_0.1": 0.25,
    }


def test_ranks_with_equals_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 4, 50), rng.integers(0, 4, 50)
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert spearman(one, np.ones(50)) is None
