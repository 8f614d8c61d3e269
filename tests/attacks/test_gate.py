"""The gate: what it refuses, what it lets pass, and how often it is wrong."""

from pathlib import Path

import numpy as np
import pytest

from mbd.attacks.attack import AttackEvidence
from mbd.attacks.bootstrap import accuracy, auc
from mbd.attacks.gate import GateFinding, decide, judge_attacks, judge_epsilon, judge_utility, refuse
from mbd.attacks.utility import UtilityMeasurement, _percent_right, correlation
from mbd.errors import ExitCode, GateRefusedError
from mbd.formats.leakage import InvariantRecord, UtilityRecord
from mbd.params.deletion import AttacksSettings
from mbd.tensors import Array
from tests.formats.audits import strong_audit

PARAMS = AttacksSettings(resamples=200)
ROWS = 300


def guesses(right: float, rng: np.random.Generator, n: int = ROWS, measure: str = "accuracy") -> AttackEvidence:
    """An adversary that guesses a coin with some probability."""
    truth = rng.integers(0, 2, n)
    hit = rng.random(n) < right
    rows = np.column_stack([truth, np.where(hit, truth, 1 - truth)])
    return AttackEvidence("whitebox", measure, 0.5, rows, accuracy, limits=(0.0, 1.0))


def finding(after: float, reference: float, before: float = 0.9, seed: int = 0) -> GateFinding:
    rng = np.random.default_rng(seed)
    return GateFinding(
        "audio",
        "as released",
        {"before": guesses(before, rng), "after": guesses(after, rng), "reference": guesses(reference, rng)},
    )


@pytest.mark.parametrize(
    ("after", "reference", "decision", "printed"),
    [
        (0.5, 0.5, "passed", "upper bound"),
        (0.9, 0.5, "refused", "lower bound +"),
        (0.1, 0.5, "refused", "has information"),
        (0.5, 0.9, "passed", "upper bound"),
    ],
)
def test_an_attack_is_held_against_the_reference(after: float, reference: float, decision: str, printed: str) -> None:
    (record,) = judge_attacks([finding(after, reference)], PARAMS)
    assert record.decision == decision
    assert printed in record.reason
    assert f"{record.after.value:.3f}, reference" in record.reason if record.after else False


def test_an_attack_that_sees_nothing_before_says_so() -> None:
    blind, sharp = judge_attacks([finding(0.5, 0.5, before=0.5), finding(0.5, 0.5, before=0.9)], PARAMS)
    assert (blind.blind, sharp.blind) == (True, False)
    assert "shows little" in blind.reason
    assert "shows little" not in sharp.reason


def test_a_gate_whose_attacks_are_all_blind_refuses() -> None:
    """That the model before has an input for the modality, which `pathway` finds, is not enough."""
    record = strong_audit("a" * 64)
    blind = tuple(a.model_copy(update={"blind": a.attack != "pathway"}) for a in record.attacks if a.blind is not None)
    others = tuple(a for a in record.attacks if a.blind is None)
    decided = decide(record.model_copy(update={"attacks": (*blind, *others)}), "empirical")
    assert decided.decision == "refused"
    assert decided.reasons == (
        "strength (attacks): no attack would have found audio in the model before the deletion, "
        "so to pass shows nothing",
    )
    one_sees = (blind[-1].model_copy(update={"blind": False}), *blind[:-1])
    assert decide(record.model_copy(update={"attacks": (*one_sees, *others)}), "empirical").decision == "passed"


@pytest.mark.slow
def test_a_leak_that_is_called_detectable_is_refused_as_often_as_is_said() -> None:
    """In 100 audits of 300 rows each, of a model that leaks this much, and of one that leaks half of it."""
    (first,) = judge_attacks([finding(0.5, 0.5, before=0.8)], PARAMS)
    assert first.detectable
    found = {
        share: np.mean(
            [
                judge_attacks([finding(0.5 + share * first.detectable, 0.5, seed=seed)], PARAMS)[0].decision
                == "refused"
                for seed in range(1, 101)
            ]
        )
        for share in (1.0, 0.5)
    }
    assert found[1.0] > PARAMS.least_power - 0.12  # 3 standard errors of 100 audits
    assert found[0.5] < 0.5


