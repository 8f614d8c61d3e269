"""A model and data that do not belong together are refused, with what differs."""

from pathlib import Path

import pytest

from mbd.errors import DataError
from mbd.formats.model import ModelRecord
from mbd.model.checkpoint import load_model
from mbd.model.compatible import open_for, refuse_foreign
from tests.evaluation.models import as_revoked, tiny_model
from tests.features.build import synthetic_set
from tests.refusals import refused, refused_as_no_modality, refused_as_revoked

CLASSES = ("features.source.synthetic.classes=3",)


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    synthetic_set(folder / "data")
    tiny_model(folder / "data", folder / "model")
    as_revoked(tiny_model(folder / "data", folder / "silent", without=("audio",)), folder / "revoked", "audio")
    return folder


def record(folder: Path) -> ModelRecord:
    return load_model(folder)[0]


def test_data_opens_with_the_modalities_of_the_model_only(model_workspace: Path) -> None:
    assert tuple(open_for(record(model_workspace / "model"), model_workspace / "data").modalities) == (
        "text",
        "audio",
        "visual",
    )
    revoked = open_for(record(model_workspace / "revoked"), model_workspace / "data")
    assert tuple(revoked.modalities) == ("text", "visual")
    assert not any("audio" in name for name in revoked.digests())


def test_data_whose_revoked_modality_is_gone_still_opens(model_workspace: Path, tmp_path: Path) -> None:
    two = synthetic_set(tmp_path / "two", "features.source.modalities=[text, visual]")
    assert tuple(open_for(record(model_workspace / "revoked"), two).modalities) == ("text", "visual")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (CLASSES, "made for regression, and the data for classification"),
        (
            ["features.source.synthetic.dims={text: 12, audio: 7, visual: 8}"],
            "audio with 6 columns, and the data has 7",
        ),
        (["features.source.modalities=[text, visual]"], "the data has no audio: only text, visual"),
    ],
)
def test_other_data_is_refused(model_workspace: Path, tmp_path: Path, settings: list[str], says: str) -> None:
    other = synthetic_set(tmp_path / "other", *settings)
    with pytest.raises(DataError, match=says):
        open_for(record(model_workspace / "model"), other)


def test_other_classes_are_refused(tmp_path: Path) -> None:
    model = tiny_model(synthetic_set(tmp_path / "three", *CLASSES), tmp_path / "model")
    four = synthetic_set(tmp_path / "four", "features.source.synthetic.classes=4")
    with refused(DataError, value="model class0, class1, class2; data class0, class1, class2, class3"):
        open_for(record(model), four)


def test_a_revoked_and_an_unknown_modality_are_refused_by_name(model_workspace: Path) -> None:
    refuse_foreign(record(model_workspace / "revoked"), ["text", "visual"])
    with refused_as_revoked("audio"):
        refuse_foreign(record(model_workspace / "revoked"), ["text", "audio"])
    with refused_as_no_modality("smell"):
        refuse_foreign(record(model_workspace / "revoked"), ["smell"])
