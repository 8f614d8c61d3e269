"""An evaluation read back from its files."""

import pytest

from mbd.evaluation.regimes import Condition
from studies.layout import Layout
from studies.scores import difference, gap, loss_by_corruption, mean, read_scores, spread_of


def test_what_is_read_back_is_what_was_measured(sentiment: Layout, talks: Layout) -> None:
    for layout in (sentiment, talks):
        scores = read_scores(layout.evaluation(layout.plan.main))
        records = layout.metrics(layout.plan.main)["results"]
        assert {record["method"] for record in records} == {method.name for method in scores.methods}
        for record in records:
            method = scores.method(record["method"])
            assert method is not None
            assert method.baseline == record["baseline"]
            for metric, found in record["metrics"].items():
                ours = spread_of(method, record["regime"], metric, corrupted=record["corrupted"])
                assert ours.mean == pytest.approx(found["mean"], abs=2e-4)
                assert (ours.deviation is None) == (found["deviation"] is None)
                if found["deviation"] is not None:
                    assert ours.deviation == pytest.approx(found["deviation"], abs=2e-4)


def test_regimes_by_kind(sentiment: Layout, talks: Layout) -> None:
    scores = read_scores(sentiment.evaluation("mosi"))
    assert len(scores.names("fixed")) == 6
    assert scores.names("rate")[0] == "η=0.1"
    assert scores.has("FIX")
    assert scores.shown == ("acc2", "f1", "acc7")
    other = read_scores(talks.evaluation("talks"))
    assert other.names("fixed") == ["voice", "face"]
    assert other.primary == "wa"
    assert other.modalities == ("voice", "face")


def test_the_papers_model_and_the_best_of_the_others(sentiment: Layout) -> None:
    scores = read_scores(sentiment.evaluation("mosi"))
    assert scores.ours.name == "joint"
    best = scores.best_other("FIX", "acc2")
    assert mean(best, "FIX", "acc2") == max(mean(method, "FIX", "acc2") for method in scores.others)
    least = scores.best_other("full", "mae")
    assert mean(least, "full", "mae") == min(mean(method, "full", "mae") for method in scores.others)
    lead = scores.lead("FIX", "acc2").difference
    assert lead == pytest.approx(mean(scores.ours, "FIX", "acc2") - mean(best, "FIX", "acc2"))


def test_differences_are_paired_by_seed(sentiment: Layout) -> None:
    scores = read_scores(sentiment.evaluation("ablation"))
    full, variant = scores.ours, scores.method("no-fusion")
    assert variant is not None
    a, b = (method.values(Condition("MR"), "acc2") for method in (full, variant))
    found = gap(full, variant, "MR", "acc2")
    assert found.seeds == len(a) == 3
    assert found.mean == pytest.approx(sum(a[seed] - b[seed] for seed in a) / 3)
    assert difference(full, variant, "MR", "acc2").difference == pytest.approx(found.mean)
    clean, corrupted = (full.values(Condition("MR", c), "acc2") for c in (False, True))
    lost = loss_by_corruption(full, "MR", "acc2")
    assert lost.mean == pytest.approx(sum(clean[seed] - corrupted[seed] for seed in clean) / 3)


def test_a_regime_that_was_not_measured_is_no_number(sentiment: Layout) -> None:
    scores = read_scores(sentiment.evaluation("mosi"))
    with pytest.raises(ValueError, match="joint was not measured in Sunday"):
        mean(scores.ours, "Sunday", "acc2")