def test_without_the_model_before_no_leak_is_called_detectable_that_is_not() -> None:
    """A model after that answers as the reference does must not be taken for one that leaks."""
    rng = np.random.default_rng(0)
    same = guesses(0.5, rng)
    (first,) = judge_attacks([GateFinding("audio", "as released", {"after": same, "reference": same})], PARAMS)
    assert first.detectable
    leaking = [finding(0.5 + first.detectable, 0.5, seed=seed) for seed in range(1, 101)]
    refused = [judge_attacks([one], PARAMS)[0].decision == "refused" for one in leaking]
    assert np.mean(refused) > PARAMS.least_power - 0.12  # 3 standard errors of 100 audits


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["acc2", "corr"])
def test_a_loss_that_is_called_detectable_is_refused_as_often_as_is_said(kind: str) -> None:
    """Of a model that answers as the reference does, in 100 audits of 276 rows by one that loses this much."""

    def judged(share: float, seed: int) -> UtilityRecord:
        """A model that is the reference but for a share of the rows, which it answers by chance."""
        rng = np.random.default_rng(seed)
        truth = rng.standard_normal(276)
        reference = truth + rng.standard_normal(276)
        after = np.where(rng.random(276) < share, np.sqrt(2) * rng.standard_normal(276), reference)
        pairs = {"before": reference, "after": after, "reference": reference}
        rows = {role: np.column_stack([truth, answer]) for role, answer in pairs.items()}
        if kind == "acc2":
            rows = {role: (both >= 0).astype(float) for role, both in rows.items()}
        statistic, limits = (correlation, (-1, 1)) if kind == "corr" else (_percent_right, (0, 100))
        evidence = {r: AttackEvidence("utility", kind, 0.0, x, statistic, limits=limits) for r, x in rows.items()}
        margin = 0.1 if kind == "corr" else 3.0
        return judge_utility([UtilityMeasurement(kind, "text", margin, True, evidence)], PARAMS)[0]  # type: ignore[arg-type]

    stated = [judged(0, seed).detectable for seed in range(10)]
    loss = float(np.median([d for d in stated if d is not None]))
    lost_by_all = (
        1 / np.sqrt(2) if kind == "corr" else 25.0
    )  # r is √½, so 75 % of the signs are right, and 50 % by chance
    refused = [judged(loss / lost_by_all, seed).decision == "refused" for seed in range(10, 110)]
    assert abs(np.mean(refused) - PARAMS.least_power) < 0.15  # 4 standard errors of 100 audits


def test_fewer_rows_detect_larger_leaks_only_and_few_enough_none() -> None:
    def detectable(rows: int) -> float | None:
        rng = np.random.default_rng(0)
        one = GateFinding(
            "audio",
            "as released",
            {"before": guesses(0.9, rng, rows), "after": guesses(0.5, rng, rows), "reference": guesses(0.5, rng, rows)},
        )
        (record,) = judge_attacks([one], PARAMS)
        return record.detectable

    many, some, few = detectable(3000), detectable(300), detectable(5)
    assert many
    assert some
    assert PARAMS.tolerance < many < some
    assert few is None


def test_an_attack_without_reference_is_informational() -> None:
    rng = np.random.default_rng(0)
    (record,) = judge_attacks([GateFinding("audio", "as released", {"after": guesses(0.99, rng)})], PARAMS)
    assert (record.decision, record.difference, record.reference) == ("informational", None, None)


def test_the_more_is_judged_the_surer_a_difference_has_to_be() -> None:
    one = judge_attacks([finding(0.62, 0.5)], PARAMS)[0].difference
    many = judge_attacks([finding(0.62, 0.5)] * 40, PARAMS)[0].difference
    assert one and many
    assert one.value == many.value
    assert many.low < one.low < one.high < many.high


@pytest.mark.slow
def test_a_model_without_a_leak_is_rarely_refused() -> None:
    """20 measures of pure noise, 60 times, nothing tolerated: Bonferroni promises at most 5 % refusals."""
    strict = AttacksSettings(resamples=200, tolerance=0)
    refused = sum(
        any(
            r.decision == "refused"
            for r in judge_attacks([finding(0.5, 0.5, seed=100 * k + i) for i in range(20)], strict)
        )
        for k in range(60)
    )
    assert refused <= 7  # 3 are expected; more than 7 has a probability below 2 %


