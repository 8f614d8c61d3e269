"""Scoring rows: what the table holds, for which rows, from which modalities."""

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.model.predictor import load
from mbd.params import load_params
from mbd.steps import features, predict
from tests.evaluation.models import as_revoked, tiny_model
from tests.features.build import npz_arrays, small_collection, synthetic_set, write_npz
from tests.refusals import refused


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    synthetic_set(folder / "data")
    tiny_model(folder / "data", folder / "model")
    as_revoked(tiny_model(folder / "data", folder / "silent", without=("audio",)), folder / "revoked", "audio")
    synthetic_set(folder / "emotions", "features.source.synthetic.classes=3")
    tiny_model(folder / "emotions", folder / "classifier")
    return folder


def lines(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_regression_has_a_score_and_its_sign(model_workspace: Path, tmp_path: Path) -> None:
    summary = predict.run(model_workspace / "data", model_workspace / "model", tmp_path / "p.csv")
    test = FeatureSet.open(model_workspace / "data").split("test").load()
    found = lines(tmp_path / "p.csv")
    assert list(found[0]) == ["id", "used", "prediction", "sign"]
    assert [line["id"] for line in found] == test.ids.tolist()
    scores = np.array([float(line["prediction"]) for line in found])
    assert scores == pytest.approx(load(model_workspace / "model").predict(test.features), abs=1e-6)
    assert {line["used"] for line in found} == {"text+audio+visual"}
    assert [line["sign"] for line in found] == ["non-negative" if s >= 0 else "negative" for s in scores]
    assert summary == predict.PredictResult(64, 0, "test", ("text", "audio", "visual"))


def test_classification_has_a_share_for_each_class_and_the_greatest(model_workspace: Path, tmp_path: Path) -> None:
    predict.run(model_workspace / "emotions", model_workspace / "classifier", tmp_path / "p.csv", split="valid")
    found = lines(tmp_path / "p.csv")
    assert list(found[0]) == ["id", "used", "prediction", "p_class0", "p_class1", "p_class2"]
    for line in found:
        shares = {name: float(line[f"p_{name}"]) for name in ("class0", "class1", "class2")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert line["prediction"] == max(shares, key=lambda name: shares[name])


@pytest.mark.parametrize(("data", "model"), [("data", "model"), ("emotions", "classifier")])
def test_parquet_holds_what_csv_holds(model_workspace: Path, tmp_path: Path, data: str, model: str) -> None:
    for name in ("p.csv", "p.parquet"):
        predict.run(model_workspace / data, model_workspace / model, tmp_path / name)
    table = pq.read_table(tmp_path / "p.parquet")
    assert [{k: str(v) for k, v in row.items()} for row in table.to_pylist()] == lines(tmp_path / "p.csv")
    assert table.schema.field("prediction").type == ("double" if model == "model" else "string")


def test_only_the_named_modalities_are_used(model_workspace: Path, tmp_path: Path) -> None:
    predict.run(model_workspace / "data", model_workspace / "model", tmp_path / "p.csv", available=["visual", "text"])
    test = FeatureSet.open(model_workspace / "data").split("test").load()
    expected = load(model_workspace / "model").predict({m: test.features[m] for m in ("text", "visual")})
    found = lines(tmp_path / "p.csv")
    assert np.array([float(line["prediction"]) for line in found]) == pytest.approx(expected, abs=1e-6)
    assert {line["used"] for line in found} == {"text+visual"}


@pytest.mark.parametrize(
    ("available", "says"),
    [(["text", "audio"], "audio was revoked"), (["smell"], "no modality smell"), ([], "no modality was named")],
)
def test_what_the_model_does_not_take_is_refused(
    model_workspace: Path, tmp_path: Path, available: list[str], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        predict.run(model_workspace / "data", model_workspace / "revoked", tmp_path / "p.csv", available=available)
    assert not (tmp_path / "p.csv").exists()


def test_a_revoked_modality_in_the_data_has_no_effect(model_workspace: Path, tmp_path: Path) -> None:
    predict.run(model_workspace / "data", model_workspace / "revoked", tmp_path / "p.csv")
    assert {line["used"] for line in lines(tmp_path / "p.csv")} == {"text+visual"}


@pytest.fixture(scope="module")
def patchy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A FeatureSet whose test rows 0 and 1 have text only, row 2 no text, valid no audio at all; and its model."""
    folder = tmp_path_factory.mktemp("patchy")
    arrays = npz_arrays(small_collection())
    absent: dict[tuple[str, str], list[int]] = {
        ("test", "text"): [2],
        ("test", "audio"): [0, 1],
        ("test", "visual"): [0, 1],
        ("valid", "audio"): [*range(8)],
    }
    for (split, modality), rows in absent.items():
        bits = np.ones(len(arrays[f"{split}_ids"]), bool)
        bits[rows] = False
        arrays[f"{split}_{modality}_available"] = bits
        arrays[f"{split}_{modality}"][~bits] = 0
    file = write_npz(folder / "d.npz", arrays)
    settings = ["features.source.kind=npz", f"features.source.path={file}", "features.calibration.size=0"]
    features.run(load_params(None, settings), folder / "data")
    tiny_model(folder / "data", folder / "model")
    return folder


def test_each_row_is_scored_from_what_it_has(patchy: Path, tmp_path: Path) -> None:
    predict.run(patchy / "data", patchy / "model", tmp_path / "p.csv")
    used = [line["used"] for line in lines(tmp_path / "p.csv")]
    assert used[:4] == ["text", "text", "audio+visual", "text+audio+visual"]
    test = FeatureSet.open(patchy / "data").split("test").load()
    expected = load(patchy / "model").predict(test.features, test.available)
    found = [float(line["prediction"]) for line in lines(tmp_path / "p.csv")]
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_row_with_nothing_to_predict_from_keeps_its_line(patchy: Path, tmp_path: Path) -> None:
    for name in ("p.csv", "p.parquet"):
        summary = predict.run(patchy / "data", patchy / "model", tmp_path / name, available=["audio"])
    assert summary.without_prediction == 2
    found = lines(tmp_path / "p.csv")
    assert [(line["used"], line["prediction"], line["sign"]) for line in found[:2]] == [("", "", "")] * 2
    assert found[2]["prediction"]
    assert pq.read_table(tmp_path / "p.parquet").to_pylist()[0]["prediction"] is None


def test_no_row_at_all_to_predict_from_is_an_error(patchy: Path, tmp_path: Path) -> None:
    with refused(DataError, key="--available", value="audio"):
        predict.run(patchy / "data", patchy / "model", tmp_path / "p.csv", split="valid", available=["audio"])


def test_the_size_of_a_batch_changes_the_last_digit_at_most(
    model_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict.run(model_workspace / "data", model_workspace / "model", tmp_path / "whole.csv")
    monkeypatch.setattr(predict, "_BATCH", 7)
    predict.run(model_workspace / "data", model_workspace / "model", tmp_path / "parts.csv")
    whole, parts = lines(tmp_path / "whole.csv"), lines(tmp_path / "parts.csv")
    assert [line["id"] for line in whole] == [line["id"] for line in parts]
    scores = [[float(line["prediction"]) for line in table] for table in (whole, parts)]
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-6)


def test_several_seeds_or_a_folder_as_output_are_wrong_usage(model_workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "seed-0").symlink_to(model_workspace / "model")
    with refused(UsageError, key="--model", value=tmp_path / "models"):
        predict.run(model_workspace / "data", tmp_path / "models", tmp_path / "p.csv")
    with refused(UsageError, key="--out", value=tmp_path):
        predict.run(model_workspace / "data", model_workspace / "model", tmp_path)


def test_an_unknown_split_is_named(model_workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no split 'tset'"):
        predict.run(model_workspace / "data", model_workspace / "model", tmp_path / "p.csv", split="tset")
