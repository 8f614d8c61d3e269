"""Source synthetic: the shape and the strength of known data, and secrets that stay in their modality."""

import numpy as np
import pytest

from mbd.evaluation.ridge import fit_ridge, ridge_baselines
from mbd.features.rows import Collection
from mbd.features.sources import read_source
from mbd.params import load_params


def read(*settings: str) -> Collection:
    return read_source(load_params(None, list(settings)).features)


@pytest.mark.parametrize(
    ("preset", "rows"),
    [
        ("mosi", {"train": 1284, "valid": 229, "test": 686, "calibration": 5000}),
        ("mosei", {"train": 16326, "valid": 1871, "test": 4659, "calibration": 5000}),
    ],
)
def test_presets_have_the_size_of_the_real_data(preset: str, rows: dict[str, int]) -> None:
    collection = read(f"features.source.preset={preset}")
    assert {split: len(r) for split, r in collection.splits.items()} == rows
    assert collection.modalities == {"text": 768, "audio": 74, "visual": 512}
    labels = collection.splits["train"].labels
    assert (labels.min(), labels.max()) == (-3, 3)


def test_iemocap_has_four_classes_and_5531_rows() -> None:
    collection = read("features.source.preset=iemocap")
    assert collection.classes == ("neutral", "happy", "sad", "angry")
    assert sum(len(rows) for split, rows in collection.splits.items() if split != "calibration") == 5531
    counts = np.bincount(collection.splits["train"].labels)
    assert counts.min() > 0.2 * counts.sum()


@pytest.mark.slow
def test_ridge_finds_text_strongest_and_all_together_best() -> None:
    found: dict[str, list[float]] = {}
    for seed in range(3):
        for name, metrics in ridge_baselines(read(f"features.seed={seed}")).items():
            found.setdefault(name, []).append(metrics["acc2"])
    acc2 = {name: np.mean(values) for name, values in found.items()}
    assert acc2 == pytest.approx({"text": 85, "audio": 67, "visual": 65, "all": 90}, abs=2.5)


def test_the_private_attribute_is_in_its_own_modality_and_nowhere_else() -> None:
    collection = read()
    train, test = collection.splits["train"], collection.splits["test"]
    for secret in collection.modalities:
        target = train.attributes[secret][:, None].astype(np.float64)
        for modality in collection.modalities:
            ridge = fit_ridge(train.features[modality], target)
            guess = ridge.predict(test.features[modality])[:, 0] > 0.5
            right = (guess == test.attributes[secret]).mean()
            assert right > 0.95 if modality == secret else 0.42 < right < 0.58


def test_leaving_a_modality_out_changes_no_byte_of_the_others() -> None:
    whole, part = read(), read("features.source.modalities=[text, visual]")
    assert set(part.modalities) == {"text", "visual"}
    for split, rows in part.splits.items():
        for modality in part.modalities:
            np.testing.assert_array_equal(rows.features[modality], whole.splits[split].features[modality])


@pytest.mark.parametrize("dims", ["{a: 3, b: 5}", "{text: 4, audio: 3, visual: 2, pulse: 9}"])
def test_any_dims_and_any_number_of_modalities(dims: str) -> None:
    small = "features.source.synthetic.rows={train: 20, valid: 5, test: 5}"
    collection = read(f"features.source.synthetic.dims={dims}", small, "features.source.synthetic.classes=3")
    assert "{" + ", ".join(f"{m}: {d}" for m, d in collection.modalities.items()) + "}" == dims
    assert collection.classes == ("class0", "class1", "class2")


def test_the_seed_decides_everything() -> None:
    one, same, other = read(), read(), read("features.seed=1")
    text = [c.splits["train"].features["text"] for c in (one, same, other)]
    np.testing.assert_array_equal(text[0], text[1])
    assert (text[0] != text[2]).mean() > 0.99


def test_groups_lie_in_one_split() -> None:
    seen: set[str] = set()
    for rows in read().splits.values():
        groups = set(rows.groups)
        assert not groups & seen
        seen |= groups


def test_skewed_classes_are_ever_rarer_and_nothing_else_changes() -> None:
    rows = "features.source.synthetic.rows={train: 4000, valid: 10, test: 10}"
    settings = ["features.source.preset=iemocap", "features.source.synthetic.classes=5", rows]
    even, skewed = (read(*settings, f"features.source.synthetic.skew={skew}").splits["train"] for skew in (0, 0.8))
    shares = np.bincount(skewed.labels) / len(skewed)
    assert (np.diff(shares) < 0).all()
    assert shares[0] > 0.4
    assert np.ptp(np.bincount(even.labels) / len(even)) < 0.05
    assert all(even.features[m].tobytes() == skewed.features[m].tobytes() for m in even.features)
