"""What became of the paper's claims about certified deletion; every number comes from the deletions that were made."""

from collections.abc import Mapping, Sequence

import numpy as np

from mbd.evaluation.results import Spread, paired_t_test
from studies import printed
from studies.audits import NEAR, WHITE_BOX, attacks_refuse, gives_away
from studies.claims import SIGNIFICANT, judged, listed, p_text, text
from studies.deleted import Beside, DeletedLine, Line
from studies.outcome import Finding

UTILITY_LOSS = 1.5
"""points of accuracy that the paper says are lost at most"""
CONSERVATIVE = 1.0
"""ε up to which the paper calls a budget conservative"""
Losses = Mapping[str, Spread]
"""ΔL_re by the name of a line"""


def findings(deleted: Sequence[DeletedLine], beside: Beside, losses: Losses, title: str) -> list[Finding]:
    """Return what became of the paper's claims; the paper's deletion is for the joint backbone."""
    as_printed = [d for d in deleted if d.kind == "printed"]
    if "joint" not in beside:
        return []
    before, reference = beside["joint"]["before"], beside["joint"]["reference"]
    ours = [d for d in deleted if d.kind in ("surgery", "certified", "exact")]
    found = _attackable(before, reference)
    if as_printed:
        found += [
            _near_chance(as_printed, before, reference, ours),
            _significant(as_printed),
            _worth(as_printed, before, ours, title),
            _reconstruction(as_printed, losses),
            _indistinguishable(as_printed),
            _certificate(as_printed, ours),
        ]
    return found


def _attackable(before: Line, reference: Line) -> list[Finding]:
    full = printed.DELETION[None]
    adversaries = {
        "white-box": (full.white_box, before.white_box, reference.white_box),
        "black-box": (full.black_box, before.black_box, reference.black_box),
    }
    return [
        Finding(
            f"Before the deletion the {name} attack succeeds ({theirs.mean} % printed).",
            judged(_leaks(own, never)),
            f"It succeeds in {text(own)} % of the rows; on a model that never saw the modality, in {text(never)} %. "
            "The success of an attack means nothing by itself, so we judge every one by its difference to this "
            "reference.",
        )
        for name, (theirs, own, never) in adversaries.items()
    ]


def _leaks(own: Spread, reference: Spread) -> bool:
    """Whether an attack does better than on the reference, by more than the gate tolerates."""
    return own.mean > reference.mean + NEAR


def _near_chance(
    as_printed: Sequence[DeletedLine], before: Line, reference: Line, ours: Sequence[DeletedLine]
) -> Finding:
    claim = f"With ε ≤ {CONSERVATIVE:g} the success of attacks falls to near chance."
    if not _leaks(before.white_box, reference.white_box):
        return Finding(
            claim,
            "not comparable",
            f"The white-box attack sees nothing before the deletion either: {text(before.white_box)} %, and "
            f"{text(reference.white_box)} % on the reference.",
        )
    conservative = [d for d in as_printed if d.epsilon is None or d.epsilon <= CONSERVATIVE] or as_printed
    worst = max(conservative, key=lambda d: d.white_box.mean)
    instead = "; ".join(f"{d.name} {text(d.white_box)} %" for d in ours)
    return Finding(
        claim,
        judged(not any(gives_away(d.records, WHITE_BOX.id.partition(".")[0]) for d in conservative)),
        f"Algorithm 1 as printed leaves white-box success at {text(worst.white_box)} % ({worst.name}), from "
        f"{text(before.white_box)} % before it; the reference has {text(reference.white_box)} %."
        + (f" With what we do instead: {instead}." if instead else ""),
    )


