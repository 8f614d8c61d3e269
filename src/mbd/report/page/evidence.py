"""What was tried on the released model, and what it is still worth."""

from collections.abc import Iterator, Sequence

from mbd.evaluation.metrics import ERRORS, TITLES
from mbd.formats.leakage import AttackRecord, LeakageRecord
from mbd.formats.predicate import Evidence
from mbd.report.page.content import ABSENT, Block, Items, MeasureRow, PageSection, PageTable, Plot, Text, interval

_RELEASED = "as released"
_DONE = {"int8": "rounded to INT8", "pruned": "pruned"}
_HEADER = ("attack", "chance", "before", "after", "reference", "after − reference", "may differ by", "decision")
_NO_ATTACK = (
    "No attack: the claim is that training without these recordings gives the same bits. Whose they are is not told, "
    "so a stranger cannot check it alone; the issuer can open the commitments and train again."
)
_TOLD = (
    "What follows decides nothing. The adversary diff still has the old weights and puts a part of them back into the "
    "released model: what he finds shows why copies of the old weights have to go."
)


def evidence(found: Evidence) -> PageSection:
    """Return every attack beside the reference."""
    blocks = (Text(text=_NO_ATTACK),) if found.leakage is None else tuple(_attacks(found.leakage))
    return PageSection(id="evidence", title="What was tried on the released model", blocks=blocks)


def _attacks(leakage: LeakageRecord) -> Iterator[Block]:
    yield Text(
        text=f"The gate has {leakage.decision} it. Each number stands beside the same attack on the reference, a model "
        "that never saw what was deleted; in brackets the interval."
    )
    for modality in leakage.modalities:
        own = [a for a in leakage.attacks if a.modality == modality and a.variant == _RELEASED]
        yield _plot(modality, [attack for attack in own if attack.decision != "informational"])
        if told := [attack for attack in own if attack.decision == "informational"]:
            yield Text(text=_TOLD)
            yield _table(f"Told of {modality}, and decides nothing", told)
    for variant, attacks in _variants(leakage).items():
        yield from _durability(variant, attacks)
    found = [f"{invariant.name}: {invariant.decision}. {invariant.reason}" for invariant in leakage.invariants]
    if bound := leakage.lower_bound:
        claimed = "no ε is claimed" if bound.claimed is None else f"claimed is ε = {bound.claimed:g}"
        found.append(
            f"ε: {bound.decision}. The attacks have shown ε ≥ {bound.epsilon:.4g} at δ = {bound.delta:g} and "
            f"{100 * bound.confidence:g} % confidence ({bound.attack}); {claimed}."
        )
    if found:
        yield Text(text="Looked up in the files, and computed from the attacks:")
        yield Items(items=tuple(found))


def _plot(modality: str, attacks: Sequence[AttackRecord]) -> Plot:
    title = f"What attacks find of {modality}"
    return Plot(
        title=title,
        description="Further to the right is more leakage. The released model should stand where the reference stands; "
        "the shaded band is how far it may differ. The dashed line is chance.",
        measures=tuple(map(_measure, attacks)),
        table=_table(f"{title}, in numbers", attacks),
    )


def _table(caption: str, attacks: Sequence[AttackRecord]) -> PageTable:
    return PageTable(caption=caption, header=_HEADER, rows=tuple(map(_row, attacks)), folded=True)


def _measure(attack: AttackRecord) -> MeasureRow:
    return MeasureRow(
        label=f"{attack.attack}: {attack.measure}",
        chance=attack.chance,
        tolerance=attack.tolerance,
        before=attack.before,
        after=attack.after,
        reference=attack.reference,
        decision=attack.decision,
    )


def _durability(variant: str, attacks: Sequence[AttackRecord]) -> Iterator[Block]:
    """Yield what is left of the deletion once somebody has worked on the model."""
    worst = max((a.difference.value for a in attacks if a.difference), default=None)
    passed = sum(attack.decision == "passed" for attack in attacks)
    most = "" if worst is None else f"; the largest difference to the reference is {worst:.3f}"
    done = f"The same on models that were {_DONE[variant]}"
    yield Text(text=f"{done}: {passed} of {len(attacks)} measures passed{most}.")
    yield _table(done, attacks)


def _variants(leakage: LeakageRecord) -> dict[str, list[AttackRecord]]:
    found: dict[str, list[AttackRecord]] = {}
    for attack in leakage.attacks:
        if attack.variant != _RELEASED:
            found.setdefault(attack.variant, []).append(attack)
    return found


def _row(attack: AttackRecord) -> tuple[str, ...]:
    return (
        f"{attack.attack} on {attack.modality}: {attack.measure}",
        f"{attack.chance:.3g}",
        *(interval(part) for part in (attack.before, attack.after, attack.reference, attack.difference)),
        ABSENT if attack.tolerance is None else f"{attack.tolerance:g}",
        attack.decision,
    )


def utility(found: Evidence) -> PageSection:
    """Return what the model is worth on the modalities that it still takes."""
    blocks: list[Block] = [Text(text="On the modalities that it still takes. Accuracies and F1 are in percent.")]
    if found.leakage and found.leakage.utility:
        rows = tuple(
            (
                f"{TITLES.get(u.metric, u.metric)}, {u.regime}",
                *(interval(part, _digits(u.metric)) for part in (u.before, u.after, u.reference)),
                f"{u.margin:g}",
                u.decision,
            )
            for u in found.leakage.utility
        )
        header = ("metric, modalities given", "before", "after", "reference", "may lose", "decision")
        blocks.append(PageTable(caption="Utility beside the model before and the reference", header=header, rows=rows))
    metrics = found.evaluation
    blocks.append(
        PageTable(
            caption=f"The released model on {', '.join(metrics.modalities)} ({metrics.rows:,} test rows)",
            header=("metric", "value"),
            rows=tuple((TITLES.get(n, n), f"{value:.{_digits(n)}f}") for n, value in metrics.metrics.items()),
        )
    )
    return PageSection(id="utility", title="What the model is still worth", blocks=tuple(blocks))


def _digits(metric: str) -> int:
    return 3 if metric in ERRORS["regression"] else 1
