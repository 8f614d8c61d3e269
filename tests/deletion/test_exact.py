"""Exact deletion: equal, byte for byte, to a model that never saw what was deleted."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from mbd.deletion.exact import delete
from mbd.deletion.methods import ModelBefore
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.features.rows import Rows
from mbd.formats.deletion import DeletionTarget
from mbd.model.checkpoint import save_model
from mbd.model.lattice import from_tensors
from mbd.model.predictor import Model
from mbd.params import load_params
from mbd.tensors import Array
from mbd.training.joint import train_joint
from mbd.training.lattice import train_lattice, train_modules, training_rows
from mbd.training.trained import recorded_params
from tests.deletion.models import home_with_models
from tests.deletion.models import model_before as model_before_of
from tests.features.build import synthetic_set
from tests.refusals import refused, refused_as_revoked

SMALL = ["model.backbone=lattice", "model.lattice.components=6", "model.lattice.landmarks=16"]
PARAMS = load_params(None, SMALL)
NAMES = ("text", "audio", "visual")


def model_before(folder: Path, *without: str) -> ModelBefore:
    data = FeatureSet.open(folder, without=without)
    trained = train_lattice(data, PARAMS, work=folder, progress=False)
    return ModelBefore(trained.record, trained.tensors, data)


SKEWED = ("features.source.synthetic.classes=7", "features.source.synthetic.skew=0.8")


@pytest.fixture(scope="module", params=[(), SKEWED], ids=["regression", "classes"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelBefore:
    return model_before(synthetic_set(tmp_path_factory.mktemp("exact") / "set", *request.param))


@pytest.mark.parametrize("gone", [c for size in (1, 2) for c in combinations(NAMES, size)], ids="+".join)
def test_the_released_file_is_the_one_of_a_model_that_never_saw_it(
    whole: ModelBefore, gone: tuple[str, ...], tmp_path: Path
) -> None:
    outcome = delete(DeletionTarget(modalities=gone), whole, PARAMS)
    reference = model_before(whole.data.folder, *gone)
    records = []
    for name, record, tensors in (
        ("deleted", outcome.record, outcome.tensors),
        ("reference", reference.record, reference.tensors),
    ):
        (tmp_path / name).mkdir()
        records.append(save_model(tmp_path / name, record, tensors))
    assert records[0].sha256 == records[1].sha256
    output = {"revoked", "guarantee"}
    assert records[0].model_dump(exclude=output) == records[1].model_dump(exclude=output)
    assert outcome.record.guarantee.kind == "exact"
    assert outcome.record.guarantee.epsilon == 0


def test_deleting_twice_is_deleting_both(whole: ModelBefore) -> None:
    first = delete(DeletionTarget(modalities=("audio",)), whole, PARAMS)
    again = delete(DeletionTarget(modalities=("visual",)), ModelBefore(first.record, first.tensors, whole.data), PARAMS)
    both = delete(DeletionTarget(modalities=("audio", "visual")), whole, PARAMS)
    assert again.record == both.record
    assert {n: t.tobytes() for n, t in again.tensors.items()} == {n: t.tobytes() for n, t in both.tensors.items()}


def test_the_deleted_model_refuses_the_modality(whole: ModelBefore) -> None:
    outcome = delete(DeletionTarget(modalities=("audio",)), whole, PARAMS)
    model = Model(outcome.record, from_tensors(outcome.record, outcome.tensors))
    test = whole.data.split("test").load()
    with refused_as_revoked("audio"):
        model.predict({"audio": test.features["audio"]})
    retained = {m: test.features[m] for m in ("text", "visual")}
    before = Model(whole.record, from_tensors(whole.record, whole.tensors)).predict(retained)
    np.testing.assert_array_equal(model.predict(retained), before)


def first_subjects(of: ModelBefore) -> tuple[str, ...]:
    return tuple(np.unique(of.data.split("train").groups)[:3].tolist())


def without_recordings(rows: Rows, modality: str, subjects: tuple[str, ...]) -> Rows:
    theirs = np.isin(rows.groups, subjects)
    return replace(rows, available={**rows.available, modality: rows.available[modality] & ~theirs})


def bits(tensors: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


@pytest.mark.parametrize("modality", NAMES)
def test_forgetting_subjects_is_training_without_their_recordings(whole: ModelBefore, modality: str) -> None:
    subjects = first_subjects(whole)
    outcome = delete(DeletionTarget(modalities=(modality,), subjects=subjects), whole, PARAMS)
    rows = whole.data.split("train").load()
    assert bits(outcome.tensors) == bits(_trained(without_recordings(rows, modality, subjects), whole))
    changed = {n for n, t in outcome.tensors.items() if t.tobytes() != whole.tensors[n].tobytes()}
    assert changed
    assert all(modality in whole.record.tensors[name].sees for name in changed)
    assert outcome.facts["recordings_forgotten"] == np.isin(rows.groups, subjects).sum()


def test_subjects_of_valid_rows_are_forgotten_where_these_were_trained_on(whole: ModelBefore) -> None:
    both = load_params(None, [*SMALL, "model.lattice.splits=train+valid"])
    trained = train_lattice(whole.data, both, work=whole.data.folder, progress=False)
    subjects = (str(whole.data.split("valid").groups[0]),)
    before = ModelBefore(trained.record, trained.tensors, whole.data)
    outcome = delete(DeletionTarget(modalities=("audio",), subjects=subjects), before, both)
    rows = without_recordings(training_rows(whole.data, both.model.lattice), "audio", subjects)
    assert bits(outcome.tensors) == bits(_trained(rows, whole))
    assert bits(outcome.tensors) != bits(trained.tensors)
    unread = delete(DeletionTarget(modalities=("audio",), subjects=subjects), whole, PARAMS)
    assert bits(unread.tensors) == bits(whole.tensors)


def test_forgetting_subjects_and_deleting_modalities_go_in_any_order(whole: ModelBefore) -> None:
    subjects = first_subjects(whole)
    forgotten = delete(DeletionTarget(modalities=("audio",), subjects=subjects), whole, PARAMS)
    one = delete(
        DeletionTarget(modalities=("text",)), ModelBefore(forgotten.record, forgotten.tensors, whole.data), PARAMS
    )
    dropped = delete(DeletionTarget(modalities=("text",)), whole, PARAMS)
    retained = FeatureSet.open(whole.data.folder, without=("text",))
    other = delete(
        DeletionTarget(modalities=("audio",), subjects=subjects),
        ModelBefore(dropped.record, dropped.tensors, retained),
        PARAMS,
    )
    assert bits(one.tensors) == bits(other.tensors)
    assert one.record.tensors == other.record.tensors


def _trained(rows: Rows, like: ModelBefore) -> dict[str, Array]:
    classes = len(like.record.classes)
    return train_modules(rows, PARAMS.model.lattice, seed=PARAMS.training.seed, classes=classes)[0]


def test_a_subject_that_is_not_there_is_refused_and_not_named(whole: ModelBefore) -> None:
    with refused(DataError, key="--subject") as refusal:
        delete(DeletionTarget(modalities=("audio",), subjects=("unknown-person",)), whole, PARAMS)
    assert "unknown-person" not in str(refusal.value)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_no_weight_depends_on_a_subject_whom_training_has_not_read(whole: ModelBefore, split: str) -> None:
    subject = str(whole.data.split(split).groups[0])
    outcome = delete(DeletionTarget(modalities=("audio",), subjects=(subject,)), whole, PARAMS)
    assert bits(outcome.tensors) == bits(whole.tensors)
    assert outcome.facts["splits"] == [split]
    assert outcome.facts["recordings_forgotten"] > 0
    assert any("No number of the weights depends" in text for text in outcome.record.guarantee.assumptions)


def test_subjects_are_forgotten_in_one_modality_at_a_time(whole: ModelBefore) -> None:
    with refused(UsageError, key="--modality"):
        delete(DeletionTarget(modalities=("audio", "text"), subjects=("train-v0000",)), whole, PARAMS)


def test_a_joint_model_forgets_a_person_by_training_again(tmp_path: Path) -> None:
    before = model_before_of(home_with_models(tmp_path))
    subject = str(before.data.split("train").groups[0])
    outcome = delete(DeletionTarget(modalities=("audio",), subjects=(subject,)), before, PARAMS)
    (tmp_path / "retained").mkdir()
    leave_out(tmp_path / "data", tmp_path / "retained", {"audio": [subject]})
    own = recorded_params(before.record, PARAMS)
    again = train_joint(FeatureSet.open(tmp_path / "retained"), own, work=tmp_path / "work", progress=False)
    assert bits(outcome.tensors) == bits(again.tensors)
    assert bits(outcome.tensors) != bits(before.tensors)
    assert outcome.record.data == again.record.data