def _significant(as_printed: Sequence[DeletedLine]) -> Finding:
    claim = f"The difference to the model before is significant (paired t-test, p < {SIGNIFICANT:g})."
    tests = {}
    for d in as_printed:
        tests[d.name] = paired_t_test(WHITE_BOX.values(d.records, "after"), WHITE_BOX.values(d.records, "before"))
    if all(test.p is None and test.pairs < 2 for test in tests.values()):
        return Finding(claim, "not comparable", "One seed has no t-test.")
    differences = listed([f"{name} {test.difference:+.1f} points ({p_text(test)})" for name, test in tests.items()])
    lower = all(test.p is not None and test.p < SIGNIFICANT and test.difference < 0 for test in tests.values())
    return Finding(
        claim,
        judged(lower),
        f"White-box success after minus before, over {next(iter(tests.values())).pairs} seeds: {differences}. A test "
        "against the model before cannot show that nothing is left; the gate compares with the reference.",
    )


def _worth(as_printed: Sequence[DeletedLine], before: Line, ours: Sequence[DeletedLine], title: str) -> Finding:
    worst = max(as_printed, key=lambda d: before.accuracy.mean - d.accuracy.mean)
    lost = before.accuracy.mean - worst.accuracy.mean
    instead = "; ".join(f"{d.name} {text(d.accuracy)}" for d in ours)
    return Finding(
        f"Acc2 stays within 1–{UTILITY_LOSS:g} points of the original.",
        judged(lost <= UTILITY_LOSS),
        f"Of Algorithm 1 as printed, {worst.name} loses most: {lost:.1f} points of {title} on the retained modalities, "
        f"from {text(before.accuracy)} to {text(worst.accuracy)}. "
        + (f"With what we do instead: {instead}." if instead else ""),
    )


def _reconstruction(as_printed: Sequence[DeletedLine], losses: Losses) -> Finding:
    worst = max(as_printed, key=lambda d: abs(losses[d.name].mean))
    value = losses[worst.name]
    return Finding(
        f"The reconstruction loss differs from the reference's by at most {printed.RECONSTRUCTION_BOUND:g}.",
        judged(abs(value.mean) <= printed.RECONSTRUCTION_BOUND),
        f"It differs by {text(value, 3)} per standardised dimension ({worst.name}); before any deletion by "
        f"{text(losses['joint: full model'], 3)}, where the paper prints "
        f"{printed.DELETION[None].reconstruction:.3f} for a model that can reconstruct. The reference has no generator "
        "for the modality; neither has a model after the structural cut, so there the difference is "
        "zero by construction.",
    )


def _indistinguishable(as_printed: Sequence[DeletedLine]) -> Finding:
    claim = (
        "Noise on the chosen coordinates makes the model (ε, δ)-indistinguishable from one that never saw the modality."
    )
    distances = [
        r.reference for d in as_printed for r in d.deletions.values() if r.reference and "before" in r.reference
    ]
    if not distances:
        return Finding(claim, "not comparable", "No distances to a reference were measured.")
    outside, inside = (float(np.mean([d["before"][place] for d in distances])) for place in ("outside", "inside"))
    apart = int(np.mean([d["edited_without_counterpart"] for d in distances]))
    return Finding(
        claim,
        judged(outside == 0),
        f"Before the edit the two models lie {outside:.1f} apart outside the chosen coordinates and {inside:.1f} "
        f"inside them; {apart} of the chosen coordinates have no counterpart in the reference at all. Noise hides "
        "nothing where it is not added. The certified method clips every weight that has seen the modality and noises "
        "them all.",
    )


def _certificate(as_printed: Sequence[DeletedLine], ours: Sequence[DeletedLine]) -> Finding:
    refusing = {d.name: attacks_refuse(d.records) for d in as_printed}
    passing = [d.name for d in ours if not attacks_refuse(d.records)]
    blamed = list(dict.fromkeys(name for names in refusing.values() for name in names))
    if not blamed:
        return Finding(
            "A certificate corresponds to reduced recoverable information.",
            "holds",
            f"No attack distinguishes {listed(list(refusing))} from the reference.",
        )
    shut = [name for name, names in refusing.items() if names]
    return Finding(
        "A certificate corresponds to reduced recoverable information.",
        "does not hold",
        f"Algorithm 1 issues its certificate without an attack. Our gate refuses {listed(shut)} because of "
        f"{listed(blamed)}; "
        + (f"no attack refuses {listed(passing)}." if passing else "it refuses every other deletion here as well."),
    )
