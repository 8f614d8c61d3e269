"""Between steps travels a reference to the data, and what it leads to is checked."""

from pathlib import Path

import pytest

from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.files import canonical_digest, write_file
from mbd.kubeflow.data import SHARED_FOLDER, bring_features, feature_set
from mbd.params import Params, load_params

DATA = [
    "features.source.synthetic.dims={text: 4, audio: 3}",
    "features.source.synthetic.rows={train: 40, valid: 12, test: 12, calibration: 12}",
]


@pytest.fixture
def params() -> Params:
    return load_params(None, DATA)


def written(params: Params, folder: Path) -> Path:
    reference, _ = bring_features(params, folder / "made")
    write_file(folder / "reference.json", reference.to_json())
    return folder / "reference.json"


def test_a_step_gets_the_same_bytes_and_leaves_nothing(params: Params, tmp_path: Path) -> None:
    file = written(params, tmp_path)
    made = FeatureSet.open(tmp_path / "made").digests()
    with feature_set(file, params) as folder:
        assert FeatureSet.open(folder).digests() == made
        assert folder != tmp_path / "made"
    assert not folder.exists()


def test_the_reference_holds_no_row_of_the_data(params: Params, tmp_path: Path) -> None:
    file = written(params, tmp_path)
    assert file.stat().st_size < 1000
    assert canonical_digest(FeatureSet.open(tmp_path / "made").digests()) in file.read_text()


def test_steps_on_one_machine_may_share_the_folder(
    params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(params, tmp_path)
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path / "shared"))
    with feature_set(file, params) as first:
        pass
    with feature_set(file, params) as second:
        assert first == second


def test_data_that_has_changed_since_is_refused(params: Params, tmp_path: Path) -> None:
    file = written(params, tmp_path)
    other = load_params(None, [*DATA, "features.seed=1"])
    with pytest.raises(DataError, match="not the one that this pipeline started with"), feature_set(file, other):
        pass
