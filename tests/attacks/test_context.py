"""The attacked rows and their halves."""

from pathlib import Path

import numpy as np
import pytest

from mbd.attacks.context import make_context
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.params.deletion import AttacksSettings
from tests.attacks.models import context_of
from tests.features.build import small_rows
from tests.refusals import refused
from tests.training.build import joint_data, open_set, rewritten


def test_no_group_is_in_both_halves(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    groups = attack_context.rows.groups
    assert not set(groups[attack_context.fit]) & set(groups[attack_context.score])
    assert len(attack_context.fit) + len(attack_context.score) == len(attack_context.rows) == 480
    assert abs(len(attack_context.fit) - len(attack_context.score)) <= 32
    folds = [set(groups[attack_context.fit][attack_context.folds == fold]) for fold in range(4)]
    assert sum(map(len, folds)) == len(set.union(*folds)) == len(set(groups[attack_context.fit]))


def test_halves_depend_on_the_seed_alone(model_workspace: Path) -> None:
    one, same, other = context_of(model_workspace), context_of(model_workspace), context_of(model_workspace, seed=1)
    assert one.fit.tolist() == same.fit.tolist() != other.fit.tolist()


def test_every_attacked_row_has_the_modality_and_something_else(tmp_path: Path) -> None:
    attack_context = make_context(
        open_set(joint_data(tmp_path / "data", missing=0.4)), "audio", AttacksSettings(splits=("train",))
    )
    assert 0 < len(attack_context.rows) < 107
    assert attack_context.rows.available["audio"].all()
    assert (attack_context.rows.available["text"] | attack_context.rows.available["visual"]).all()
    assert len(attack_context.train_rows(np.random.default_rng(0))) == len(attack_context.rows)


def test_a_modality_that_is_deleted_as_well_is_closed(model_workspace: Path) -> None:
    attack_context = make_context(
        FeatureSet.open(model_workspace / "data"), "audio", AttacksSettings(), retained=("text",)
    )
    assert attack_context.retained == ("text",)
    assert not attack_context.rows.available["visual"].any()
    assert not attack_context.rows.features["visual"].any()
    assert list(attack_context.known) == ["input.text"]


def test_rows_of_several_splits_up_to_a_number(model_workspace: Path) -> None:
    assert len(context_of(model_workspace, splits=("valid", "test")).rows) == 544
    assert len(context_of(model_workspace, rows=100).rows) == 100


def test_too_few_rows_are_no_audit(model_workspace: Path) -> None:
    with refused(DataError, key="attacks.least_rows"):
        context_of(model_workspace, rows=30)
    assert len(context_of(model_workspace, rows=30, least_rows=5).score) < 20


def test_the_own_part_of_a_modality_is_what_the_others_do_not_tell(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = small_rows("test", 400)
    shared, own = rows.features["text"][:, :1], rng.standard_normal((400, 1))
    output = {**rows.features, "audio": np.hstack([shared, shared + own, own]).astype(np.float32)}
    split = type(rows)(rows.ids, rows.groups, rows.labels, output, rows.available, {"audio": own[:, 0] > 0})
    data = rewritten(tmp_path / "data", {"train": split, "test": split})
    attack_context = make_context(FeatureSet.open(data), "audio", AttacksSettings())
    variances = attack_context.own[attack_context.score].var(0)
    assert variances == pytest.approx([0, 0.5, 1], abs=0.25)


def test_what_cannot_be_attacked_is_refused(model_workspace: Path, tmp_path: Path) -> None:
    with refused(UsageError, key="modality"):
        context_of(model_workspace, "smell")
    with pytest.raises(UsageError, match="only modality"):
        make_context(FeatureSet.open(model_workspace / "data", without=("text", "visual")), "audio", AttacksSettings())
    with pytest.raises(DataError, match="only 4 rows"):
        context_of(model_workspace, rows=4)
    rows = small_rows("test", 40)
    same = type(rows)(rows.ids, rows.groups, rows.labels, rows.features, rows.available, {"audio": np.ones(40, int)})
    data = rewritten(tmp_path / "data", {"train": same, "test": same})
    with pytest.raises(DataError, match="only one value"):
        make_context(FeatureSet.open(data), "audio", AttacksSettings())
