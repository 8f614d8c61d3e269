"""The leakage record: what passes follows from its numbers, and its schema is published."""

import pytest

from mbd.formats.leakage import AttackRecord, Interval, LowerBound, UtilityRecord


def around(value: float, half: float = 0.01) -> Interval:
    return Interval(value=value, low=value - half, high=value + half)


def attack(after: float, reference: float, chance: float = 0.5, tolerance: float | None = 0.03) -> AttackRecord:
    return AttackRecord(
        modality="audio",
        id="whitebox.accuracy",
        chance=chance,
        before=None,
        after=around(after),
        reference=around(reference),
        difference=around(after - reference),
        tolerance=tolerance,
        detectable=0.1,
        blind=False,
        decision="informational",
        reason="",
    )


@pytest.mark.parametrize(
    ("after", "reference", "passes"),
    [
        (0.5, 0.5, True),
        (0.535, 0.5, True),  # above, but not surely beyond the tolerance
        (0.6, 0.5, False),
        (0.5, 0.4, True),  # above a reference that is below chance, and no better than chance
        (0.5, 0.6, True),  # below the reference, at chance: it knows nothing
        (0.4, 0.5, False),  # below chance: it knows something and says the opposite
        (0.4, 0.41, True),  # as the reference
    ],
)
def test_what_passes_follows_from_the_numbers(after: float, reference: float, passes: bool) -> None:
    assert attack(after, reference).passes is passes


def test_a_negative_r_squared_is_a_bad_fit_and_no_knowledge() -> None:
    assert attack(-0.8, 0.0, chance=0.0).passes
    assert not attack(0.8, 0.0, chance=0.0).passes


def test_what_was_not_compared_does_not_pass() -> None:
    assert not attack(0.5, 0.5, tolerance=None).passes


@pytest.mark.parametrize(("to_reference", "to_before", "passes"), [(-1, -1, True), (-4, 0, False), (0, -4, False)])
def test_utility_is_held_against_both(to_reference: float, to_before: float, passes: bool) -> None:
    record = UtilityRecord(
        metric="acc2",
        regime="text",
        before=around(80),
        after=around(80),
        reference=around(80),
        to_before=around(to_before),
        to_reference=around(to_reference),
        margin=3,
        detectable=4.0,
        decision="informational",
        reason="",
    )
    assert record.passes is passes


@pytest.mark.parametrize(("shown", "claimed", "passes"), [(0.5, 1.0, True), (1.5, 1.0, False), (9.0, None, True)])
def test_more_than_is_claimed_must_not_be_shown(shown: float, claimed: float | None, passes: bool) -> None:
    by = {"measure": "membership.auc_all", "by": "threshold", "confidence": 0.95, "delta": 1e-5}
    bound = LowerBound.model_validate(
        {"epsilon": shown, "claimed": claimed, "decision": "informational", "reason": "", **by}
    )
    assert bound.passes is passes
