"""Which models are refused before anything is attacked."""

from pathlib import Path

import pytest

from mbd.attacks.case import open_case
from mbd.errors import DataError, MbdError, UsageError
from mbd.model.checkpoint import load_model, save_model
from tests.attacks import evil, models
from tests.deletion.models import home_with_models


def opened(home: Path, *modalities: str, **folders: Path) -> None:
    places = {"features": home / "data", "before": home / "model", "after": home / "deleted"}
    places |= {"reference": home / "reference"} | folders
    open_case(places["features"], places["before"], places["after"], places["reference"], modalities or ("audio",))


def test_models_that_belong_together_are_opened(home: Path) -> None:
    case = open_case(home / "data", home / "model", home / "deleted", home / "reference", ["audio"])
    assert (case.gone, case.retained) == (("audio",), ("text", "visual"))
    assert case.after.deletion is not None
    assert case.reference.deletion is None


@pytest.mark.parametrize(
    ("part", "model", "message", "kind"),
    [
        ("reference", "model", "the reference has seen audio", DataError),
        ("reference", "deleted", "the reference has seen audio", DataError),
        ("before", "deleted", "was revoked", UsageError),
        ("before", "reference", "has no modality audio", UsageError),
    ],
)
def test_a_model_in_the_wrong_place_is_named(
    home: Path, part: str, model: str, message: str, kind: type[MbdError]
) -> None:
    with pytest.raises(kind, match=message):
        opened(home, **{part: home / model})


def test_modalities_must_be_those_that_were_deleted(home: Path) -> None:
    with pytest.raises(UsageError, match="has no modality smell"):
        opened(home, "smell")
    with pytest.raises(UsageError, match="was one of audio"):
        opened(home, "audio", "visual")
    with pytest.raises(UsageError, match="was one of audio"):
        opened(home, "visual")
    with pytest.raises(UsageError, match="no modality is left"):
        opened(home, "audio", "visual", "text")


def test_models_of_other_data_are_refused(home: Path, tmp_path: Path) -> None:
    other = home_with_models(tmp_path / "other")
    with pytest.raises(DataError, match=r"the model takes text|made from other data"):
        opened(home, features=other / "data")
    with pytest.raises(DataError, match="made from other data"):
        opened(home, after=other / "model")


def test_a_reference_with_other_parameters_is_none(home: Path, tmp_path: Path) -> None:
    record, tensors = load_model(home / "reference")
    (tmp_path / "r").mkdir()
    save_model(tmp_path / "r", record.model_copy(update={"spec": {**record.spec, "dropout": 0.1}}), tensors)
    with pytest.raises(DataError, match="other parameters"):
        opened(home, reference=tmp_path / "r")


def test_a_deletion_from_another_model_is_refused(home: Path, tmp_path: Path) -> None:
    record, tensors = load_model(home / "model")
    (tmp_path / "m").mkdir()
    save_model(tmp_path / "m", record, tensors | {"head.bias": tensors["head.bias"] + 1})
    with pytest.raises(DataError, match="was not made from the model before"):
        opened(home, before=tmp_path / "m")


def test_deletions_of_subjects_or_of_something_else_are_refused(home: Path, tmp_path: Path) -> None:
    subjects = evil.rewritten(home / "deleted", tmp_path / "s", "request", "subjects", value=["speaker"])
    with pytest.raises(UsageError, match="single subjects"):
        opened(home, after=subjects)
    visual = evil.rewritten(home / "deleted", tmp_path / "v", "request", "modalities", value=["visual"])
    with pytest.raises(UsageError, match="was one of visual"):
        opened(home, after=visual)


def test_models_of_another_backbone_are_refused(home: Path, tmp_path: Path) -> None:
    record, tensors = load_model(home / "deleted")
    (tmp_path / "c").mkdir()
    save_model(tmp_path / "c", record.model_copy(update={"backbone": "lattice"}), tensors)
    with pytest.raises(DataError, match="differ in backbone"):
        opened(home, after=tmp_path / "c")


def test_a_model_that_lost_a_retained_modality_is_refused(home: Path, tmp_path: Path) -> None:
    record, tensors = load_model(models.uncut(home, tmp_path / "u"))
    (tmp_path / "v").mkdir()
    save_model(tmp_path / "v", record.model_copy(update={"revoked": ("audio", "visual")}), tensors)
    with pytest.raises(DataError, match="takes no visual"):
        opened(home, after=tmp_path / "v")
