"""An audit for people: the report, what the terminal shows, and the numbers that DVC and monitoring keep."""

from collections.abc import Mapping, Sequence
from typing import Any

from mbd.evaluation.metrics import TITLES
from mbd.evaluation.tables import markdown_table
from mbd.formats.leakage import AttackRecord, Decision, Interval, LeakageRecord, UtilityRecord
from mbd.report.text import table

_MARKS: dict[Decision, str] = {"passed": "passed", "refused": "**refused**", "informational": "informational"}
_ABSENT = "–"
ROLES = ("before", "after", "reference")


def leakage_metrics(record: LeakageRecord) -> dict[str, float]:
    """Return the headline numbers: the decision, each attack's first measure on each model, utility, and ε shown."""
    metrics: dict[str, float] = {"passed": float(record.decision == "passed"), "refusals": float(len(record.reasons))}
    headlines: dict[tuple[str, str], AttackRecord] = {}
    for attack in record.attacks:
        if attack.variant == "as released":
            headlines.setdefault((attack.modality, attack.attack), attack)
    for (modality, name), attack in headlines.items():
        metrics |= {f"{modality}_{name}_{role}": found.value for role, found in _by_role(attack).items()}
    for utility in record.utility:
        if utility.decision != "informational":
            metrics |= {f"{utility.metric}_{role}": found.value for role, found in _by_role(utility).items()}
    if record.lower_bound:
        metrics["epsilon_shown"] = record.lower_bound.epsilon
    return {name: round(value, 6) for name, value in metrics.items()}


def leakage_summary(record: LeakageRecord) -> str:
    """Return the attacks on the models as released, what the deletion cost, and the decision, for the terminal."""
    names = ", ".join(record.modalities)
    rows = [
        [f"{a.attack}: {a.measure}", *(_value(found) for found in (a.before, a.after, a.reference)), a.decision]
        for a in record.attacks
        if a.variant == "as released" and a.decision != "informational"
    ]
    rows += [
        [
            f"utility: {_metric(u)} on {u.regime}",
            *(_value(found) for found in (u.before, u.after, u.reference)),
            u.decision,
        ]
        for u in record.utility
        if u.decision != "informational"
    ]
    lines = [f"attacks on what is left of {names}", "", table(["", *ROLES, "gate"], rows), ""]
    others = [a for a in record.attacks if a.variant != "as released"]
    if others:
        refused = sum(a.decision == "refused" for a in others)
        lines.append(f"after rounding and pruning: {len(others)} measures, {refused} refused")
    lines += [f"invariant {i.name}: {i.decision}, {i.reason}" for i in record.invariants]
    if record.lower_bound:
        lines.append(f"ε: {record.lower_bound.reason}")
    return "\n".join([*lines, f"decision: {record.decision}"])


def leakage_report(record: LeakageRecord, figures: Sequence[str] = ()) -> str:
    """Return the whole report as Markdown; `figures` are the names of those that were drawn."""
    parts = ["# Attacks", _decision(record)]
    parts += [f"![{name.replace('_', ' ')}](figures/{name}.png)" for name in figures]
    parts += ["## What the files show", _invariants(record)]
    for modality in record.modalities:
        own = [a for a in record.attacks if a.modality == modality]
        released, worked_on = ([a for a in own if (a.variant == "as released") is yes] for yes in (True, False))
        parts += [f"## Attacks on {modality}", _attacks(released)]
        if worked_on:
            parts += [f"### {modality}, after rounding and pruning", _attacks(worked_on)]
    parts += ["## What it cost", _utility(record)]
    if record.lower_bound:
        parts += ["## ε that was shown", record.lower_bound.reason + "."]
    if record.proxy:
        parts += ["## How well importance tells what a parameter is worth", _proxy(record.proxy)]
    parts += ["## How it was done", _method(record)]
    return "\n\n".join(parts) + "\n"


def _decision(record: LeakageRecord) -> str:
    names = ", ".join(record.modalities)
    if record.decision == "passed":
        return (
            f"**Passed.** No attack on {names} surely succeeds better on the deleted model than on a model that never "
            "saw it; nothing is proven beyond the intervals below."
        )
    return "\n".join(
        [f"**Refused.** The evidence does not show that {names} is gone:", ""] + [f"- {r}" for r in record.reasons]
    )


