"""The public API: what `mbd.__all__` lists, loaded when it is used."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mbd
from mbd.tensors import Array
from tests.training.build import SMALL

NARROW = dict(setting.split("=", 1) for setting in SMALL)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> "mbd.Model":
    folder = tmp_path_factory.mktemp("api")
    import yaml

    params = {name: yaml.safe_load(value) for name, value in NARROW.items()} | {
        "model.backbone": "lattice",
        "features.source.synthetic.rows": {"train": 60, "valid": 20, "test": 20, "calibration": 20},
        "features.source.synthetic.dims": {"text": 4, "audio": 3, "visual": 3},
    }
    mbd.make_features(str(folder / "features"), params=params)
    result = mbd.train(folder / "features", folder / "model", params=params)
    assert result is not None and result.backbone == "lattice"
    return mbd.load(folder / "model")


def test_importing_mbd_loads_no_other_package() -> None:
    script = "import sys, mbd; print(sorted({'numpy', 'torch', 'pydantic', 'click'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"[]\n"


@pytest.mark.parametrize("name", [name for name in mbd.__all__ if name != "__version__"])
def test_every_public_name_has_a_docstring_that_describes_its_arguments(name: str) -> None:
    found = getattr(mbd, name)
    assert inspect.getdoc(found)
    if inspect.isfunction(found):
        documented = inspect.getdoc(found) or ""
        assert all(f"    {argument}: " in documented for argument in inspect.signature(found).parameters)


def test_the_version_is_the_one_of_the_distribution() -> None:
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project and '\nversion = "' not in project


def test_predict_takes_anything_array_like(model: "mbd.Model") -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    expected = model.predict({"text": rows})
    for given in (rows.tolist(), torch.tensor(rows, requires_grad=True), rows.astype(np.float64), rows.T.copy().T):
        np.testing.assert_allclose(model.predict({"text": given}), expected, rtol=1e-6)
    with pytest.raises(mbd.DataError, match="text is not a matrix of numbers"):
        model.predict({"text": [["a", "b", "c", "d"]]})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_an_error_unless_its_row_lacks_the_modality(
    model: "mbd.Model", value: float
) -> None:
    text, audio = np.ones((2, 4), np.float32), np.ones((2, 3), np.float32)
    text[1, 2] = value
    with pytest.raises(mbd.DataError, match="1 values of text are NaN or infinite") as caught:
        model.predict({"text": text, "audio": audio})
    assert "row 1, column 2" in str(caught.value) and caught.value.hint
    scores: Array = model.predict({"text": text, "audio": audio}, {"text": [True, False]})
    assert np.isfinite(scores).all()
