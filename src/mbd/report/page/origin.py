"""What was done to the weights, what it has cost, who asked, where it comes from, and what is left of the old."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from mbd.formats.predicate import DigestOrCommitment, Erasure, LineageBudget, Predicate
from mbd.formats.purge import PurgeReport
from mbd.report.page.content import ABSENT, Block, Fact, Facts, Items, PageSection, PageTable, Text
from mbd.report.page.words import forgotten

_CLAIMS = {
    "none": "Nothing is claimed.",
    "partial": "Partly erased.",
    "complete": "Erased wherever it was searched.",
}


def weights(predicate: Predicate) -> PageSection:
    """Return what was removed and edited."""
    return PageSection(
        id="weights", title="What was done to the weights", blocks=(Items(items=tuple(_done(predicate))),)
    )


def _done(predicate: Predicate) -> Iterator[str]:
    edit, absent = predicate.edit, predicate.structure.absent
    for names, what in (
        (absent.belongs_to, "No tensor of the model exists for {} alone."),
        (absent.reads, "No input column of any tensor reads {}; the model takes no such input."),
        (absent.sees, "No tensor that is left has seen {} in training."),
    ):
        if names:
            yield what.format(", ".join(names))
    yield {
        "none": "No single position was edited.",
        "zero": f"{edit.count:,} positions in {len(edit.by_tensor)} tensors were set to zero.",
        "noise": f"Noise was added at {edit.count:,} positions in {len(edit.by_tensor)} tensors.",
        "all": f"All {edit.count:,} numbers in {len(edit.by_tensor)} tensors are new: clipped, noised, fine-tuned.",
    }[edit.kind]
    if noise := predicate.noise:
        yield f"Noise: σ = {noise.sigma:.6g}, {noise.stream}; its key is {noise.key}, commitment {noise.commitment}."
    if calibration := predicate.calibration:
        yield f"Calibration rows: {calibration.used:,} of {calibration.requested:,} asked for."
        if calibration.note:
            yield calibration.note


def budget(predicate: Predicate) -> Iterator[PageSection]:
    """Yield the arithmetic of (ε, δ), where there is one."""
    spent = predicate.budget
    if spent is None:
        return
    arithmetic = (
        f"C = {spent.clip_radius:g}, Δ = {spent.sensitivity:g}, σ = {spent.sigma:.9g} at δ = {spent.delta:g} gives "
        f"ε = {spent.epsilon:g} by the analytic Gaussian mechanism, and ρ = Δ²/2σ² = {spent.rho:.6g}. {spent.reason}"
    )
    yield PageSection(id="budget", title="The privacy budget", blocks=(Text(text=arithmetic), _spending(spent.lineage)))


def _spending(lineage: LineageBudget) -> PageTable:
    share = 100 * lineage.epsilon_after / lineage.limit
    return PageTable(
        caption=f"The whole lineage has spent {share:.0f} % of its limit",
        header=("the whole lineage", "ρ", "ε"),
        rows=(
            ("before this deletion", f"{lineage.rho_before:.6g}", f"{lineage.epsilon_before:.4g}"),
            ("with it", f"{lineage.rho_after:.6g}", f"{lineage.epsilon_after:.4g}"),
            ("limit", ABSENT, f"{lineage.limit:g}"),
        ),
    )


def request(predicate: Predicate, answered: Sequence[str] = ()) -> PageSection:
    """Return who asked and which dates there are; `answered`: ids of requests in the store that led to this."""
    asked = predicate.request
    facts = [
        Fact(name="request", value=asked.reference or ABSENT),
        Fact(name="received", value=day(asked.received)),
        Fact(name="due", value=day(asked.due) + _in_time(predicate)),
        Fact(name="issued", value=f"{predicate.issued:%Y-%m-%d %H:%M:%S} UTC"),
        Fact(name="to be attacked again by", value=day(predicate.reaudit_by)),
        Fact(name="replaces", value=predicate.supersedes or ABSENT, code=predicate.supersedes is not None),
    ]
    if answered:
        facts.append(Fact(name="requests answered by it", value=", ".join(answered)))
    return PageSection(id="request", title="Request and dates", blocks=(Facts(facts=tuple(facts)),))


def _in_time(predicate: Predicate) -> str:
    due = predicate.request.due
    return "" if due is None else ", kept" if predicate.issued <= due else ", missed"


def copies(claim: Erasure, purge: PurgeReport | None) -> PageSection:
    """Return what is claimed about copies of the old weights, and by the last purge place by place."""
    blocks: list[Block] = [Text(lead=_CLAIMS[claim.claim], text=claim.note)]
    if purge:
        blocks.append(
            PageTable(
                caption=f"Places that were searched, by the statement of {day(purge.issued)}",
                header=("place", "found", "removed", "left", "shown to be empty", "why not"),
                rows=tuple(
                    (p.kind, str(p.found), str(p.removed), str(p.left), _yes(p.gone), "; ".join(p.reasons) or ABSENT)
                    for p in purge.places
                ),
            )
        )
    return PageSection(id="copies", title="Copies of the old weights", blocks=tuple(blocks))


def origin(predicate: Predicate) -> PageSection:
    """Return what the model came from, and where that happened."""
    lineage = predicate.lineage
    facts = [
        Fact(name="the model takes", value=_inputs(predicate)),
        Fact(name="forgotten by this deletion", value=forgotten(predicate)),
        Fact(name="revoked so far", value=", ".join(predicate.deleted.revoked) or ABSENT),
        _told("weights before", lineage.before),
        *(_told(f"model {number} of the lineage", told) for number, told in enumerate(lineage.models, 1)),
        Fact(name="data", value=lineage.data_name),
        _told("data files", lineage.data),
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
    return PageSection(
        id="origin", title="Where it comes from", blocks=(Facts(facts=tuple(facts)), _versions(predicate))
    )


def _inputs(predicate: Predicate) -> str:
    return ", ".join(f"{name} ({dim})" for name, dim in predicate.structure.inputs.items())


def _versions(predicate: Predicate) -> PageTable:
    steps = list(predicate.environment)
    packages = dict.fromkeys(name for versions in predicate.environment.values() for name in versions)
    return PageTable(
        caption="Versions of the software, by step",
        header=("software", *steps),
        rows=tuple((name, *(predicate.environment[step].get(name, ABSENT) for step in steps)) for name in packages),
        folded=True,
    )


def _told(name: str, told: DigestOrCommitment) -> Fact:
    kind = "SHA-256" if told.sha256 else "commitment"
    return Fact(name=f"{name} ({kind})", value=told.sha256 or told.commitment or ABSENT, code=True)


def day(time: datetime | None) -> str:
    """Return a date as people write it here."""
    return f"{time:%Y-%m-%d}" if time else ABSENT


def _yes(value: bool) -> str:
    return "yes" if value else "no"
