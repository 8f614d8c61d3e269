"""Which models an evaluation is about, and whether they belong together."""

from pathlib import Path

import pytest

from mbd.errors import DataError, UsageError
from mbd.evaluation.candidates import method_names, open_candidates, shared_data
from tests.evaluation.models import tiny_model
from tests.features.build import synthetic_set
from tests.refusals import refused


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workshop")
    synthetic_set(folder / "data")
    for seed in (0, 10, 2):
        tiny_model(folder / "data", folder / "joint" / f"seed-{seed}", f"training.seed={seed}")
    tiny_model(folder / "data", folder / "without_audio", without=("audio",))
    tiny_model(folder / "data", folder / "without_text", without=("text",))
    return folder


def test_a_method_is_named_by_as_much_of_its_path_as_it_takes(tmp_path: Path) -> None:
    assert method_names([tmp_path / "a" / "joint", tmp_path / "a" / "lattice"]) == ["joint", "lattice"]
    assert method_names([tmp_path / "a" / "model", tmp_path / "b" / "model"]) == ["a/model", "b/model"]
    with refused(UsageError, key="--model"):
        method_names([tmp_path / "a", tmp_path / "b" / ".." / "a"])


def test_seeds_are_found_and_sorted(workshop: Path) -> None:
    several, single = open_candidates([workshop / "joint", workshop / "without_audio"])
    assert list(several.models) == ["0", "2", "10"]
    assert several.folders["10"] == workshop / "joint" / "seed-10"
    assert list(single.models) == ["0"]


def test_all_are_judged_on_what_every_model_takes(workshop: Path) -> None:
    folders = [workshop / "joint", workshop / "without_audio"]
    data, left_out = shared_data(workshop / "data", open_candidates(folders))
    assert (tuple(data.modalities), left_out) == (("text", "visual"), ["audio"])
    data, left_out = shared_data(workshop / "data", open_candidates([*folders, workshop / "without_text"]))
    assert (tuple(data.modalities), left_out) == (("visual",), ["text", "audio"])


def test_models_without_a_modality_in_common_are_refused(workshop: Path, tmp_path: Path) -> None:
    data = synthetic_set(tmp_path / "two", "features.source.synthetic.dims={text: 12, audio: 6}")
    text, audio = (
        tiny_model(data, tmp_path / name, without=(other,)) for name, other in (("t", "audio"), ("a", "text"))
    )
    with refused(DataError, value="t: text; a: audio"):
        shared_data(data, open_candidates([text, audio]))


def test_an_empty_folder_is_no_model(tmp_path: Path) -> None:
    with refused(DataError, file=tmp_path):
        open_candidates([tmp_path])


def test_seeds_of_different_kinds_are_no_method(workshop: Path, tmp_path: Path) -> None:
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "seed-0").symlink_to(workshop / "joint" / "seed-0")
    (tmp_path / "mixed" / "seed-1").symlink_to(workshop / "without_audio")
    with refused(DataError, value="joint on text, audio, visual; joint on text, visual"):
        open_candidates([tmp_path / "mixed"])


def test_one_seed_twice_is_no_second_sample(workshop: Path, tmp_path: Path) -> None:
    (tmp_path / "twice").mkdir()
    for name in ("seed-0", "seed-1"):
        (tmp_path / "twice" / name).symlink_to(workshop / "joint" / "seed-0")
    with refused(DataError, value="0, 0"):
        open_candidates([tmp_path / "twice"])
