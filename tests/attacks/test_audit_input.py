"""Which models are refused before anything is attacked."""

from pathlib import Path

import pytest

from mbd.attacks.audit_input import open_audit
from mbd.errors import DataError, MbdError, UsageError
from mbd.model.checkpoint import load_model, save_model
from tests.attacks import defective_models, models
from tests.deletion.models import home_with_models
from tests.refusals import refused, refused_as_no_modality


def opened(model_workspace: Path, *modalities: str, **folders: Path) -> None:
    places = {
        "features": model_workspace / "data",
        "before": model_workspace / "model",
        "after": model_workspace / "deleted",
    }
    places |= {"reference": model_workspace / "reference"} | folders
    open_audit(places["features"], places["before"], places["after"], places["reference"], modalities or ("audio",))


def test_models_that_belong_together_are_opened(model_workspace: Path) -> None:
    audit = open_audit(
        model_workspace / "data",
        model_workspace / "model",
        model_workspace / "deleted",
        model_workspace / "reference",
        ["audio"],
    )
    assert (audit.gone, audit.retained) == (("audio",), ("text", "visual"))
    assert audit.after.deletion is not None
    assert audit.reference.deletion is None


@pytest.mark.parametrize(
    ("part", "model", "message", "kind"),
    [
        ("reference", "model", "the reference model was trained on audio", DataError),
        ("reference", "deleted", "the reference model was trained on audio", DataError),
        ("before", "deleted", "was revoked", UsageError),
        ("before", "reference", "has no modality audio", UsageError),
    ],
)
def test_a_model_in_the_wrong_place_is_named(
    model_workspace: Path, part: str, model: str, message: str, kind: type[MbdError]
) -> None:
    with pytest.raises(kind, match=message):
        opened(model_workspace, **{part: model_workspace / model})


def test_modalities_must_be_those_that_were_deleted(model_workspace: Path) -> None:
    with refused_as_no_modality("smell"):
        opened(model_workspace, "smell")
    with refused(UsageError, key="--modality", file=model_workspace / "deleted" / "deletion.json"):
        opened(model_workspace, "audio", "visual")
    with refused(UsageError, key="--modality", file=model_workspace / "deleted" / "deletion.json"):
        opened(model_workspace, "visual")
    with refused(UsageError, key="--modality", value="text, audio, visual", file=None):
        opened(model_workspace, "audio", "visual", "text")


def test_models_of_other_data_are_refused(model_workspace: Path, tmp_path: Path) -> None:
    other = home_with_models(tmp_path / "other")
    with refused(DataError, key="text", file=other / "data" / "manifest.json"):
        opened(model_workspace, features=other / "data")
    with refused(DataError, key="splits/train/_rows.safetensors", file=other / "model" / "model.json"):
        opened(model_workspace, after=other / "model")


def test_a_reference_with_other_parameters_is_none(model_workspace: Path, tmp_path: Path) -> None:
    record, tensors = load_model(model_workspace / "reference")
    (tmp_path / "r").mkdir()
    save_model(tmp_path / "r", record.model_copy(update={"spec": {**record.spec, "dropout": 0.1}}), tensors)
    with pytest.raises(DataError, match="other parameters"):
        opened(model_workspace, reference=tmp_path / "r")


def test_a_deletion_from_another_model_is_refused(model_workspace: Path, tmp_path: Path) -> None:
    record, tensors = load_model(model_workspace / "model")
    (tmp_path / "m").mkdir()
    save_model(tmp_path / "m", record, tensors | {"head.bias": tensors["head.bias"] + 1})
    with refused(DataError, key="before"):
        opened(model_workspace, before=tmp_path / "m")


def test_deletions_of_subjects_or_of_something_else_are_refused(model_workspace: Path, tmp_path: Path) -> None:
    subjects = defective_models.rewritten(
        model_workspace / "deleted", tmp_path / "s", "request", "subjects", value=["speaker"]
    )
    with refused(UsageError, key=None, value="speaker"):
        opened(model_workspace, after=subjects)
    visual = defective_models.rewritten(
        model_workspace / "deleted", tmp_path / "v", "request", "modalities", value=["visual"]
    )
    with refused(UsageError, key="--modality", file=visual / "deletion.json"):
        opened(model_workspace, after=visual)


def test_models_of_another_backbone_are_refused(model_workspace: Path, tmp_path: Path) -> None:
    record, tensors = load_model(model_workspace / "deleted")
    (tmp_path / "c").mkdir()
    save_model(tmp_path / "c", record.model_copy(update={"backbone": "lattice"}), tensors)
    with refused(DataError, key="backbone", file=tmp_path / "c" / "model.json"):
        opened(model_workspace, after=tmp_path / "c")


def test_a_model_that_lost_a_retained_modality_is_refused(model_workspace: Path, tmp_path: Path) -> None:
    record, tensors = load_model(models.uncut(model_workspace, tmp_path / "u"))
    (tmp_path / "v").mkdir()
    save_model(tmp_path / "v", record.model_copy(update={"revoked": ("audio", "visual")}), tensors)
    with pytest.raises(DataError, match="takes no visual"):
        opened(model_workspace, after=tmp_path / "v")
