"""Distances to a model that never saw the modality: over what both have, inside and outside the edited positions."""

from pathlib import Path

import numpy as np
import pytest

from mbd.deletion import exact, surgery
from mbd.deletion.cut import cut
from mbd.deletion.methods import ModelBefore
from mbd.deletion.reference import reference_distances
from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.params import load_params
from mbd.training.lattice import train_lattice
from tests.deletion.models import home_with_models, model_before
from tests.refusals import refused

LATTICE = load_params(None, ["model.lattice.components=4", "model.lattice.landmarks=8"])
AUDIO = DeletionTarget(modalities=("audio",))


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_models(tmp_path_factory.mktemp("home"))


def test_the_cut_model_is_compared_as_it_is(model_workspace: Path) -> None:
    before, silent = model_before(model_workspace), model_before(model_workspace, "silent")
    outcome = surgery.delete(AUDIO, before, load_params())
    found = reference_distances(before, outcome, silent.record, silent.tensors, ["audio"])
    _, tensors = cut(before.record, before.tensors, ["audio"])
    true = np.sqrt(sum(((tensors[n].astype(float) - w) ** 2).sum() for n, w in silent.tensors.items()))
    assert found["before"] == {"inside": 0, "outside": pytest.approx(true)}
    assert found["after"] == {"inside": 0, "outside": pytest.approx(true, rel=1e-2)}  # released numbers are rounded
    assert found["edited_without_counterpart"] == 0
    assert found["sha256"] == silent.record.sha256


def test_edits_in_what_the_reference_has_not_are_counted_and_touch_no_distance(model_workspace: Path) -> None:
    before, silent = model_before(model_workspace), model_before(model_workspace, "silent")
    outcome = surgery.delete(AUDIO, before, load_params(None, ["deletion.surgery.cut=false"]))
    found = reference_distances(before, outcome, silent.record, silent.tensors, ["audio"])
    assert found["edited_without_counterpart"] == outcome.facts["selection"]["chosen"] > 0
    assert found["after"]["inside"] == 0
    assert found["after"]["outside"] == found["before"]["outside"] > 0


def test_positions_are_found_again_behind_columns_that_went(model_workspace: Path) -> None:
    """An edit in a column of visual, listed in the coordinates of the uncut tensor."""
    before, silent = model_before(model_workspace), model_before(model_workspace, "silent")
    name, width = "fusion.hidden.weight", sum(before.record.modalities.values())
    position = 2 * width + before.record.modalities["text"] + before.record.modalities["audio"] + 1
    outcome = surgery.delete(AUDIO, before, load_params(None, ["deletion.surgery.cut=false"]))
    tensors = dict(before.tensors)
    flat = np.array(tensors[name]).ravel()
    flat[position] = 100
    tensors[name] = flat.reshape(before.tensors[name].shape)
    moved = outcome.__class__(outcome.record, tensors, {name: np.array([position])}, outcome.facts, outcome.phases)
    found = reference_distances(before, moved, silent.record, silent.tensors, ["audio"])
    narrow = silent.tensors[name]
    counterpart = narrow[2, before.record.modalities["text"] + 1]
    assert found["after"]["inside"] == pytest.approx(100 - float(counterpart), rel=1e-6)
    assert found["after"]["outside"] == pytest.approx(found["before"]["outside"], rel=1e-6)


def test_an_exact_deletion_is_at_no_distance(model_workspace: Path) -> None:
    models = []
    for without in ((), ("audio",)):
        data = FeatureSet.open(model_workspace / "data", without=without)
        trained = train_lattice(data, LATTICE, work=model_workspace, progress=False)
        models.append(ModelBefore(trained.record, trained.tensors, data))
    outcome = exact.delete(AUDIO, models[0], LATTICE)
    found = reference_distances(models[0], outcome, models[1].record, models[1].tensors, ["audio"])
    assert found["after"] == {"inside": 0, "outside": 0}


def test_a_model_that_saw_the_modality_is_no_reference(model_workspace: Path) -> None:
    before, silent = model_before(model_workspace), model_before(model_workspace, "silent")
    outcome = surgery.delete(AUDIO, before, load_params())
    for model, problem in ((before, "takes text"), (outcome, "trained on audio")):
        with refused(DataError, match=problem, key="--reference"):
            reference_distances(before, outcome, model.record, model.tensors, ["audio"])
    wide = {**silent.tensors, "head.weight": np.zeros((1, 99))}
    with refused(DataError, key="head.weight"):
        reference_distances(before, outcome, silent.record, wide, ["audio"])
