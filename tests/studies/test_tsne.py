"""The study of reconstructed embeddings."""

from pathlib import Path

import numpy as np
import pytest

from studies.layout import Layout
from studies.tsne import map_of, silhouette, study
from tests.studies.cells import finding, verdict, written


def test_the_same_cells_give_the_same_bytes(sentiment: Layout, tmp_path: Path) -> None:
    first, second = (written(study(sentiment), tmp_path / name) for name in "ab")
    assert first == second
    assert "tsne.png" in first


def test_the_verdict_is_that_of_every_seed(sentiment: Layout) -> None:
    outcome = study(sentiment)
    found = outcome.data["silhouette"]
    assert found["joint"].keys() == found["no-property"].keys() == {"0", "1", "2"}
    better = sum(found["joint"][seed] > found["no-property"][seed] for seed in found["joint"])
    assert verdict(outcome, "more compact") == ("holds" if better == 3 else "does not hold")
    assert f"higher in {better} of 3 seeds" in finding(outcome, "more compact").reason
    difference = np.mean([found["joint"][seed] - found["no-property"][seed] for seed in found["joint"]])
    assert outcome.data["with minus without"]["difference"] == pytest.approx(difference)


def test_without_the_variant_there_is_nothing_to_compare(talks: Layout) -> None:
    outcome = study(talks)
    assert verdict(outcome, "more compact") == "not comparable"
    assert outcome.figures.keys() == {"tsne"}


def test_silhouette_of_classes_apart_and_of_one_class() -> None:
    labels = np.repeat([0, 1], 20)
    apart = np.random.default_rng(0).standard_normal((40, 3)) + 50 * labels[:, None]
    assert silhouette(apart, labels) > 0.9
    assert silhouette(apart, labels * 0) == 0


def test_classes_that_lie_apart_have_a_high_silhouette() -> None:
    labels = np.arange(30) % 2
    noise = np.random.default_rng(0).standard_normal((30, 5))
    apart, mixed = (map_of(noise + gap * labels[:, None], labels, 0) for gap in (20, 0))
    assert apart[0].shape == (30, 2)
    assert apart[1] > 0.8 > 0.2 > mixed[1]
