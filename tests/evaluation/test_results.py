"""What comes out for machines and for people; seeds and pairs, against numpy and scipy."""

import csv
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from scipy.stats import ttest_rel

from mbd.evaluation.regimes import Condition, evaluate_predictor, plan_evaluation
from mbd.evaluation.results import (
    Comparison,
    EvaluatedMethod,
    Results,
    compare,
    paired_t_test,
    spread,
    to_csv,
    to_markdown,
    to_metrics,
    to_rates_csv,
)
from mbd.evaluation.ridge import ImputedRidge, PatternRidge
from mbd.params.learning import EvaluationSettings
from tests.features.build import small_rows

RATES = (0.2, 0.4)


@pytest.fixture(scope="module", params=["regression", "classification"])
def results(request: pytest.FixtureRequest) -> Results:
    """Two methods of three runs each, fitted on different rows, and a baseline."""
    classes = 3 if request.param == "classification" else 0
    bench = plan_evaluation(
        small_rows("test", 40, classes=classes), request.param, EvaluationSettings(missing_rates=RATES)
    )
    rows = [small_rows("train" * k, 30 + k, classes=classes) for k in (1, 2, 3, 4)]

    def runs(kind: Any) -> dict[str, Any]:
        return {str(k): evaluate_predictor(kind(rows[k]).predict, bench) for k in range(3)}

    return Results(
        bench,
        (
            EvaluatedMethod("pattern", runs(lambda train: PatternRidge(train, classes))),
            EvaluatedMethod(
                "mean", runs(lambda train: ImputedRidge.beside(PatternRidge(train, classes), with_mean=True))
            ),
            EvaluatedMethod(
                "fixed", {"": evaluate_predictor(PatternRidge(rows[3], classes).predict, bench)}, baseline=True
            ),
        ),
        against=("fixed", "mean"),
        notes=("a note",),
    )


def test_the_headline_is_the_first_methods_mean_over_seeds(results: Results) -> None:
    metrics = to_metrics(results)
    first = results.methods[0]
    for metric in results.metrics:
        expected = np.mean([scores[Condition("full")][metric] for scores in first.runs.values()])
        assert metrics[metric] == pytest.approx(expected, abs=1e-4)
    for metric in results.shown:
        fix = np.mean([scores[Condition("FIX")][metric] for scores in first.runs.values()])
        assert metrics["fix"][metric] == pytest.approx(fix, abs=1e-4)
    damaged = np.mean([scores[Condition("MR", True)][results.primary] for scores in first.runs.values()])
    assert metrics["corrupted"]["mr"][results.primary] == pytest.approx(damaged, abs=1e-4)
    assert (metrics["model"], metrics["seeds"], metrics["rows"]) == ("pattern", 3, 40)


def test_what_dvc_shows_as_metrics_stays_short(results: Results) -> None:
    def leaves(value: object) -> int:
        if isinstance(value, dict):
            return sum(map(leaves, value.values()))
        return 0 if isinstance(value, list) else 1

    assert leaves(to_metrics(results)) < 30


def test_every_regime_of_every_method_is_listed(results: Results) -> None:
    records = to_metrics(results)["results"]
    assert len(records) == 3 * 2 * (1 + 6 + len(RATES) + 2)
    found = next(r for r in records if (r["method"], r["regime"], r["corrupted"]) == ("mean", "audio", False))
    values = list(results.methods[1].values(Condition("audio"), results.primary).values())
    assert found["metrics"][results.primary]["deviation"] == pytest.approx(np.std(values, ddof=1), abs=1e-4)
    assert next(r for r in records if r["baseline"])["metrics"][results.primary]["deviation"] is None


def test_the_csv_has_a_line_for_each_run_and_regime(results: Results) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(results))))
    assert len(lines) == (3 + 3 + 1) * 2 * (1 + 6 + len(RATES) + 2)
    one = next(li for li in lines if (li["method"], li["seed"], li["regime"]) == ("mean", "1", "η=0.4"))
    assert (one["kind"], one["eta"], one["corrupted"]) == ("rate", "0.4", "false")
    value = results.methods[1].runs["1"][Condition("η=0.4")][results.primary]
    assert float(one[results.primary]) == pytest.approx(value, abs=1e-4)


def test_the_curve_for_plots_starts_with_nothing_missing(results: Results) -> None:
    lines = list(csv.DictReader(io.StringIO(to_rates_csv(results))))
    assert [line["eta"] for line in lines] == ["0", "0.2", "0.4"]
    assert list(lines[0]) == ["eta", results.primary, "fixed"]
    assert float(lines[0][results.primary]) == pytest.approx(to_metrics(results)[results.primary], abs=1e-4)


