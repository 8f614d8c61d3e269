"""Changes to the weights, privacy budget, request, provenance, and copies of the old weights."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from mbd.formats.guarantee import LineageBudget
from mbd.formats.predicate import DigestOrCommitment, Erasure, Predicate
from mbd.formats.statement import PurgeReport
from mbd.report.page.content import ABSENT, Block, Fact, Facts, Items, PageSection, PageTable, Text
from mbd.report.page.words import deadline
from mbd.verifier.verdict import begin_sentence


def weights(predicate: Predicate) -> PageSection:
    """Return what was removed and edited."""
    return PageSection(id="weights", title="Changes to the weights", blocks=(Items(items=tuple(_done(predicate))),))


def _done(predicate: Predicate) -> Iterator[str]:
    edit, absent = predicate.edit, predicate.structure.absent
    for names, what in (
        (absent.belongs_to, "No tensor of the model belongs to {} alone."),
        (absent.reads, "No input column of any tensor reads {}; the model takes no such input."),
        (absent.sees, "No remaining tensor saw {} in training."),
    ):
        if names:
            yield what.format(", ".join(names))
    yield {
        "none": "No position was edited.",
        "zero": f"{edit.count:,} positions were set to zero.",
        "noise": f"Noise was added at {edit.count:,} positions.",
        "all": f"All {edit.count:,} parameters were clipped, noised and fine-tuned.",
    }[edit.kind]
    if rounding := predicate.rounding:
        yield (
            f"Every number was rounded to {rounding.mantissa_bits} bits of its mantissa; lower bits are zero and carry "
            f"nothing. Chosen by {rounding.chosen_by}: {rounding.loss:.6g} before, {rounding.loss_rounded:.6g} after, "
            f"on {rounding.rows:,} rows."
        )
    if noise := predicate.noise:
        yield f"Noise: σ = {noise.sigma:.6g}, {noise.stream}; key: {noise.key}; commitment: {noise.commitment}."
    if calibration := predicate.calibration:
        yield f"Calibration rows: {calibration.used:,} of {calibration.requested:,} requested."
        if calibration.note:
            yield calibration.note


def budget(predicate: Predicate) -> Iterator[PageSection]:
    """Yield the arithmetic of (ε, δ), if the deletion spent a budget."""
    spent = predicate.budget
    if spent is None:
        return
    arithmetic = (
        f"C = {spent.clip_radius:g}, Δ = {spent.sensitivity:g}, σ = {spent.sigma:.9g} at δ = {spent.delta:g} gives "
        f"ε = {spent.epsilon:g} by the analytic Gaussian mechanism, and ρ = Δ²/2σ² = {spent.rho:.6g}. {spent.reason}"
    )
    yield PageSection(id="budget", title="Privacy budget", blocks=(Text(text=arithmetic), _spending(spent.lineage)))


def _spending(lineage: LineageBudget) -> PageTable:
    share = 100 * lineage.epsilon_after / lineage.limit
    return PageTable(
        caption=f"The lineage has spent {share:.0f} % of its limit",
        header=("lineage", "ρ", "ε"),
        rows=(
            ("before this deletion", f"{lineage.rho_before:.6g}", f"{lineage.epsilon_before:.4g}"),
            ("after it", f"{lineage.rho_after:.6g}", f"{lineage.epsilon_after:.4g}"),
            ("limit", ABSENT, f"{lineage.limit:g}"),
        ),
    )


def request(predicate: Predicate, answered: Sequence[str] = ()) -> PageSection:
    """Return the request and its dates; `answered`: ids of the requests in the store that led to it."""
    requested, facts = predicate.request, list[Fact]()
    if requested.reference:
        facts.append(Fact(name="request", value=requested.reference))
    if requested.received:
        facts.append(Fact(name="received", value=day(requested.received)))
    if requested.due:
        outcome = "met" if predicate.issued <= requested.due else "missed"
        facts.append(Fact(name="due", value=f"{day(requested.due)}, {outcome}"))
    title = "Request and dates" if facts or answered else "Dates"
    facts += [
        Fact(name="issued", value=f"{predicate.issued:%Y-%m-%d %H:%M:%S} UTC"),
        Fact(name=deadline(predicate), value=day(predicate.reaudit_by)),
    ]
    if predicate.supersedes:
        facts.append(Fact(name="replaces", value=predicate.supersedes, code=True))
    if answered:
        facts.append(Fact(name="requests answered by it", value=", ".join(answered)))
    return PageSection(id="request", title=title, blocks=(Facts(facts=tuple(facts)),))


def copies(claim: Erasure, purge: PurgeReport | None) -> PageSection:
    """Return the claim about copies of the old weights, and what the last purge found in each place."""
    blocks: list[Block] = [Text(lead=f"{begin_sentence(claim.words)}.", text=claim.note)]
    if purge:
        blocks.append(
            PageTable(
                caption=f"Places searched, according to the purge statement of {day(purge.issued)}",
                header=("place", "found", "removed", "left", "verified empty", "reason"),
                rows=tuple(
                    (
                        *(p.kind, str(p.found), str(p.removed), str(p.left)),
                        *("yes" if p.gone else "no", "; ".join(p.reasons) or ABSENT),
                    )
                    for p in purge.places
                ),
            )
        )
    return PageSection(id="copies", title="Copies of the old weights", blocks=tuple(blocks))


def origin(predicate: Predicate) -> PageSection:
    """Return what the model came from, and the environment that produced it."""
    lineage = predicate.lineage
    inputs = ", ".join(f"{name} ({dim})" for name, dim in predicate.structure.inputs.items())
    facts = [
        Fact(name="inputs of the model", value=inputs),
        Fact(name="deleted now", value=predicate.deleted.words),
        Fact(name="revoked in total", value=", ".join(predicate.deleted.revoked) or ABSENT),
        _digest("weights before", lineage.before),
        *(_digest(f"model {number} of the lineage", model) for number, model in enumerate(lineage.models, 1)),
        Fact(name="data", value=lineage.data_name),
        _digest("data files", lineage.data),
        *(
            Fact(name=name, value=value or ABSENT, code=value is not None)
            for name, value in {
                "DVC revision": lineage.dvc_revision,
                "git commit": lineage.git_commit,
                "image": lineage.image_digest,
                "run": lineage.run_id,
            }.items()
        ),
    ]
    return PageSection(id="origin", title="Provenance", blocks=(Facts(facts=tuple(facts)), _versions(predicate)))


def _versions(predicate: Predicate) -> PageTable:
    by_step = {step: group.versions for group in predicate.environment for step in group.steps}
    packages = dict.fromkeys(name for versions in by_step.values() for name in versions)
    return PageTable(
        caption="Software versions by step",
        header=("software", *by_step),
        rows=tuple((name, *(versions.get(name, ABSENT) for versions in by_step.values())) for name in packages),
        folded=True,
    )


def _digest(name: str, value: DigestOrCommitment) -> Fact:
    kind = "SHA-256" if value.sha256 else "commitment"
    return Fact(name=f"{name} ({kind})", value=value.sha256 or value.commitment or ABSENT, code=True)


def day(time: datetime | None) -> str:
    """Return a date as YYYY-MM-DD."""
    return f"{time:%Y-%m-%d}" if time else ABSENT
