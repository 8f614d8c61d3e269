"""A lattice in closed form, trained in parts: joined it has the bytes of one training."""

from pathlib import Path

import pytest

from mbd.errors import DataError
from mbd.files import STEP_FILE, read_json, to_json
from mbd.model.checkpoint import load_model
from mbd.params import Params, load_params
from mbd.steps import train as steps_train
from mbd.training import lattice
from mbd.training.trained import Part
from tests.digests import path_digest
from tests.features.build import synthetic_set

SMALL = ("model.backbone=lattice", "model.lattice.components=6", "model.lattice.landmarks=16")


def params_of(*settings: str) -> Params:
    return load_params(None, [*SMALL, *settings])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_set(tmp_path_factory.mktemp("parts") / "set", "features.source.synthetic.classes=3")


@pytest.fixture(scope="module")
def parts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same lattice in three parts, as three machines train them."""
    folder = tmp_path_factory.mktemp("parts")
    for number in (1, 2, 3):
        steps_train.run(params_of(), data, folder / str(number), part=Part(number, 3))
    return [folder / str(number) for number in (1, 2, 3)]


def test_every_module_is_in_one_part(parts: list[Path]) -> None:
    modules = [{name.split(".")[1] for name in load_model(part)[1] if name.startswith("module.")} for part in parts]
    assert sorted(map(len, modules)) == [2, 2, 3]
    assert len(set.union(*modules)) == 7


@pytest.mark.parametrize("without", [(), ("audio",)], ids=["model", "reference"])
def test_parts_joined_have_the_bytes_of_one_training_and_nothing_is_trained_again(
    data: Path, parts: list[Path], tmp_path: Path, without: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_train.run(params_of(), data, tmp_path / "one", without)
    monkeypatch.setattr(lattice, "_LatticeTraining", None)
    steps_train.run(params_of(), data, tmp_path / "joined", without, join=parts)
    assert path_digest(tmp_path / "joined") == path_digest(tmp_path / "one")


@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_what_the_parts_lack_is_trained(data: Path, parts: list[Path], tmp_path: Path, lacking: int) -> None:
    steps_train.run(params_of(), data, tmp_path / "one")
    given = [part for number, part in enumerate(parts) if number != lacking]
    steps_train.run(params_of("training.processes=2"), data, tmp_path / "joined", join=given)
    assert path_digest(tmp_path / "joined") == path_digest(tmp_path / "one")


def test_a_part_of_another_training_is_refused(data: Path, parts: list[Path], tmp_path: Path) -> None:
    other = synthetic_set(tmp_path / "other", "features.source.synthetic.classes=3", "features.seed=9")
    for features, setting, message in (
        (data, "training.seed=1", "its seed differs"),
        (data, "model.lattice.landmarks=8", "its architecture and training differ"),
        (other, "training.seed=0", "its data differs"),
    ):
        with pytest.raises(DataError, match="part is of another training") as refusal:
            steps_train.run(params_of(setting), features, tmp_path / "joined", join=parts)
        assert refusal.value.value == message
    assert not (tmp_path / "joined").exists()


def test_a_part_of_another_version_is_refused(data: Path, parts: list[Path], tmp_path: Path) -> None:
    steps_train.run(params_of(), data, tmp_path / "part", part=Part(1, 3))
    record = read_json(tmp_path / "part" / STEP_FILE)
    record["versions"]["numpy"] = "1.0"
    (tmp_path / "part" / STEP_FILE).write_text(to_json(record))
    with pytest.raises(DataError, match="trained by another version") as refusal:
        steps_train.run(params_of(), data, tmp_path / "joined", join=[tmp_path / "part", *parts[1:]])
    assert refusal.value.key == "versions.numpy"
