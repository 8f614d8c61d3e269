"""Proxy quality: true increments are those of really removing a parameter, and the numbers are the paper's."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mbd.deletion.calibration import JointCalibration
from mbd.tensors import Array
from studies.leave_one_out import ProxyQuality, leave_one_out, measure, spearman
from tests.deletion.models import calibration, home_with_models, model_before


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_models(tmp_path_factory.mktemp("home"), "training.epochs=12")


def loss_of(given: JointCalibration, hidden: tuple[str, ...]) -> Callable[[], Tensor]:
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
    network = given.network
    loss, parameter = loss_of(given, ("audio",)), network.get_parameter(name)
    positions = np.unique(np.linspace(0, parameter.numel() - 1, 5).astype(np.int64))
    found = leave_one_out(network, loss, name, positions)
    whole = loss()
    for position, increment in zip(positions.tolist(), found, strict=True):
        kept = parameter.view(-1)[position].clone()
        parameter.view(-1)[position] = 0
        assert float(loss() - whole) == pytest.approx(float(increment), abs=1e-12)
        parameter.view(-1)[position] = kept


def measured(model_workspace: Path, parameters: int, edited: Mapping[str, Array] | None = None) -> ProxyQuality:
    given = calibration(model_before(model_workspace), torch.float32)
    return measure(given, ("audio",), 0.99, 0, edited, parameters)


def test_the_second_order_proxy_ranks_and_the_papers_does_not(model_workspace: Path) -> None:
    facts = measured(model_workspace, 200).facts()
    assert facts["parameters"] == 200
    assert facts["gauss_newton"]["spearman"] > 0.9 > facts["swiftprune"]["spearman"]
    assert facts["gauss_newton"]["share_within_8_percent"] > facts["swiftprune"]["share_within_8_percent"]
    assert facts == measured(model_workspace, 200).facts()


def test_proxies_and_increments_are_of_the_same_rows(model_workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("studies.leave_one_out._ROWS", 16)
    found = measured(model_workspace, 100)
    assert (found.rows, len(found.tensors)) == (16, 100)
    assert found.facts()["gauss_newton"]["spearman"] > 0.9


def test_a_sample_can_be_of_what_is_edited(model_workspace: Path) -> None:
    found = measured(model_workspace, 30, {"modality.audio.generator.out.weight": np.arange(40)})
    assert (found.sampled_from, len(found.increments)) == ("edited parameters", 30)


def test_the_numbers_of_the_table_by_hand() -> None:
    increments = np.array([1.0, 2.0, 3.0, 4.0])
    facts = ProxyQuality(increments, {"swiftprune": np.array([1.05, 2.5, 2.0, 4.0])}, 1, "x", 0.99).facts()
    assert facts["swiftprune"] == {
        "spearman": pytest.approx(0.8),
        "share_within_8_percent": 0.5,
        "largest_relative_error": 0.5,
        "overdelete_0.1": 0.25,
    }


def test_a_side_that_does_not_vary_has_no_rank_correlation() -> None:
    assert spearman(np.arange(5.0), np.ones(5)) is None
