"""Claims are judged by what was measured, and their sentences have its numbers."""

from pathlib import Path

import pytest

from mbd.evaluation.regimes import Condition
from mbd.evaluation.results import EvaluatedMethod
from studies.claims import (
    lead_claim,
    listed,
    not_best_claim,
    papers_set,
    scores_claim,
    significance_claim,
    slips_claim,
    why_not_comparable,
)
from studies.layout import Layout
from studies.scores import Scores, ShownScore
from tests.studies.cells import small_plan

REGIMES = ("full", "text", "audio")


def method(name: str, *by_seed: float, baseline: bool = False) -> EvaluatedMethod:
    seeds = [""] if baseline else [str(seed) for seed in range(len(by_seed))]
    runs = {
        seed: {Condition(regime): {"acc2": value} for regime in REGIMES}
        for seed, value in zip(seeds, by_seed, strict=True)
    }
    return EvaluatedMethod(name, runs, baseline)


def scores(*methods: EvaluatedMethod) -> Scores:
    shown = tuple(ShownScore(regime, "full" if regime == "full" else "fixed", None) for regime in REGIMES)
    return Scores("regression", ("text", "audio"), 100, (), shown, methods)


def layout(name: str, data: str) -> Layout:
    return Layout(small_plan(data, name=name), Path("nowhere"))


def test_a_lead_is_a_lead_in_every_regime_of_every_set() -> None:
    ahead = scores(method("joint", 90.0, 91.0), method("ridge", 89.0, baseline=True))
    behind = scores(method("joint", 80.0, 81.0), method("ridge", 89.0, baseline=True))
    assert lead_claim("It leads.", {"a": ahead}, REGIMES).verdict == "holds"
    found = lead_claim("It leads.", {"a": ahead, "b": behind}, REGIMES)
    assert found.verdict == "does not hold"
    assert "ahead in 3 of 6 regimes" in found.reason
    assert "on b joint has Acc2 80.5 ± 0.7 and ridge 89.0 (full, -8.5 points)" in found.reason


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((90.0, 90.1, 90.2), "holds"),
        ((90.0, 85.0, 99.0), "does not hold"),
        ((80.0, 80.1, 80.2), "does not hold"),
        ((90.0,), "not comparable"),
    ],
)
def test_significance_takes_a_lead_and_a_small_p(ours: tuple[float, ...], verdict: str) -> None:
    found = scores(method("joint", *ours), method("ridge", 88.0, baseline=True))
    assert significance_claim("Sure.", {"a": found}, "full").verdict == verdict


def test_scores_are_compared_only_where_they_can_be() -> None:
    values = [("Acc2", 75.0, 89.9), ("F1", 89.5, 89.9)]
    unlike = scores_claim("It reaches 89.9.", "it is other data", values)
    assert unlike.verdict == "not comparable"
    assert unlike.reason.startswith("It is other data. Ours beside it, for orientation: Acc2 75.0 (printed 89.9)")
    lower = scores_claim("It reaches 89.9.", "", values)
    assert lower.verdict == "not comparable", "other features might reach it"
    assert "Acc2 75.0 (printed 89.9)" in lower.reason
    assert "does not name its encoders" in lower.reason
    assert scores_claim("It reaches 89.9.", "", values[1:]).verdict == "holds", "less than a point below"
    assert scores_claim("It reaches 89.9.", "", []).verdict == "not comparable"


def test_what_stands_beside_the_papers_numbers() -> None:
    three = ("text", "audio", "visual")
    assert "synthetic" in why_not_comparable(layout("synthetic", "mosi"), "mosi", three)
    assert why_not_comparable(layout("mosi", "mosi"), "mosi", three) == ""
    assert why_not_comparable(layout("mosi_clean", "mosi_clean"), "mosi_clean", three[::-1]) == ""
    assert "no numbers for “talks”" in why_not_comparable(layout("talks", "talks"), "talks", three)
    assert "CMU-MOSI" in why_not_comparable(layout("mosei", "mosei"), "mosei", three)
    assert why_not_comparable(layout("mosei", "mosei"), "mosei", three, "mosei") == ""
    assert "voice and text" in why_not_comparable(layout("mosi", "mosi"), "mosi", ("voice", "text"))
    assert papers_set(layout("mosir", "mosir"), "mosir") is None


def test_the_papers_own_tables_decide_some_claims() -> None:
    slips = slips_claim("varying missing rates")
    assert slips.verdict == "does not hold"
    assert "MBD Acc2 80.9 printed, 82.11 by its rows" in slips.reason
    assert "GCNet" in slips.reason
    assert not_best_claim("fixed missing patterns").verdict == "does not hold"
    assert not_best_claim("varying missing rates").verdict == "holds"


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([], "none"),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (["a, b", "c"], "a, b; and c"),
    ],
)
def test_lists_read_like_sentences(items: list[str], text: str) -> None:
    assert listed(items) == text
