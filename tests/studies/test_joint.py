"""Settings of the joint backbone are compared by folds of train rows, whole groups at a time, without test rows."""

from pathlib import Path

import numpy as np
from click.testing import CliRunner

from mbd.features.contract import FeatureSet
from studies import joint
from tests.features.build import synthetic_set

SMALL = "model.joint.hidden=8 model.joint.embedding=8 model.joint.property_dim=8 training.epochs=1"


def test_folds_part_the_train_rows_by_whole_groups_and_valid_stays(tmp_path: Path) -> None:
    data = FeatureSet.open(synthetic_set(tmp_path / "set"))
    left_out = []
    for part in joint.folds_of(data, 3, tmp_path / "folds"):
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
    result = CliRunner().invoke(joint.main, [str(folder), "--folds", "2", *options], catch_exceptions=False)
    names = [line.split("|")[1].strip() for line in result.output.splitlines() if line.startswith("|")]
    assert names[2:] == ["ridge on train", "ridge on train and valid", *tried]
    assert " …" in result.output
