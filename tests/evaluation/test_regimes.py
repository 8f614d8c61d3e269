"""Regimes: which rows show what, that metrics are those of a plain loop, and that no row is predicted twice."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.evaluation.metrics import regression_metrics
from mbd.evaluation.regimes import Condition, EvaluationPlan, evaluate_predictor, plan_evaluation
from mbd.evaluation.ridge import PatternRidge
from mbd.features.rows import Rows
from mbd.params.base import CorruptionSettings
from mbd.params.learning import EvaluationSettings
from mbd.tensors import Array
from tests.features.build import small_rows
from tests.refusals import refused

PARAMS = EvaluationSettings(missing_rates=(0.1, 0.3, 0.5, 0.6, 0.7))


def incomplete(n: int = 40) -> Rows:
    """Rows of which some lack audio, some visual, and the last everything."""
    rows = small_rows("test", n)
    bits = {m: np.ones(n, bool) for m in rows.features}
    bits["audio"][: n // 4] = bits["visual"][n // 8 : n // 2] = False
    for b in bits.values():
        b[-1] = False
    return replace(rows, available=bits)


def weighted_sum(shown: Mapping[str, Array]) -> Array:
    """A predictor that can be followed by hand: the modalities' sums with weights of their own."""
    weights = {"text": 1.0, "audio": -2.0, "visual": 0.5}
    total: Array = np.sum([weights[m] * x.sum(1, dtype=np.float64) for m, x in shown.items()], axis=0)
    return total


@pytest.mark.parametrize(("count", "rates"), [(1, 0), (2, 3), (3, 5), (4, 5)])
def test_every_set_and_every_rate_that_can_be(count: int, rates: int) -> None:
    dims = dict(zip(("text", "audio", "visual", "touch"), (5, 3, 4, 2), strict=True))
    bench = plan_evaluation(small_rows("test", 30, dict(list(dims.items())[:count])), "regression", PARAMS)
    names = [regime.name for regime in bench.regimes if regime.kind != "rate"]
    proper = ["+".join(s) for k in range(1, count) for s in combinations(bench.modalities, k)]
    assert names == ["full", *proper]
    kept = [regime.name for regime in bench.regimes if regime.kind == "rate"]
    assert kept == [f"η={rate:g}" for rate in PARAMS.missing_rates[:rates]]
    assert bench.rates_left_out == PARAMS.missing_rates[rates:]


def test_the_first_rate_out_of_reach_is_taken_at_the_limit() -> None:
    bench = plan_evaluation(small_rows("test", 30), "regression", PARAMS)
    assert {r.name: r.rate for r in bench.regimes if r.kind == "rate"}["η=0.7"] == pytest.approx(2 / 3)


def test_a_rate_hides_that_share_and_leaves_something_to_every_row() -> None:
    bench = plan_evaluation(small_rows("test", 200), "regression", PARAMS)
    for regime in bench.regimes:
        if regime.rate is not None:
            assert 1 - regime.shown.mean() == pytest.approx(regime.rate, abs=1 / regime.shown.size)
            assert regime.shown.any(1).all()


def test_a_row_never_shows_what_it_lacks_and_an_empty_row_is_left_out() -> None:
    rows = incomplete()
    bench = plan_evaluation(rows, "regression", PARAMS)
    assert len(bench.rows) == len(rows) - 1
    own = np.stack(list(bench.rows.available.values()), axis=1)
    for regime in bench.regimes:
        assert not (regime.shown & ~own).any()
        if regime.kind == "fixed":
            assert (regime.shown == own & [m in regime.name.split("+") for m in bench.modalities]).all()
    audio = next(regime for regime in bench.regimes if regime.name == "audio")
    assert audio.rows == bench.rows.available["audio"].sum() < len(bench.rows)


def test_rows_without_any_modality_are_an_error() -> None:
    rows = small_rows("test", 8)
    with refused(DataError, value="text, audio, visual"):
        plan_evaluation(replace(rows, available={m: np.zeros(8, bool) for m in rows.features}), "regression", PARAMS)


def one_by_one(bench: EvaluationPlan, rows: Rows, shown: Array) -> dict[str, float]:
    kept = np.flatnonzero(shown.any(1))
    predictions = [
        weighted_sum({m: rows.features[m][[i]] for m, bit in zip(bench.modalities, shown[i], strict=True) if bit})[0]
        for i in kept
    ]
    return regression_metrics(rows.labels[kept], np.array(predictions))


def test_metrics_are_those_of_a_loop_over_rows() -> None:
    bench = plan_evaluation(incomplete(), "regression", replace_corruption(0.3))
    scores = evaluate_predictor(weighted_sum, bench)
    for regime in bench.regimes:
        for rows, corrupted in ((bench.rows, False), (bench.damaged, True)):
            assert scores[Condition(regime.name, corrupted)] == pytest.approx(one_by_one(bench, rows, regime.shown))


def replace_corruption(share: float) -> EvaluationSettings:
    return EvaluationSettings(missing_rates=PARAMS.missing_rates, corruption=CorruptionSettings(share=share))


def test_the_averages_are_over_proper_sets_and_over_rates() -> None:
    bench = plan_evaluation(small_rows("test", 40), "regression", PARAMS)
    scores = evaluate_predictor(weighted_sum, bench)
    six = ["text", "audio", "visual", "text+audio", "text+visual", "audio+visual"]
    five = ["η=0.1", "η=0.3", "η=0.5", "η=0.6", "η=0.7"]
    for name, parts in (("FIX", six), ("MR", five)):
        for corrupted in (False, True):
            expected = np.mean([scores[Condition(part, corrupted)]["mae"] for part in parts])
            assert scores[Condition(name, corrupted)]["mae"] == pytest.approx(expected)


def test_one_modality_has_no_averages() -> None:
    scores = evaluate_predictor(
        weighted_sum, plan_evaluation(small_rows("test", 20, {"text": 4}), "regression", PARAMS)
    )
    assert scores.keys() == {Condition("full"), Condition("full", True)}


def test_each_row_is_predicted_once_for_each_pattern_and_only_damaged_rows_again() -> None:
    asked: list[tuple[tuple[str, ...], int]] = []

    def counting(shown: Mapping[str, Array]) -> Array:
        asked.append((tuple(shown), len(next(iter(shown.values())))))
        return weighted_sum(shown)

    bench = plan_evaluation(small_rows("test", 50), "regression", PARAMS)
    evaluate_predictor(counting, bench)
    assert len(bench.regimes) == 12
    assert asked[:7] == [(pattern, 50) for pattern, _ in asked[:7]]
    assert len({pattern for pattern, _ in asked[:7]}) == 7
    assert asked[7:] == [(pattern, 5) for pattern, _ in asked[:7]]


def test_without_corruption_both_are_the_same() -> None:
    scores = evaluate_predictor(weighted_sum, plan_evaluation(incomplete(), "regression", replace_corruption(0)))
    assert all(scores[Condition(c.regime, True)] == scores[c] for c in scores if not c.corrupted)


def test_classes_go_the_same_way() -> None:
    train = small_rows("train", 60, classes=3)
    bench = plan_evaluation(small_rows("test", 30, classes=3), "classification", PARAMS)
    ridge = PatternRidge(train, 3)
    found = evaluate_predictor(ridge.predict, bench)[Condition("text+visual")]
    outputs = ridge.predict({m: bench.rows.features[m] for m in ("text", "visual")})
    assert found["wa"] == pytest.approx(100 * (outputs.argmax(1) == bench.rows.labels).mean())
