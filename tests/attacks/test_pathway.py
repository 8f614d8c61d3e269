"""Anything that moves with m*'s input is found, by whatever way it gets in."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mbd.attacks import pathway
from mbd.attacks.context import AttackContext
from mbd.attacks.target_model import TargetModel
from mbd.model.checkpoint import load_model
from tests.attacks.models import blind_fusion, constant, context_of, noisy_input, renamed, target_of, uncut, untrained


def values(target_model: TargetModel, attack_context: AttackContext) -> list[float]:
    return [evidence.value for evidence in pathway.attack(target_model, attack_context)]


@pytest.mark.parametrize("name", ["deleted", "reference"])
def test_nothing_moves_in_a_model_without_the_modality(model_workspace: Path, name: str) -> None:
    assert values(target_of(model_workspace, name), context_of(model_workspace)) == [0, 0]


@pytest.mark.parametrize("made", [untrained, constant])
def test_a_useless_model_leaks_nothing(
    model_workspace: Path, tmp_path: Path, made: Callable[[Path, Path], Path]
) -> None:
    made(model_workspace, tmp_path / "useless")
    assert values(target_of(tmp_path, "useless"), context_of(model_workspace)) == [0, 0]


@pytest.mark.parametrize("made", [renamed, blind_fusion, noisy_input, uncut])
def test_a_deletion_that_is_none_is_seen(
    model_workspace: Path, tmp_path: Path, made: Callable[[Path, Path], Path]
) -> None:
    made(model_workspace, tmp_path / "false")
    share, size = values(target_of(tmp_path, "false"), context_of(model_workspace))
    assert share == 1
    assert size > 0.1


def test_a_single_column_that_still_reads_the_modality_is_enough(model_workspace: Path) -> None:
    record, tensors = load_model(model_workspace / "model")
    almost = {name: np.array(x) for name, x in tensors.items()}
    for name, entry in record.tensors.items():
        for part in entry.columns:
            if part.reads == "audio":
                almost[name][:, part.start : part.stop] = 0
    attack_context = context_of(model_workspace)
    blind = TargetModel.of("after", record, almost)
    assert values(blind, attack_context) == [0, 0]
    start = next(part.start for part in record.tensors["fusion.hidden.weight"].columns if part.reads == "audio")
    almost["fusion.hidden.weight"][:, start] = 0.01
    share, size = values(TargetModel.of("after", record, almost), attack_context)
    assert share > 0.9
    assert size > 0


def test_outputs_that_rows_share_up_to_rounding_do_not_move() -> None:
    still = np.full((50, 2, 1), 3.0, np.float32)
    still[:, 1, 0] = np.linspace(-1, 1, 50)
    noise = 1e-6 * np.random.default_rng(0).standard_normal(still.shape).astype(np.float32)
    assert not pathway._relative(still + noise, still - noise).any()
    assert pathway._relative(still, still + np.float32(0.5)).min() > 0.5
