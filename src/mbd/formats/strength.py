"""How strong an audit must be for a certificate: fixed by the version of the format, not by who issues it.

A parameter that widens the gate (a tolerance, a margin, a confidence, too few rows) has a bound; every measure that
`MEASURES` lists for the format must have been judged, on the model as released and after INT8 rounding and pruning;
the rows must be none that a model was trained on or that chose an edit; and the model before the deletion must have
been attacked too, except in a later audit, when its weights are gone.

`mbd attack` runs with any parameters, and the gate refuses an audit that falls short. `mbd certify` and `mbd verify`
ask again, from what the certificate says of it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mbd.formats.leakage import AttackRecord, AuditSummary, LeakageRecord, Variant

BOUNDS: Mapping[str, tuple[float, float]] = {
    "tolerance": (0, 0.05),
    "utility_margin": (0, 5),
    "correlation_margin": (0, 0.15),
    "confidence": (0.9, 0.99),
    "resamples": (100, math.inf),
    "least_rows": (20, math.inf),
    "least_power": (0.8, 0.99),
    "relearn_rows": (32, math.inf),
    "pruned_share": (0.1, 0.9),
}
"""least and largest value of each parameter of `attacks` that decides how wide the gate is (of a list: its largest)"""
VARIANTS: tuple[Variant, ...] = ("as released", "int8", "pruned")
MEASURES: Mapping[str, Mapping[str, float]] = {
    "urn:missing-by-design:leakage:v1": {
        "pathway.rows_moved": 0,
        "pathway.output_shift": 0,
        "whitebox.accuracy_fed": 0.5,
        "whitebox.accuracy_not_fed": 0.5,
        "blackbox.accuracy_fed": 0.5,
        "blackbox.accuracy_not_fed": 0.5,
        "reconstruction.r2_offered": 0,
        "reconstruction.r2_learnt_fed": 0,
        "reconstruction.r2_learnt_not_fed": 0,
        "membership.auc_reconstruction": 0.5,
        "membership.auc_loss": 0.5,
        "membership.auc_output_alone": 0.5,
        "membership.auc_all": 0.5,
        "membership.tpr_all": 0.01,
        "relearn.accuracy_{k}": 0.5,
        "relearn.r2_{k}": 0,
        "reattach.label_{few}": 0,
        "reattach.attribute_{few}": 0,
        "copies.rows": 0,
    },
}
"""format of an audit → the measures that it must have, each with what a guess reaches; k and few: the most and
the fewest rows that an attack is shown. A new measure belongs to a new format: certificates of older ones keep their
list."""
AS_RELEASED = ("reattach", "copies")
"""attacks that need not run again after rounding and pruning"""
UTILITY = ({"acc2", "corr"}, {"wa", "ua"})
"""metrics of which all must be judged: for regression, or for classes"""
SEEN_SPLITS = ("train", "calibration")
"""splits that training, or a choice of the deletion, has used"""
MOST_MEASURES = 200
"""measures of one modality judged together; each further one widens the intervals of all"""
STRENGTH = "strength"
"""how the reason of a refusal begins if the audit was too weak"""
_FILES = ("input", "cut", "shape")


@dataclass(frozen=True)
class Shortfall:
    """Something that makes an audit too weak for a certificate."""

    key: str
    """the parameter, or the part of the record"""
    value: object
    problem: str
    hint: str

    def __str__(self) -> str:
        return f"{STRENGTH} ({self.key}): {self.problem}"


def shortfalls(audit: AuditSummary, kind: str, *, later: bool = False) -> tuple[Shortfall, ...]:
    """Return why an audit is too weak to certify a deletion of this kind; nothing if it is strong enough.

    In a `later` audit of a released model, the old weights may be gone.
    """
    return (
        *_parameters(audit.suite.parameters),
        *_rows(audit),
        *_measures(audit),
        *_power(audit),
        *_utility(audit, later),
        *_invariants(audit, kind, later),
        *(() if later else _before(audit)),
    )


def weak_parameters(parameters: Mapping[str, Any]) -> Iterator[Shortfall]:
    """Yield what in the parameters of attacks makes every audit too weak, whatever it finds."""
    yield from _parameters(parameters)
    yield from _seen_splits(parameters["splits"])
    if lacking := [variant for variant in VARIANTS[1:] if variant not in parameters["variants"]]:
        problem = f"a certificate needs attacks on the {lacking[0]} variant as well"
        yield Shortfall("attacks.variants", list(parameters["variants"]), problem, _AGAIN)


def required_measures(audit: AuditSummary, modality: str) -> dict[str, float]:
    """Return the ids of the measures that an audit of this format must have, each with what a guess reaches."""
    rows, shown = audit.suite.rows.get(modality), audit.suite.parameters.get("relearn_rows")
    numbers = [k for k in shown if isinstance(k, int)] if isinstance(shown, list | tuple) else []
    k, few = (min(pick(numbers, default=0), rows.fit if rows else 0) for pick in (max, min))
    return {measure.format(k=k, few=few): chance for measure, chance in MEASURES[audit.format].items()}


def power_in_words(record: LeakageRecord) -> str:
    """Say what an audit would have found: for each modality its sharpest attack, and each utility that was judged."""
    sizes = [
        f"a leak of {sharpest.detectable:+.3g} ({modality}; {sharpest.id})"
        for modality in record.modalities
        if (sharpest := _sharpest(record, modality)) is not None
    ]
    sizes += [
        f"{'no loss' if utility.detectable is None else f'a loss of {utility.detectable:.3g}'} ({utility.metric})"
        for utility in record.utility
        if utility.decision != "informational"
    ]
    share = record.suite.parameters.get("least_power")
    probability = f" with a probability of {100 * share:g} %" if isinstance(share, int | float) else ""
    return f"at these rows the audit finds{probability} {', '.join(sizes) or 'no leak and no loss, however large'}"


def _sharpest(record: LeakageRecord, modality: str) -> AttackRecord | None:
    """Return the measure that would have found the smallest leak; `pathway` finds an input, which is no leak."""
    able = [
        a
        for a in record.attacks
        if a.modality == modality and a.attack != "pathway" and a.decision != "informational" and a.detectable
    ]
    return min(able, key=lambda a: a.detectable or math.inf, default=None)


def _parameters(parameters: Mapping[str, Any]) -> Iterator[Shortfall]:
    for name, (least, most) in BOUNDS.items():
        value = parameters.get(name)
        number = _largest(value) if isinstance(value, list | tuple) else value
        if not isinstance(number, int | float) or not least <= number <= most:
            limits = f"at least {least:g}" if most == math.inf else f"{least:g} to {most:g}"
            yield Shortfall(
                f"attacks.{name}",
                value,
                f"{value} is beyond the bounds of a certificate: {limits}",
                f"attack again with attacks.{name} within {limits}",
            )


def _largest(values: Sequence[Any]) -> float | None:
    """Return the largest of a list of numbers; None if it is empty or holds anything else."""
    return max(values, default=None) if all(isinstance(one, int | float) for one in values) else None


def _rows(audit: AuditSummary) -> Iterator[Shortfall]:
    least = BOUNDS["least_rows"][0]
    for modality in audit.modalities:
        rows = audit.suite.rows.get(modality)
        if rows is None or rows.scored < least:
            yield Shortfall(
                f"suite.rows.{modality}.scored",
                rows and rows.scored,
                f"{rows.scored if rows else 'no'} rows were scored; a certificate needs at least {least:g}",
                "attack more rows: attacks.rows, attacks.splits",
            )
        yield from _seen_splits(rows.splits if rows else ())


def _seen_splits(splits: Sequence[str]) -> Iterator[Shortfall]:
    if used := [split for split in splits if split in SEEN_SPLITS]:
        yield Shortfall(
            "attacks.splits",
            list(splits),
            f"rows of the split {used[0]} were used to make the models, so attacks on them show nothing",
            "attack the test split",
        )


def _measures(audit: AuditSummary) -> Iterator[Shortfall]:
    for modality in audit.modalities:
        yield from _missing(audit, modality)
    count, limit = audit.judged, MOST_MEASURES * len(audit.modalities)
    if audit.suite.judged_together != count or count > limit:
        problem = (
            f"{count} measures were judged and intervals corrected for {audit.suite.judged_together}; "
            f"a certificate may have {limit}"
        )
        yield Shortfall("suite.judged_together", audit.suite.judged_together, problem, "attack with fewer measures")


def _missing(audit: AuditSummary, modality: str) -> Iterator[Shortfall]:
    judged = audit.measures.get(modality, {})
    lacking = [
        (name, variant)
        for name in required_measures(audit, modality)
        for variant in VARIANTS[: 1 if name.partition(".")[0] in AS_RELEASED else None]
        if variant not in judged.get(name, {})
    ]
    if lacking:
        name, variant = lacking[0]
        more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        key = "attacks" if variant == VARIANTS[0] else "attacks.variants"
        problem = f"{name} of {modality} ({variant}) was not judged{more}"
        yield Shortfall(key, audit.suite.parameters.get("variants"), problem, _AGAIN)


def _power(audit: AuditSummary) -> Iterator[Shortfall]:
    """Yield the modalities of which no attack has power; that the model had an input (`pathway`) is not enough."""
    for modality, blind in (audit.blind or {}).items():
        judged = [name for name, found in audit.measures.get(modality, {}).items() if VARIANTS[0] in found]
        known = [name for name in judged if not name.startswith("pathway.")]
        if known and set(known) <= set(blind):
            yield Shortfall(
                "attacks",
                f"{len(known)} blind measures",
                f"no attack would have found {modality} in the model before the deletion, so to pass shows nothing",
                "attack more rows (attacks.rows, attacks.splits), or add an attack that finds it (attacks.also)",
            )


def _utility(audit: AuditSummary, later: bool) -> Iterator[Shortfall]:
    if not any(metrics <= {measured.metric for measured in audit.utility} for metrics in UTILITY):
        yield Shortfall("utility", None, "utility on the retained modalities was not judged", _AGAIN)
    for measured in audit.utility:
        name = "correlation_margin" if measured.metric == "corr" else "utility_margin"
        most = BOUNDS[name][1]
        if not 0 <= measured.margin <= most:
            problem = f"{measured.metric} was judged with a margin of {measured.margin:g}, and {most:g} is the largest"
            yield Shortfall(f"attacks.{name}", measured.margin, problem, _AGAIN)
        if measured.to_before is None and not later:
            yield Shortfall("utility", None, f"{measured.metric} was not compared with the model before", _BEFORE)


def _invariants(audit: AuditSummary, kind: str, later: bool) -> Iterator[Shortfall]:
    needed = [*_FILES, *([] if later else ["content", "record"]), *([] if kind == "empirical" or later else [kind])]
    if missing := [name for name in needed if name not in audit.invariants]:
        judged = list(audit.invariants)
        yield Shortfall("invariants", judged, f"the files were not checked for: {', '.join(missing)}", _AGAIN)
    bound, (least, most) = audit.lower_bound, BOUNDS["confidence"]
    if bound is None or not least <= bound.confidence <= most:
        confidence = bound and bound.confidence
        problem = f"no lower bound on ε was computed at a confidence of {least:g} to {most:g}"
        yield Shortfall("attacks.confidence", confidence, problem, _AGAIN)


def _before(audit: AuditSummary) -> Iterator[Shortfall]:
    if audit.blind is None:
        problem = "the model before the deletion was not attacked, so it is open whether the attacks can see a leak"
        yield Shortfall("--before", None, problem, _BEFORE)


_AGAIN = "attack again with the default parameters of `attacks`"
_BEFORE = "attack again with --before, while the model before the deletion is still there"
