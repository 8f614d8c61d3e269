"""The public API: what `mbd.__all__` lists, loaded when it is used."""

import inspect
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import mbd
from mbd.files import sha256_file
from mbd.shredding.keys import Keyring
from mbd.shredding.vault import encrypt_folder
from mbd.steps.attack import AuditResult
from mbd.tensors import Array
from tests.kubeflow.workspace import as_settings, sealing
from tests.refusals import refused
from tests.training.build import SMALL

NARROW = dict(setting.split("=", 1) for setting in SMALL)


PARAMS = {name: yaml.safe_load(value) for name, value in NARROW.items()} | {
    "model.backbone": "lattice",
    "features.source.synthetic.rows": {"train": 60, "valid": 20, "test": 60, "calibration": 20},
    "features.source.synthetic.dims": {"text": 4, "audio": 3, "visual": 3},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    mbd.make_features(str(folder / "features"), params=PARAMS)
    result = mbd.train(folder / "features", folder / "model", params=PARAMS)
    assert result is not None and result.backbone == "lattice"
    return folder


@pytest.fixture(scope="module")
def model(trained: Path) -> "mbd.Model":
    return mbd.load(trained / "model")


def test_importing_mbd_loads_no_other_package() -> None:
    script = "import sys, mbd; print(sorted({'numpy', 'torch', 'pydantic', 'click'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"[]\n"


def test_every_public_name_has_a_docstring_that_describes_its_arguments() -> None:
    for name in set(mbd.__all__) - {"__version__"}:
        public = getattr(mbd, name)
        documented = inspect.getdoc(public)
        assert documented, name
        for argument in inspect.signature(public).parameters if inspect.isfunction(public) else ():
            assert f"    {argument}: " in documented, (name, argument)


def test_the_version_is_the_one_of_the_distribution() -> None:
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project and '\nversion = "' not in project


def test_what_python_shows_of_the_package_is_its_api() -> None:
    assert dir(mbd) == sorted(mbd.__all__)


def test_a_model_shows_what_it_takes_in_two_lines(model: "mbd.Model") -> None:
    first, second = repr(model).splitlines()
    assert first == "Model(lattice, regression: text 4, audio 3, visual 3)"
    assert second == "  deleted: nothing"


def test_predict_without_names_of_modalities_says_what_it_takes(model: "mbd.Model") -> None:
    for wrong in (np.ones((2, 4)), [[1.0]], "text"):
        with refused(mbd.DataError, value=type(wrong).__name__) as caught:
            model.predict(wrong)  # type: ignore[arg-type]
        assert caught.value.hint and '"text": rows × 4' in caught.value.hint


def test_one_modality_and_one_folder_may_be_strings(trained: Path, tmp_path: Path) -> None:
    result = mbd.train(str(trained / "features"), str(tmp_path / "without"), without="audio", params=PARAMS)
    assert result is not None and result.without == ("audio",)
    assert mbd.FeatureSet.open(str(trained / "features")).modalities
    assert mbd.evaluate(str(trained / "features"), str(trained / "model"), str(tmp_path / "evaluation"), params=PARAMS)


def test_notebooks_show_verdict_comparison_and_leakage(trained: Path, tmp_path: Path) -> None:
    features, model, out = trained / "features", trained / "model", tmp_path
    fast = PARAMS | {"deletion.method": "exact", "attacks.resamples": 100, "attacks.relearn_rows": [32]}
    fast |= {"attacks.figures": False, "evaluation.figures": False, "attacks.rows": 60}
    mbd.train(features, out / "reference", without="audio", params=fast)
    deleted = mbd.delete(features, model, "audio", out / "deleted", reference=out / "reference", params=fast)
    headline = "deleted: audio, by the method exact; left: text, visual"
    assert deleted and deleted._repr_html_().startswith(f"<pre><b>{headline}</b>")
    compared = mbd.evaluate(features, [out / "deleted", out / "reference"], out / "evaluation", params=fast)
    assert "test rows, regression, on text, visual</b>" in compared._repr_html_()
    with suppress(mbd.GateRefusedError):  # of so few rows
        mbd.attack(features, out / "deleted", out / "reference", "audio", out / "leakage", before=model, params=fast)
    audit = AuditResult.from_bytes((out / "leakage" / "leakage.json").read_bytes(), "leakage.json")
    assert re.match(r'<b>.*audio.*</b><br><img width="700" src="data:image/png;base64,iVBOR', audit._repr_html_())
    mbd.make_keys(out / "keys")
    (out / "bundle").mkdir()
    (out / "bundle" / "certificate.json").write_text("<script>")
    verdict = mbd.verify(out / "bundle", offline=True, trust=out / "keys" / "trust.json", params=fast)
    assert verdict._repr_html_().startswith("<pre><b>FORGED OR DAMAGED") and "<script>" not in verdict._repr_html_()


def test_errors_in_python_name_arguments_and_functions(trained: Path, tmp_path: Path) -> None:
    with refused(mbd.UsageError, key="without"):
        everything = ("text", "audio", "visual")
        mbd.train(trained / "features", tmp_path / "out", without=everything, params=PARAMS)
    for call in (mbd.load, partial(mbd.train, out=tmp_path / "out")):
        with pytest.raises(mbd.MbdError) as missing:
            call(tmp_path / "nothing")
        assert "`mbd." in str(missing.value) and "`mbd " not in str(missing.value) and "--" not in str(missing.value)
    with pytest.raises(mbd.MbdError, match=r"by `mbd\.make_keys`, .* only `mbd keys` changes it"):  # by no function
        mbd.guard(trained / "model", "file://store", trust=tmp_path / "nothing")


def test_predict_takes_anything_array_like(model: "mbd.Model") -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    expected = model.predict({"text": rows})
    for given in (rows.tolist(), torch.tensor(rows, requires_grad=True), rows.astype(np.float64), rows.T.copy().T):
        np.testing.assert_allclose(model.predict({"text": given}), expected, rtol=1e-6)
    with refused(mbd.DataError, match="not a matrix", key="text"):
        model.predict({"text": [["a", "b", "c", "d"]]})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_an_error_unless_its_row_lacks_the_modality(
    model: "mbd.Model", value: float
) -> None:
    text, audio = np.ones((2, 4), np.float32), np.ones((2, 3), np.float32)
    text[1, 2] = value
    with refused(mbd.DataError, key="text", value=f"{value} in row 1, column 2") as caught:
        model.predict({"text": text, "audio": audio})
    assert "row 1, column 2" in str(caught.value) and caught.value.hint
    scores: Array = model.predict({"text": text, "audio": audio}, {"text": [True, False]})
    assert np.isfinite(scores).all()


def test_a_purged_model_is_neither_loaded_nor_a_model_to_delete_from(trained: Path, tmp_path: Path) -> None:
    purged = tmp_path / "purged"
    digest = sha256_file(trained / "model" / "model.safetensors")
    purged.write_text(digest + "\n")
    params = PARAMS | {"purge.tombstones": str(purged)}
    with refused(mbd.DataError, value=f"sha256 {digest}"):
        mbd.load(trained / "model", params=params)
    with refused(mbd.DataError, value=f"sha256 {digest}"):
        mbd.delete(trained / "features", trained / "model", ["audio"], tmp_path / "out", params=params)
    assert not (tmp_path / "out").exists()


def test_encrypted_folders_are_read_as_plain_ones(trained: Path, tmp_path: Path) -> None:
    settings = sealing(tmp_path)
    for name in ("features", "model"):
        encrypt_folder(trained / name, tmp_path / name, Keyring.of(settings))
    params = PARAMS | dict(setting.split("=", 1) for setting in as_settings(settings))
    rows = {"text": np.ones((1, 4), np.float32)}
    expected = mbd.load(trained / "model").predict(rows)
    assert np.array_equal(mbd.load(tmp_path / "model", params=params).predict(rows), expected)
    result = mbd.evaluate(tmp_path / "features", [tmp_path / "model"], tmp_path / "out", params=params)
    assert result.to_text()


def test_metrics_go_where_the_parameters_say(trained: Path, tmp_path: Path) -> None:
    params = PARAMS | {"monitoring.mode": "textfile", "monitoring.textfile": str(tmp_path)}
    mbd.train(trained / "features", tmp_path / "model", params=params)
    assert "mbd_step_last_success_timestamp_seconds" in next(tmp_path.glob("*.prom")).read_text()