def _invariants(record: LeakageRecord) -> str:
    lines = [[i.name, _MARKS[i.decision], i.reason] for i in record.invariants]
    return markdown_table(["invariant", "gate", "found"], lines)


def _attacks(records: Sequence[AttackRecord]) -> str:
    header = ["attack", "chance", *ROLES, "after − reference", "gate"]
    lines = [
        [
            f"{a.attack}: {a.measure}" + ("" if a.variant == "as released" else f" ({a.variant})"),
            f"{a.chance:g}",
            *(_interval(found) for found in (a.before, a.after, a.reference, a.difference)),
            _MARKS[a.decision],
        ]
        for a in records
    ]
    notes = [f"- {a.attack}, {a.measure}: {a.reason}" for a in records if a.decision == "refused"]
    return "\n".join([markdown_table(header, lines), *(["", *notes] if notes else [])])


def _utility(record: LeakageRecord) -> str:
    lines = [
        [
            f"{_metric(u)} on {u.regime}",
            *(_interval(found) for found in (u.before, u.after, u.reference, u.to_reference, u.to_before)),
            f"{u.margin:g}",
            _MARKS[u.decision],
        ]
        for u in record.utility
    ]
    return markdown_table(["", *ROLES, "after − reference", "after − before", "margin", "gate"], lines)


def _proxy(facts: Mapping[str, Any]) -> str:
    lines = [
        [
            name,
            f"{facts['chi_max']:g}",
            _number(found["largest_relative_error"], 100, " %"),
            _number(found["share_within_8_percent"], 100, " %"),
            _number(found["overdelete_0.1"], 100, " %"),
            _number(found["spearman"], 1, "", 3),
        ]
        for name in ("swiftprune", "gauss_newton")
        for found in [facts[name]]
    ]
    header = ["proxy", "χ_max", "largest relative error", "within ±8 %", "OverDelete(0.1)", "Spearman ρ"]
    how = (
        f"True leave-one-out increments of {facts['parameters']} parameters, drawn from {facts['sampled_from']}, on "
        f"{facts['rows']} calibration rows."
    )
    return f"{how}\n\n{markdown_table(header, lines)}"


def _method(record: LeakageRecord) -> str:
    suite = record.suite
    settings = suite["parameters"]
    lines = [
        f"- Data: {record.data['name']} (digest {record.data['digest'][:16]}…).",
        *(f"- {role}: weights {digest[:16]}…" for role, digest in record.models.items()),
        f"- Intervals have a confidence of {settings['confidence']:g}; differences count that "
        f"{suite['judged_together']} measures are judged together. Tolerated is {settings['tolerance']:g}.",
    ]
    for modality, rows in suite["rows"].items():
        lines.append(
            f"- {modality}: {rows['attacked']} rows of {', '.join(rows['splits'])}; adversaries fit on {rows['fit']} "
            f"and are scored on {rows['scored']}. The attribute comes from: {rows['attribute']}."
        )
    return "\n".join(lines)


def _by_role(record: AttackRecord | UtilityRecord) -> dict[str, Interval]:
    found = {"before": record.before, "after": record.after, "reference": record.reference}
    return {role: interval for role, interval in found.items() if interval is not None}


def _metric(record: UtilityRecord) -> str:
    return TITLES[record.metric]


def _value(found: Interval | None) -> str:
    return _ABSENT if found is None else f"{found.value:.{_digits(found)}f}"


def _interval(found: Interval | None) -> str:
    if found is None:
        return _ABSENT
    digits = _digits(found)
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} … {found.high:.{digits}f})"


def _digits(found: Interval) -> int:
    return 1 if max(abs(found.value), abs(found.high), abs(found.low)) > 2 else 3


def _number(value: float | None, scale: float, unit: str, digits: int = 1) -> str:
    return _ABSENT if value is None else f"{scale * value:.{digits}f}{unit}"