@pytest.mark.parametrize(("leak", "least"), [(0.75, 0.95), (0.68, 0.5)])
def test_a_planted_leak_is_found(leak: float, least: float) -> None:
    findings = [finding(leak, 0.5, seed=i) for i in range(40)]
    found = [record.decision == "refused" for record in judge_attacks(findings, PARAMS)]
    assert np.mean(found) >= least


def measured_utility(
    after: Array, reference: Array, before: Array, truth: Array, *, decides: bool = True
) -> UtilityMeasurement:
    def evidence(output: Array) -> AttackEvidence:
        return AttackEvidence("utility", "corr", 0.0, np.column_stack([truth, output]), correlation)

    outputs = {"before": before, "after": after, "reference": reference}
    return UtilityMeasurement("corr", "text", 0.1, decides, {role: evidence(o) for role, o in outputs.items()})  # type: ignore[misc]


def test_utility_may_not_be_lost_to_the_reference_nor_to_the_full_model() -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(ROWS)
    good, bad = truth + 0.3 * rng.standard_normal(ROWS), rng.standard_normal(ROWS)
    utilities = [
        measured_utility(good, good, good, truth),
        measured_utility(bad, good, bad, truth),
        measured_utility(bad, bad, good, truth),
        measured_utility(bad, good, good, truth, decides=False),
        measured_utility(np.zeros(ROWS), good, good, truth),
    ]
    records = judge_utility(utilities, PARAMS)
    assert [record.decision for record in records] == ["passed", "refused", "refused", "informational", "refused"]
    assert "reference" in records[1].reason
    assert "full model" in records[2].reason
    assert records[4].after.value == 0


def membership(signal: float, seed: int) -> GateFinding:
    rng = np.random.default_rng(seed)
    members = (np.arange(1200) % 2).astype(float)

    def scored(strength: float) -> AttackEvidence:
        scores = strength * members + rng.standard_normal(1200)
        return AttackEvidence("membership", "auc", 0.5, np.column_stack([members, scores]), auc)

    return GateFinding("audio", "as released", {"after": scored(signal), "reference": scored(0)})


@pytest.mark.parametrize(
    ("signal", "claimed", "decision"),
    [(0, 1.0, "passed"), (4, 1.0, "refused"), (4, 8.0, "passed"), (4, None, "informational")],
)
def test_more_than_the_claimed_epsilon_may_not_be_shown(signal: float, claimed: float | None, decision: str) -> None:
    bound = judge_epsilon([membership(signal, 0)], claimed, 1e-5, PARAMS)
    assert bound
    assert bound.decision == decision
    assert (bound.epsilon > 1) is (signal > 0)
    assert judge_epsilon([finding(0.9, 0.5)], 1.0, 1e-5, PARAMS) is None


def test_the_same_model_shows_no_epsilon_however_well_it_remembers() -> None:
    """What the reference says as well has nothing to do with the deleted modality."""
    one = membership(4, 0).found["after"]
    bound = judge_epsilon([GateFinding("audio", "as released", {"after": one, "reference": one})], 0.0, 1e-5, PARAMS)
    assert bound
    assert (bound.epsilon, bound.decision) == (0, "passed")


def test_a_refusal_names_each_kind_of_reason_once_and_by_how_much() -> None:
    attacks = judge_attacks([finding(0.95, 0.5), finding(0.99, 0.5)], PARAMS)
    cut = InvariantRecord(name="cut", decision="refused", reason="a tensor is left")
    record = decide(strong_audit("a" * 64).model_copy(update={"attacks": attacks, "invariants": (cut,)}), "empirical")
    reasons = [reason for reason in record.reasons if not reason.startswith("strength")]
    assert len(reasons) == 3
    assert "0.99" in reasons[0] or "0.98" in reasons[0] or "1.0" in reasons[0]  # the strongest first
    with pytest.raises(GateRefusedError) as refusal:
        refuse(record, Path("out/report.md"))
    message = str(refusal.value)
    assert refusal.value.exit_code == ExitCode.REFUSED
    for part in (
        "whitebox.accuracy (audio)",
        "lower bound +",
        "invariant (cut): a tensor is left",
        "more of these kinds",
        "report.md",
    ):
        assert part in message
    refuse(record.model_copy(update={"decision": "passed"}), Path("out/report.md"))
