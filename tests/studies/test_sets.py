"""Data sets for comparisons: every row once, classes in every split, and files that `mbd features` reads."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn import datasets

from mbd.features.contract import FeatureSet
from mbd.params import load_params
from mbd.steps import features
from studies import sets
from tests.features.build import npz_arrays, small_collection, write_npz


@pytest.mark.parametrize("name", sets.PARTS)
def test_splits_part_the_rows_and_modalities_the_columns(name: str) -> None:
    arrays = sets.bundled(name)
    ids = np.concatenate([arrays[f"{split}_ids"] for split in ("train", "valid", "test")])
    assert len(set(ids.tolist())) == len(ids)
    assert len(arrays["train_ids"]) / len(ids) == pytest.approx(0.6, abs=0.02)
    assert len(arrays["test_ids"]) / len(ids) == pytest.approx(0.25, abs=0.02)
    widths = [arrays[f"train_{m}"].shape[1] for m in sets.PARTS[name]]
    assert sum(widths) == getattr(datasets, f"load_{name}")(return_X_y=True)[0].shape[1]
    labels = {split: arrays[f"{split}_labels"] for split in ("train", "valid", "test")}
    if name == "diabetes":
        assert abs(labels["train"].mean()) < 1e-12
    else:
        shares = [np.bincount(own) / len(own) for own in labels.values()]
        assert np.abs(shares[0] - shares[1]).max() < 0.05


def test_the_same_seed_gives_the_same_rows() -> None:
    one, same, other = (sets.bundled("wine", seed)["test_ids"].tolist() for seed in (0, 0, 1))
    assert one == same != other


def test_files_are_read_and_scores_become_seven_classes(tmp_path: Path) -> None:
    scores = write_npz(tmp_path / "talks.npz", npz_arrays(small_collection()))
    result = CliRunner().invoke(sets.main, [str(tmp_path / "out"), str(scores)], catch_exceptions=False)
    assert len(result.output.split()) == 5
    features.run(load_params(None, [f"features.source.path={tmp_path / 'out' / 'talks7.npz'}"]), tmp_path / "set")
    manifest = FeatureSet.open(tmp_path / "set").manifest
    assert (manifest.name, manifest.task) == ("talks7", "classification")
    with np.load(scores) as before, np.load(tmp_path / "out" / "talks7.npz") as after:
        assert np.array_equal(after["test_labels"], np.rint(before["test_labels"]) + 3)
        assert np.array_equal(after["test_text"], before["test_text"])
