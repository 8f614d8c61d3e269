"""What makes an audit too weak for a certificate: every parameter that opens the gate, and everything left out."""

from collections.abc import Callable
from typing import Any

import pytest

from mbd.formats.leakage import LeakageRecord, summarise
from mbd.formats.strength import BOUNDS, MEASURES, MOST_MEASURES, power_in_words, shortfalls
from mbd.params.deletion import AttacksSettings
from mbd.registry import ATTACKS
from tests.formats.audits import strong_audit

STRONG = strong_audit("a" * 64)


def with_suite(**changes: Any) -> LeakageRecord:
    return STRONG.model_copy(update={"suite": STRONG.suite.model_copy(update=changes)})


def with_parameters(**changes: Any) -> LeakageRecord:
    return with_suite(parameters=STRONG.suite.parameters | changes)


def with_rows(**changes: Any) -> LeakageRecord:
    return with_suite(rows={"audio": STRONG.suite.rows["audio"].model_copy(update=changes)})


def with_first(part: str, **changes: Any) -> LeakageRecord:
    first, *others = getattr(STRONG, part)
    return STRONG.model_copy(update={part: (first.model_copy(update=changes), *others)})


def keys(record: LeakageRecord, **options: Any) -> list[str]:
    return [shortfall.key for shortfall in shortfalls(summarise(record), options.pop("kind", "empirical"), **options)]


def test_the_default_parameters_are_strong_enough() -> None:
    assert shortfalls(summarise(STRONG), "empirical") == ()
    assert {measure.partition(".")[0] for measure in MEASURES[STRONG.format]} == set(ATTACKS.builtin)
    assert set(BOUNDS) <= set(AttacksSettings.model_fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tolerance", 1.0),
        ("tolerance", 0.0501),
        ("utility_margin", 100.0),
        ("correlation_margin", 2.0),
        ("confidence", 0.999999999),
        ("confidence", 0.6),
        ("resamples", 1),
        ("least_rows", 1),
        ("relearn_rows", [1]),
        ("pruned_share", 0.0),
        ("pruned_share", None),
        ("tolerance", "0.03"),
        ("relearn_rows", []),
        ("relearn_rows", [8, "many"]),
    ],
)
def test_each_parameter_that_opens_the_gate_has_a_bound(name: str, value: Any) -> None:
    record = with_parameters(**{name: value})
    first, *_ = shortfalls(summarise(record), "empirical")
    assert (first.key, first.value) == (f"attacks.{name}", value)
    assert f"{value} is beyond the bounds of a certificate" in first.problem
    assert f"attacks.{name}" in first.hint


@pytest.mark.parametrize("split", ["train", "calibration"])
def test_rows_that_made_the_models_are_none_to_attack(split: str) -> None:
    assert keys(with_rows(splits=("test", split))) == ["attacks.splits"]


def test_too_few_rows_are_none_to_decide_by() -> None:
    assert keys(with_rows(scored=19)) == ["suite.rows.audio.scored"]
    assert "suite.rows.audio.scored" in keys(with_suite(rows={}))


@pytest.mark.parametrize("leave_out", [lambda a: a.variant == "int8", lambda a: a.variant == "pruned"])
def test_every_variant_is_judged(leave_out: Callable[[Any], bool]) -> None:
    left = tuple(a for a in STRONG.attacks if not leave_out(a))
    record = with_suite(judged_together=len(left)).model_copy(update={"attacks": left})
    assert keys(record) == ["attacks.variants"]


def test_every_measure_is_judged() -> None:
    for attack in STRONG.attacks:
        left = tuple(other for other in STRONG.attacks if other is not attack)
        without = with_suite(judged_together=len(left))
        (shortfall,) = shortfalls(summarise(without.model_copy(update={"attacks": left})), "empirical")
        assert attack.id in shortfall.problem
        informed = (*left, attack.model_copy(update={"decision": "informational"}))
        (shortfall,) = shortfalls(summarise(without.model_copy(update={"attacks": informed})), "empirical")
        assert attack.id in shortfall.problem


def test_every_deleted_modality_is_attacked() -> None:
    both = STRONG.model_copy(update={"modalities": ("audio", "visual")})
    assert any("visual" in shortfall.problem for shortfall in shortfalls(summarise(both), "empirical"))


def test_intervals_are_corrected_for_what_was_judged_and_not_for_more() -> None:
    assert keys(with_suite(judged_together=10_000)) == ["suite.judged_together"]
    many = STRONG.attacks + STRONG.attacks[:1] * MOST_MEASURES
    record = with_suite(judged_together=len(many)).model_copy(update={"attacks": many})
    assert keys(record) == ["suite.judged_together"]


def test_utility_is_judged_within_its_margins_and_beside_the_model_before() -> None:
    assert keys(with_first("utility", margin=50.0)) == ["attacks.utility_margin"]
    assert keys(with_first("utility", metric="corr", margin=0.2)) == ["utility", "attacks.correlation_margin"]
    assert keys(with_first("utility", decision="informational")) == ["utility"]
    assert keys(with_first("utility", to_before=None)) == ["utility"]


def test_an_audit_that_could_have_found_nothing_is_too_weak() -> None:
    blind = tuple(a.model_copy(update={"blind": a.attack != "pathway"}) for a in STRONG.attacks)
    (shortfall,) = shortfalls(summarise(STRONG.model_copy(update={"attacks": blind})), "empirical")
    assert "no attack would have found audio in the model before" in shortfall.problem
    sharp = tuple(a.model_copy(update={"blind": a.blind and a.id != "relearn.r2_100"}) for a in blind)
    assert keys(STRONG.model_copy(update={"attacks": sharp})) == []


def test_the_power_says_which_losses_would_not_have_been_found() -> None:
    assert "a loss of 3.05 (acc2), a loss of 0.15 (corr)" in power_in_words(STRONG)
    assert "no loss (acc2), a loss of 0.15 (corr)" in power_in_words(with_first("utility", detectable=None))


def test_the_files_are_checked_as_the_kind_of_guarantee_demands() -> None:
    assert keys(STRONG, kind="exact") == keys(STRONG, kind="certified") == ["invariants"]
    assert keys(with_first("invariants", decision="informational")) == ["invariants"]
    assert keys(STRONG.model_copy(update={"lower_bound": None})) == ["attacks.confidence"]


def test_only_a_later_audit_does_without_the_model_before() -> None:
    models = {role: digest for role, digest in STRONG.models.items() if role != "before"}
    attacks = tuple(attack.model_copy(update={"before": None}) for attack in STRONG.attacks)
    assert keys(STRONG.model_copy(update={"models": models})) == ["--before"]
    assert keys(STRONG.model_copy(update={"attacks": attacks})) == ["--before"]
    assert keys(STRONG.model_copy(update={"models": models, "attacks": attacks}), later=True) == []