def test_methods_are_paired_by_seed_and_a_baseline_is_paired_with_each(results: Results) -> None:
    pattern, mean, fixed = results.methods
    fewer = EvaluatedMethod("fewer", {"9": mean.runs["0"], "2": mean.runs["2"], "1": mean.runs["1"]})
    found = compare(pattern, fewer, Condition("full"), results.primary)
    assert found is not None
    assert found.pairs == 2
    gaps = [pattern.runs[s][Condition("full")][results.primary] for s in ("1", "2")]
    gaps = [g - mean.runs[s][Condition("full")][results.primary] for g, s in zip(gaps, ("1", "2"), strict=True)]
    assert found.difference == pytest.approx(np.mean(gaps))
    against_baseline = compare(pattern, fixed, Condition("FIX"), results.primary)
    assert against_baseline is not None
    assert against_baseline.pairs == 3
    assert compare(pattern, EvaluatedMethod("other", {"9": mean.runs["0"]}), Condition("full"), results.primary) is None


def test_the_report_has_every_table_and_the_numbers_of_the_results(results: Results) -> None:
    text = to_markdown(results)
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert [h.split(":")[0] for h in headings] == [
        "## Overview",
        "## Fixed patterns",
        "## Missing rates",
        "## Corruption",
        "## Paired two-tailed t-tests over seeds",
        "## Notes",
    ]
    spread = results.methods[1].spread(Condition("text+visual"), results.primary)
    assert spread is not None
    line = next(line for line in text.splitlines() if line.startswith("| text+visual |"))
    assert f"{spread.mean:.1f} ± {spread.deviation:.1f} / " in line
    assert "- a note" in text
    assert "| pattern − mean | FIX | 3 |" in text


def test_the_best_of_a_line_is_bold_and_less_error_is_better(results: Results) -> None:
    metric = "mae" if results.plan.task == "regression" else "wa"
    tables = to_markdown(results).split("\n\n")
    title = "| MAE" if metric == "mae" else "| WA"
    table = next(t for t in tables if t.startswith(title) and "| audio |" in t)
    cells = next(line for line in table.splitlines() if line.startswith("| audio |")).split(" | ")[1:]
    means = [method.mean(Condition("audio"), metric) or 0.0 for method in results.methods]
    best = min(means) if metric == "mae" else max(means)
    assert [cell.strip(" |").startswith("**") for cell in cells] == [mean == best for mean in means]


def test_names_and_notes_become_no_markup(results: Results) -> None:
    hostile = "![x](https://evil.example)<b>|"
    first, *others = results.methods
    named = replace(results, methods=(replace(first, name=hostile), *others), notes=(hostile,))
    renderer = MarkdownIt("commonmark").enable("table")
    plain, page = renderer.render(to_markdown(results)), renderer.render(to_markdown(named))
    assert "evil.example" in page
    assert not any(tag in page for tag in ("<img", "<a ", "<b>"))
    assert page.count("<td") == plain.count("<td")


VALUES = st.floats(-100, 100).map(lambda x: round(x, 3))


def test_mean_and_sample_deviation() -> None:
    found = spread([70.0, 72.0, 74.0])
    assert (found.mean, found.deviation, found.seeds) == (72.0, 2.0, 3)


def test_one_seed_has_no_deviation() -> None:
    assert spread([70.0]).deviation is None


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=8))
def test_the_t_test_is_scipys(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = np.array(pairs).T.tolist()
    assume(np.ptp(np.subtract(ours, theirs)) > 1e-6)
    expected = ttest_rel(ours, theirs)
    found = paired_t_test(ours, theirs)
    assert found.t == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.difference == pytest.approx(np.mean(ours) - np.mean(theirs), abs=1e-9)
    assert found.pairs == len(pairs)


def test_one_pair_shows_a_difference_and_no_p() -> None:
    assert paired_t_test([3.0], [1.0]) == Comparison(2.0, None, None, 1)


def test_equal_methods_have_p_one() -> None:
    assert paired_t_test([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == Comparison(0.0, 0.0, 1.0, 3)


def test_seeds_that_all_differ_by_the_same_claim_no_p() -> None:
    assert paired_t_test([1.5, 2.5, 3.5], [1.0, 2.0, 3.0]) == Comparison(0.5, None, None, 3)


def test_values_that_are_no_pairs_are_an_error() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        paired_t_test([1.0, 2.0], [1.0])
