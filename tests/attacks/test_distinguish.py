"""Populations of models told apart by their weights, against a null by permutation."""

from pathlib import Path

import numpy as np
import pytest

from mbd.attacks.distinguish import _pairwise_auc, distinguish, tell_apart, weight_statistics
from mbd.errors import DataError, UsageError
from mbd.formats.model import DataRecord, ModelRecord
from mbd.model.checkpoint import describe, save_model
from mbd.tensors import Array

NAMES = [f"s{i}" for i in range(12)]


def population(folder: Path, count: int, *, louder: float = 1.0, width: int = 16) -> list[Path]:
    """Models of two random tensors; `louder` multiplies the matrix."""
    folders = []
    for seed in range(count):
        rng = np.random.default_rng([seed, int(louder * 1000)])
        tensors: dict[str, Array] = {
            "weight": np.asarray(louder * rng.standard_normal((8, width)), np.float32),
            "bias": np.asarray(rng.standard_normal(8), np.float32),
            "count": np.array([seed, seed]),
        }
        record = ModelRecord(
            backbone="joint",
            spec={},
            task="regression",
            classes=(),
            label_range=(-3, 3),
            modalities={"text": width},
            seed=str(seed),
            data=DataRecord(name="none", files={}),
            tensors={name: describe(tensor, ("text",)) for name, tensor in tensors.items()},
            sha256="",
        )
        out = folder / f"{louder}-{seed}"
        out.mkdir(parents=True)
        save_model(out, record, tensors)
        folders.append(out)
    return folders


def test_exposure_that_changed_norms_is_seen(tmp_path: Path) -> None:
    found = distinguish(population(tmp_path, 10, louder=1.3), population(tmp_path, 10), seed=0)
    assert found.auc > 0.95
    assert found.p_value < 0.01
    assert found.null[0] < 0.5 < found.null[1]
    assert (found.exposed, found.never_exposed) == (10, 10)
    assert found.telling[0][0] in {"weight: log norm", "weight: log largest", "weight: log spectral norm"}
    assert found.telling[0][1] > 0


def test_one_population_is_not_told_apart_from_itself() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([1.0, -1.0], [8, 10])
    found = [tell_apart(NAMES, rng.standard_normal((18, 12)), labels, seed=run, permutations=99) for run in range(200)]
    false_alarms = sum(f.p_value <= 0.05 for f in found)
    assert 2 <= false_alarms <= 20
    assert np.mean([f.auc for f in found]) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("shift", "power"), [(0.5, 0.15), (1.0, 0.475), (2.0, 0.9875)])
def test_a_planted_shift_is_found_at_the_rate_of_its_size(shift: float, power: float) -> None:
    # The rates were measured over 400 other draws; three deviations of a rate over 200 are allowed.
    rng = np.random.default_rng(1)
    labels = np.repeat([1.0, -1.0], 10)
    found = []
    for run in range(200):
        matrix = rng.standard_normal((20, 12))
        matrix[:10, :3] += shift
        found.append(tell_apart(NAMES, matrix, labels, seed=run, permutations=99).p_value <= 0.05)
    assert np.mean(found) == pytest.approx(power, abs=3 * np.sqrt(power * (1 - power) * (1 / 200 + 1 / 400)))


def test_leaving_pairs_out_in_closed_form_is_training_without_them() -> None:
    rng = np.random.default_rng(2)
    x, labels = rng.standard_normal((9, 4)), np.array([1.0, -1, 1, 1, -1, -1, 1, -1, 1])
    x[labels > 0, 0] += 1
    gram = x @ x.T / 4 + 1
    right = []
    for i in np.flatnonzero(labels > 0):
        for j in np.flatnonzero(labels < 0):
            rest = np.delete(np.arange(9), [i, j])
            dual = np.linalg.solve(gram[np.ix_(rest, rest)] + np.eye(7), labels[rest])
            right.append(gram[i, rest] @ dual > gram[j, rest] @ dual)
    assert _pairwise_auc(x, labels[None])[0] == pytest.approx(np.mean(right))


def test_models_without_any_difference_are_told_apart_by_chance_only() -> None:
    found = tell_apart(NAMES, np.ones((8, 12)), np.repeat([1.0, -1.0], 4), seed=0, permutations=50)
    assert (found.auc, found.p_value, found.statistics, found.telling) == (0.5, 1.0, 0, ())


def test_the_same_models_give_the_same_answer(tmp_path: Path) -> None:
    ours, theirs = population(tmp_path, 4, louder=1.1), population(tmp_path, 4)
    assert distinguish(ours, theirs, seed=3) == distinguish(ours, theirs, seed=3)


def test_spectral_statistics() -> None:
    tensor = np.diag([2.0, 1.0]).astype(np.float32)
    names, matrix = weight_statistics([{"w": tensor}])
    found = dict(zip(names, matrix[0], strict=True))
    assert found["w: log norm"] == pytest.approx(np.log(np.sqrt(5)))
    assert found["w: log spectral norm"] == pytest.approx(np.log(2))
    assert found["w: stable rank"] == pytest.approx(5 / 4)
    assert found["w: spectral entropy"] == pytest.approx(-(0.8 * np.log(0.8) + 0.2 * np.log(0.2)))


def test_too_few_models_and_models_without_a_common_tensor_are_refused(tmp_path: Path) -> None:
    models = population(tmp_path, 3)
    with pytest.raises(UsageError, match="at least 3 models of each kind"):
        distinguish(models[:2], models, seed=0)
    with pytest.raises(DataError, match="no tensor in common"):
        weight_statistics([{"a": np.ones(3)}, {"a": np.ones(4)}])
