"""The content of an audit: attacks beside the reference, utility, and the decision of the gate.

One set of tables and plots, used by the certificate's page, by `report.md` of `mbd attack`
(`audit_page`) and by the pictures (`audit_plots`); the terminal shows the strongest finding of each attack
(`audit_summary`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mbd.evaluation.metrics import ERRORS, TITLES
from mbd.formats.leakage import AttackRecord, AuditSummary, EarlierAudits, LeakageRecord, LowerBound
from mbd.formats.predicate import Evidence
from mbd.formats.strength import power_in_words
from mbd.report.page.content import (
    ABSENT,
    Block,
    Fact,
    Facts,
    Items,
    MeasureRow,
    Page,
    PageSection,
    PageTable,
    Plot,
    Text,
    estimate,
    measures_table,
)
from mbd.report.page.plot import ROLES
from mbd.report.page.words import measure_words
from mbd.report.text import table

_RELEASED = "as released"
_VARIANTS = {_RELEASED: "", "int8": " (INT8)", "pruned": " (pruned)"}
_UTILITY_TITLE = "Utility on the retained modalities"
_UTILITY = (
    *("metric, inputs", *ROLES, "after − reference", "after − before", "may be lost", "decision"),
    "losses that this audit could miss",
)
_READING = (
    "Accuracies and F1 are in percent. No input contains a deleted modality. The brackets hold the interval in which a "
    "value lies with a confidence of {confidence:g} %: from few rows it is wide, and then it says little. A row passes "
    "unless surely more is lost than may be lost, so that a wide interval passes, too: the last column says which "
    "losses against the reference these rows would not reliably have shown."
)
_DESCRIPTION = (
    "Further to the right is more leakage. The released model should match the reference; the shaded band is the "
    "tolerance around it. The dashed line is chance. The table lists the values with their intervals."
)
_NO_ATTACK = (
    "No attacks were run: the claim is that training without these recordings gives the same bytes. The certificate "
    "does not disclose whose recordings they are, so a third party cannot check this alone; the issuer can open the "
    "commitments and train again."
)
_BLIND = (
    "{blind} of {all} measures are blind: at these rows they would not have found the model before the deletion, "
    "so that they find nothing now shows little."
)
_INFORMATIONAL = (
    "Informational: compared with the model before deletion; not part of the gate. The attack diff has the old weights "
    "and puts part of them back into the released model. It shows why copies of the old weights must be removed."
)


def evidence(found: Evidence, leakage: LeakageRecord | None) -> PageSection:
    """Return every attack on the released model beside the reference, or, without `leakage.json`, what was compared."""
    blocks: Iterable[Block] = (Text(text=_NO_ATTACK),)
    if found.audit is not None:
        blocks = _attacks(leakage) if leakage else _compared(found.audit)
    return PageSection(id="evidence", title="Attacks on the released model", blocks=tuple(blocks))


def utility(found: Evidence, leakage: LeakageRecord | None) -> PageSection:
    """Return how well the model still serves on the modalities that it retains."""
    metrics = found.evaluation
    return PageSection(
        id="utility",
        title=_UTILITY_TITLE,
        blocks=(
            *(_utility(leakage) if leakage else ()),
            PageTable(
                caption=f"The released model on {', '.join(metrics.modalities)} ({metrics.rows:,} test rows)",
                header=("metric", "value"),
                rows=tuple((TITLES.get(n, n), f"{value:.{_digits(n)}f}") for n, value in metrics.metrics.items()),
            ),
        ),
    )


def _compared(audit: AuditSummary) -> Iterator[Block]:
    """Yield what a certificate alone says of its audit."""
    tolerance = audit.tolerance or 0.0
    yield Text(
        text=f"Decision of the gate: {audit.decision}. A measure passes if what the attack surely gets beyond the "
        f"reference and beyond chance is at most {tolerance:g}, and what it may get at least {-tolerance:g}"
        f". leakage.json, which has all numbers, is not at hand. {_earlier(audit.earlier)}"
    )
    for modality, measures in audit.measures.items():
        rows = tuple(
            (measure_words(name, modality) + _VARIANTS[variant], f"{m.low:+.3f}", f"{m.high:+.3f}", m.decision)
            for name, variants in measures.items()
            for variant, m in variants.items()
        )
        header = ("measure", "at least", "at most", "decision")
        yield PageTable(caption=f"Attacks on {modality}", header=header, rows=rows)


def audit_page(record: LeakageRecord) -> Page:
    """Return the report of an audit: the decision, every judged measure, utility, and how it was made."""
    reasons = (PageSection(id="reasons", title="Why it is refused", blocks=(Items(items=record.reasons),)),)
    sections = (
        *(reasons if record.reasons else ()),
        PageSection(id="attacks", title="Attacks", blocks=tuple(_attacks(record))),
        PageSection(id="utility", title=_UTILITY_TITLE, blocks=tuple(_utility(record))),
        _method(record),
    )
    return Page(kind="Audit", title=_title(record), summary=(_summary(record),), glance=(), sections=sections)


def audit_summary(record: LeakageRecord, width: int | None = None) -> str:
    """Return for the terminal: the decision, the strongest finding of each attack and utility; then what else counts.

    Args:
        record: The audit.
        width: Columns of the table; by default those of the terminal.

    """
    judged = [a for a in record.attacks if a.variant == _RELEASED and a.decision != "informational"]
    rows: list[list[object]] = []
    for modality, attack in dict.fromkeys((a.modality, a.attack) for a in judged):
        own = [a for a in judged if (a.modality, a.attack) == (modality, attack)]
        strongest = max(own, key=lambda a: a.difference.value if a.difference else 0.0)
        values = (strongest.before, strongest.after, strongest.reference)
        numbers = [ABSENT if each is None else f"{each.value:.3f}" for each in values]
        passed, blind = sum(a.passes for a in own), sum(a.blind is True for a in own)
        rows.append([measure_words(strongest.id, modality), *numbers, f"{passed} of {len(own)}", blind])
    header = ["strongest measure of each attack", *ROLES, "passed", "blind"]
    utility = [
        f"{TITLES.get(u.metric, u.metric)} on {u.regime}: {u.decision}, {u.after.value:.{_digits(u.metric)}f} "
        f"(reference {u.reference.value:.{_digits(u.metric)}f})"
        for u in record.utility
        if u.decision != "informational"
    ]
    more = [
        f"Power: {power_in_words(record)}.",
        _BLIND.format(blind=sum(a.blind is True for a in judged), all=len(judged)),
    ]
    return "\n".join([_title(record), table(header, rows, width), *utility, "", *more])


def audit_plots(record: LeakageRecord) -> Iterator[Plot]:
    """Yield the forest plots of an audit."""
    return (block for block in _attacks(record) if isinstance(block, Plot))


def plot_of(attacks: Sequence[AttackRecord], name: str, title: str, *, folded: bool = False) -> Plot:
    """Return the forest plot of some measures."""
    measures = tuple(map(_measure, attacks))
    return Plot(name=name, title=title, description=_DESCRIPTION, measures=measures, folded=folded)


class Leaks(NamedTuple):
    """How many measures of attacks, on the weights as released, find the deleted modalities."""

    before: int
    """in the model before"""
    after: int
    """more than in the reference, in the model after"""
    measures: int
    """that were judged"""


def leaks(record: LeakageRecord) -> Leaks:
    """Return how many measures find something before and after the deletion."""
    judged = [a for a in record.attacks if a.variant == _RELEASED and a.decision != "informational"]
    return Leaks(sum(a.blind is False for a in judged), sum(not a.passes for a in judged), len(judged))


def leakage_metrics(record: LeakageRecord) -> dict[str, float]:
    """Return the headline numbers: the first utility after the deletion, that of the reference, and :func:`leaks`."""
    utility = next((measured for measured in record.utility if measured.decision != "informational"), None)
    leaking = leaks(record)
    metrics: dict[str, float] = {"leaks_before": leaking.before, "leaks": leaking.after}
    if utility:
        metrics[f"{utility.metric}_deleted"] = round(utility.after.value, 2)
        metrics[f"{utility.metric}_reference"] = round(utility.reference.value, 2)
    return metrics


def _title(record: LeakageRecord) -> str:
    names = ", ".join(record.modalities)
    return f"Passed: attacks found no {names}" if record.decision == "passed" else f"Refused: {names} may not be gone"


def _summary(record: LeakageRecord) -> str:
    if record.decision == "refused":
        return "The gate refuses the model for the reasons below."
    return (
        "No attack succeeds significantly better on the released model than on a model that never saw "
        f"{', '.join(record.modalities)}. This shows no more than the intervals below."
    )


def _attacks(leakage: LeakageRecord) -> Iterator[Block]:
    yield Text(
        text=f"Decision of the gate: {leakage.decision}. Each value is shown beside the same attack on the reference, "
        f"a model that never saw what was deleted. {_earlier(leakage.earlier)}"
    )
    yield Text(text=f"Power: {power_in_words(leakage)}.")
    for modality in leakage.modalities:
        suffix = f"_{modality}" if len(leakage.modalities) > 1 else ""
        own = [a for a in leakage.attacks if a.modality == modality]
        judged = [a for a in own if a.decision != "informational"]
        released = [a for a in judged if a.variant == _RELEASED]
        changed = [a for a in judged if a.variant != _RELEASED]
        yield plot_of(released, f"leakage{suffix}", f"Attacks on {modality}")
        if blind := sum(a.blind is True for a in released):
            yield Text(text=_BLIND.format(blind=blind, all=len(released)))
        if changed:
            yield Text(text=_durability(modality, changed))
            title = f"Attacks on {modality} after rounding or pruning"
            yield plot_of(changed, f"durability{suffix}", title, folded=True)
        if informational := [a for a in own if a.decision == "informational"]:
            yield Text(text=_INFORMATIONAL)
            yield measures_table(f"Informational attacks on {modality}", list(map(_measure, informational)))
    checked = [f"{invariant.name}: {invariant.decision}; {invariant.reason}" for invariant in leakage.invariants]
    checked += [_bound(leakage.lower_bound)] if leakage.lower_bound else []
    if checked:
        yield Text(text="Invariants of the files, and the lower bound on ε that the attacks show:")
        yield Items(items=tuple(checked))


def _earlier(found: EarlierAudits | None) -> str:
    """Return in one sentence how often deletions of the same modalities from the same weights were audited before."""
    if found is None:
        return "Earlier audits of such deletions from the same model were not counted."
    if not found.audits:
        return "Beside the ledgers, no earlier audit of such a deletion from the same model is recorded."
    return (
        "Beside the ledgers, earlier audits of such deletions from the same model are recorded: "
        f"{found.audits}, of which refused: {found.refused}."
    )


def _measure(attack: AttackRecord) -> MeasureRow:
    fields = ("chance", "before", "after", "reference", "difference", "tolerance", "blind", "decision")
    label = measure_words(attack.id, attack.modality) + _VARIANTS[attack.variant]
    return MeasureRow(label=label, **{name: getattr(attack, name) for name in fields})


def _durability(modality: str, attacks: Sequence[AttackRecord]) -> str:
    """Return in one sentence whether rounding or pruning brings the modality back."""
    largest = max((a.difference.value for a in attacks if a.difference), default=None)
    passed = sum(attack.decision == "passed" for attack in attacks)
    most = "" if largest is None else f"; the largest difference from the reference is {largest:+.3f}"
    return f"After INT8 rounding or pruning, {passed} of {len(attacks)} measures of {modality} passed{most}."


def _bound(bound: LowerBound) -> str:
    claimed = "no ε is claimed" if bound.claimed is None else f"the claim is ε = {bound.claimed:g}"
    return (
        f"ε: {bound.decision}. The attacks show ε ≥ {bound.epsilon:.4g} at δ = {bound.delta:g} with "
        f"{100 * bound.confidence:g} % confidence ({bound.measure}, by {bound.by}); {claimed}."
    )


def _utility(leakage: LeakageRecord) -> Iterator[Block]:
    if not leakage.utility:
        return
    yield Text(text=_READING.format(confidence=100 * leakage.suite.parameters["confidence"]))
    rows = tuple(
        (
            f"{TITLES.get(u.metric, u.metric)}, {u.regime}",
            *(
                estimate(part, _digits(u.metric))
                for part in (u.before, u.after, u.reference, u.to_reference, u.to_before)
            ),
            f"{u.margin:g}",
            u.decision,
            "any" if u.detectable is None else f"below {u.detectable:.{_digits(u.metric)}f}",
        )
        for u in leakage.utility
    )
    yield PageTable(caption="Utility beside the model before and the reference", header=_UTILITY, rows=rows)


def _method(record: LeakageRecord) -> PageSection:
    suite, settings = record.suite, record.suite.parameters
    items = [
        f"Intervals have a confidence of {100 * settings['confidence']:g} %; those of differences are corrected for "
        f"{suite.judged_together} measures judged together. The tolerance is {settings['tolerance']:g}."
    ]
    items += [
        f"{modality}: {rows.attacked} rows of {', '.join(rows.splits)}; the attacks are fitted on {rows.fit} "
        f"and scored on {rows.scored}. Source of the attribute: {rows.attribute}."
        for modality, rows in suite.rows.items()
    ]
    facts = (
        Fact(name="data", value=record.data["name"]),
        Fact(name="data (SHA-256)", value=record.data["digest"], code=True),
        *(Fact(name=f"weights {role} (SHA-256)", value=digest, code=True) for role, digest in record.models.items()),
    )
    return PageSection(id="method", title="Setup", blocks=(Items(items=tuple(items)), Facts(facts=facts)))


def _digits(metric: str) -> int:
    return 3 if metric in ERRORS["regression"] else 1
