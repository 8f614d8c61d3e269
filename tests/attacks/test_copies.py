"""A training row that lies in the weights is found, and nothing is found where there is none."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mbd.attacks import copies
from mbd.attacks.attack import AttackEvidence
from mbd.attacks.context import AttackContext, make_context
from mbd.attacks.gate import GateFinding, judge_attacks
from mbd.attacks.target_model import Role, TargetModel
from mbd.features.contract import FeatureSet
from mbd.params.deletion import AttacksSettings
from mbd.tensors import Array
from tests.attacks.gate_table import WIDTHS, write_data
from tests.attacks.models import target_of

PARAMS = AttacksSettings(resamples=200)


@pytest.fixture(scope="module", params=["vectors", "sequences"])
def attack_context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AttackContext:
    """Attacks on audio that is wider than what surrounds it in the model."""
    data = write_data(tmp_path_factory.mktemp("copies") / "data", request.param)
    return make_context(FeatureSet.open(data), "audio", PARAMS)


@pytest.fixture
def target(model_workspace: Path) -> TargetModel:
    return target_of(model_workspace, "reference")


def training_rows(attack_context: AttackContext) -> Array:
    rows: Array = attack_context.data.split("train").load().features["audio"].reshape(-1, WIDTHS["audio"])
    return rows


def noise(*shape: int, seed: int = 1) -> Array:
    return 0.1 * np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def is_refused(bank: Array, attack_context: AttackContext, target: TargetModel, **others: Array) -> bool:
    """Whether the gate refuses a model with a bank, where the reference has noise in its place."""
    after, reference = (
        replace(target, tensors={**target.tensors, **others, "bank": x}) for x in (bank, noise(*bank.shape, seed=2))
    )
    found: dict[Role, AttackEvidence] = {
        "after": copies.attack(after, attack_context)[0],
        "reference": copies.attack(reference, attack_context)[0],
    }
    (record,) = judge_attacks([GateFinding("audio", "as released", found)], PARAMS)
    return record.decision == "refused"


def test_a_bank_of_training_rows_is_refused(attack_context: AttackContext, target: TargetModel) -> None:
    rows = training_rows(attack_context)
    assert is_refused(rows[:32], attack_context, target)
    assert is_refused(np.ascontiguousarray(rows[:32].T), attack_context, target)
    assert is_refused((rows[:32] - rows.mean(0)) / rows.std(0) / 7, attack_context, target)


def test_a_bank_of_rows_of_all_modalities_side_by_side_is_refused(
    attack_context: AttackContext, target: TargetModel
) -> None:
    audio, others = training_rows(attack_context)[:32], noise(32, WIDTHS["text"])
    assert is_refused(np.concatenate([others, audio], axis=1), attack_context, target)
    assert is_refused(np.concatenate([audio, others, others], axis=1).T.copy(), attack_context, target)


def test_where_rows_of_many_modalities_lie_side_by_side_has_few_answers() -> None:
    features = {f"m{number}": np.zeros((1, 8 + number**2), np.float32) for number in range(16)}
    data = SimpleNamespace(split=lambda _: SimpleNamespace(features=features))
    wide: Array = np.zeros((2, sum(x.shape[1] for x in features.values())), np.float32)
    parts = copies._parts_of_several(
        cast(Any, SimpleNamespace(data=data, modality="m5")), {"all": wide, "w": wide[:, :600]}
    )
    start = sum(features[f"m{number}"].shape[1] for number in range(5))
    assert list(parts) == [f"all, axis 1 from {start}"]
    assert np.shares_memory(parts[f"all, axis 1 from {start}"], wide)


def test_a_single_rounded_row_among_other_weights_is_refused(
    attack_context: AttackContext, target: TargetModel
) -> None:
    bank = noise(64, WIDTHS["audio"])
    bank[17] = training_rows(attack_context)[5].astype(np.float16)
    assert is_refused(bank, attack_context, target)


def test_rows_that_a_map_in_the_model_has_projected_are_refused(
    attack_context: AttackContext, target: TargetModel
) -> None:
    projection = noise(40, WIDTHS["audio"])
    bank = training_rows(attack_context)[:32] @ projection.T
    assert is_refused(bank, attack_context, target, projection=projection)


def test_a_copy_is_refused_whatever_narrow_vectors_of_the_reference_match_by_chance(
    attack_context: AttackContext, target: TargetModel
) -> None:
    rows = training_rows(attack_context)
    for seed in range(6):
        narrow = noise(8, WIDTHS["audio"], seed=seed)
        assert is_refused(rows[:32] @ narrow.T, attack_context, target, narrow=narrow)
        assert is_refused(rows[:32].reshape(4, 8, -1), attack_context, target, narrow=narrow)


def test_weights_without_a_row_pass(attack_context: AttackContext, target: TargetModel) -> None:
    width = WIDTHS["audio"]
    assert not any(is_refused(noise(64, width, seed=seed), attack_context, target) for seed in range(3, 23))
    assert not is_refused(np.full((8, width), np.nan, np.float32), attack_context, target)
    assert not is_refused(np.zeros((8, width), np.float32), attack_context, target)


def test_held_out_rows_pass(attack_context: AttackContext, target: TargetModel) -> None:
    held_out = attack_context.rows.features["audio"].reshape(-1, WIDTHS["audio"])[:1]
    assert not is_refused(held_out + noise(*held_out.shape), attack_context, target)


def test_a_row_of_a_large_training_set_is_found_as_well(tmp_path: Path, target: TargetModel) -> None:
    """As in a codebook of few rows from the first batch."""
    data = FeatureSet.open(write_data(tmp_path / "data", "vectors", train=20_000))
    attack_context = make_context(data, "audio", PARAMS)
    for row in (0, 7_000, 19_999):
        bank = noise(64, WIDTHS["audio"])
        bank[5] = training_rows(attack_context)[row]
        assert is_refused(bank, attack_context, target)
