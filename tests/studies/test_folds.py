"""Settings of a backbone are compared by folds of train rows, whole groups at a time, without test rows."""

from pathlib import Path

import numpy as np
from click.testing import CliRunner

from mbd.features.contract import FeatureSet
from mbd.training.lattice import classes
from studies import folds
from tests.features.build import synthetic_set

SMALL = "model.joint.hidden=8 model.joint.embedding=8 model.joint.property_dim=8 training.epochs=1"


def test_folds_part_the_train_rows_by_whole_groups_and_valid_stays(tmp_path: Path) -> None:
    data = FeatureSet.open(synthetic_set(tmp_path / "set"))
    left_out = []
    for part in folds.folds_of(data, 3, tmp_path / "folds"):
        train, test = part.split("train"), part.split("test")
        assert not set(train.groups.tolist()) & set(test.groups.tolist())
        assert len(train) + len(test) == len(data.split("train"))
        assert np.array_equal(part.split("valid").ids, data.split("valid").ids)
        left_out += test.ids.tolist()
    assert sorted(left_out) == sorted(data.split("train").ids.tolist())


def test_every_setting_has_a_line_beside_ridge(tmp_path: Path) -> None:
    folder = synthetic_set(tmp_path / "set")
    for file in (folder / "splits" / "test").iterdir():
        file.unlink()  # choices must not read it
    tried = [f"{SMALL} model.joint.linear_share={share}" for share in (0, 1)]
    options = [word for line in tried for word in ("--try", line)]
    result = CliRunner().invoke(folds.main, [str(folder), "--folds", "2", *options], catch_exceptions=False)
    names = [line.split("|")[1].strip() for line in result.output.splitlines() if line.startswith("|")]
    assert names[2:] == ["ridge on train", "ridge on train and valid", *tried]
    assert " …" in result.output


def test_a_constant_of_the_lattice_is_another_one_for_one_line_alone(tmp_path: Path) -> None:
    folder = synthetic_set(tmp_path / "set", "features.source.synthetic.classes=3")
    before = classes._DISCOUNTS
    tried = ["", "@classes._DISCOUNTS=(1.0,)", "model.lattice.landmarks=64"]
    options = [word for line in tried for word in ("--try", line)]
    arguments = [str(folder), "--backbone", "lattice", "--folds", "2", "--beside", "first", *options]
    result = CliRunner().invoke(folds.main, arguments, catch_exceptions=False)
    lines = {line.split("|")[1].strip(): line.split("|")[2:] for line in result.output.splitlines() if "|" in line}
    assert lines["defaults"] == lines["model.lattice.landmarks=64"] != lines[tried[1]]
    assert classes._DISCOUNTS is before
