"""A certificate in plain words, as Markdown: the page of its bundle, and what `mbd certificate show` prints."""

from collections.abc import Iterator

from mbd.certificate.predicate import Predicate, Told
from mbd.evaluation.leakage import AttackRecord, Interval, LeakageRecord
from mbd.evaluation.tables import markdown_table

_ABSENT = "–"
_KINDS = {
    "empirical": "**Empirical: nothing is proven.** The attacks below were tried on the released model and found no "
    "more than on a model that never saw what was deleted.",
    "certified": "**Certified.** Under the assumptions below, the released weights are indistinguishable within "
    "ε = {epsilon:g}, δ = {delta:g} from what they would be without what was deleted.",
    "exact": "**Exact.** Under the assumptions below, the released weights are, bit for bit, those of a model that "
    "never saw what was deleted (ε = 0).",
}

_DONE = {"int8": "rounded to INT8", "pruned": "pruned"}


def certificate_report(predicate: Predicate, weights: str) -> str:
    """Return the whole report; `weights` is the SHA-256 of the released weights."""
    sections = [
        _title(predicate, weights),
        _guarantee(predicate),
        _removed(predicate),
        _budget(predicate),
        _evidence(predicate),
        _origin(predicate),
        _limits(predicate),
        _checking(predicate),
    ]
    return "\n\n".join("\n\n".join(part) for part in map(list, sections) if part) + "\n"


def _title(predicate: Predicate, weights: str) -> Iterator[str]:
    deleted = predicate.deleted
    names = ", ".join(deleted.modalities)
    count = len(deleted.subjects)
    what = f"the recordings of {count} subject{'s' * (count > 1)} in {names}" if count else names
    yield "# Modality Deletion Certificate"
    yield (
        f"The model **{predicate.model}** has forgotten **{what}**. Issued {predicate.issued:%Y-%m-%d %H:%M:%S} UTC; "
        f"to be attacked again by {predicate.reaudit_by:%Y-%m-%d}."
    )
    facts = {
        "released weights (SHA-256)": f"`{weights}`",
        "method": predicate.method.name + (f", {predicate.method.variant}" if predicate.method.variant else ""),
        "the model takes": ", ".join(f"{name} ({dim})" for name, dim in predicate.structure.inputs.items()),
        "revoked so far": ", ".join(deleted.revoked) or _ABSENT,
        "request": predicate.request.reference or _ABSENT,
        "received / due": " / ".join(
            f"{time:%Y-%m-%d}" if time else _ABSENT for time in (predicate.request.received, predicate.request.due)
        ),
        "replaces": f"`{predicate.supersedes}`" if predicate.supersedes else _ABSENT,
    }
    yield _facts(facts)


def _guarantee(predicate: Predicate) -> Iterator[str]:
    guarantee = predicate.guarantee
    yield "## What is guaranteed"
    yield _KINDS[guarantee.kind].format(epsilon=guarantee.epsilon, delta=guarantee.delta)
    if guarantee.assumptions:
        yield "This holds under these assumptions:"
        yield _list(guarantee.assumptions)


def _removed(predicate: Predicate) -> Iterator[str]:
    edit, absent = predicate.edit, predicate.structure.absent
    yield "## What was done to the weights"
    said = []
    for names, what in (
        (absent.belongs_to, "No tensor of the model exists for {} alone."),
        (absent.reads, "No input column of any tensor reads {}; the model takes no such input."),
        (absent.sees, "No tensor that is left has seen {} in training."),
    ):
        if names:
            said.append(what.format(", ".join(names)))
    said.append(
        {
            "none": "No single position was edited.",
            "zero": f"{edit.count:,} positions in {len(edit.by_tensor)} tensors were set to zero.",
            "noise": f"Noise was added at {edit.count:,} positions in {len(edit.by_tensor)} tensors.",
            "all": f"All {edit.count:,} numbers in {len(edit.by_tensor)} tensors are new: clipped, noised, fine-tuned.",
        }[edit.kind]
    )
    if predicate.noise:
        noise = predicate.noise
        said.append(
            f"Noise: σ = {noise.sigma:.6g}, {noise.stream}; its key is {noise.key}, commitment `{noise.commitment}`."
        )
    if predicate.calibration:
        calibration = predicate.calibration
        said.append(f"Calibration rows: {calibration.used:,} of {calibration.requested:,} asked for.")
        said += [calibration.note] if calibration.note else []
    yield _list(said)


def _budget(predicate: Predicate) -> Iterator[str]:
    budget = predicate.budget
    if budget is None:
        return
    lineage = budget.lineage
    yield "## The privacy budget"
    yield (
        f"C = {budget.clip_radius:g}, Δ = {budget.sensitivity:g}, σ = {budget.sigma:.9g} at δ = {budget.delta:g} gives "
        f"ε = {budget.epsilon:g} by the analytic Gaussian mechanism, and ρ = Δ²/2σ² = {budget.rho:.6g}. {budget.reason}"
    )
    rows = [
        ["before this deletion", f"{lineage.rho_before:.6g}", f"{lineage.epsilon_before:.4g}"],
        ["with it", f"{lineage.rho_after:.6g}", f"{lineage.epsilon_after:.4g}"],
        ["limit", _ABSENT, f"{lineage.limit:g}"],
    ]
    yield markdown_table(["the whole lineage", "ρ", "ε"], rows)


def _evidence(predicate: Predicate) -> Iterator[str]:
    yield "## What was tried on the released model"
    leakage = predicate.evidence.leakage
    if leakage is None:
        yield (
            "No attack: the claim is that training without these recordings gives the same bits. Whose they are is not "
            "told, so a stranger cannot check it alone; the issuer can open the commitments and train again."
        )
    else:
        yield from _attacks(leakage)
    evaluation = predicate.evidence.evaluation
    yield (
        f"Metrics of the released model on {', '.join(evaluation.modalities)} ({evaluation.rows:,} test rows): "
        + ", ".join(f"{name} {value:g}" for name, value in evaluation.metrics.items())
        + "."
    )


def _attacks(leakage: LeakageRecord) -> Iterator[str]:
    yield (
        f"The gate has {leakage.decision} it. Each number stands beside the same attack on the reference, a model that "
        "never saw what was deleted; in brackets the interval."
    )
    header = ["attack", "chance", "before", "after", "reference", "after − reference", "may differ by", "decision"]
    yield markdown_table(header, [_attack(attack) for attack in leakage.attacks if attack.variant == "as released"])
    for variant, attacks in _variants(leakage).items():
        worst = max((a.difference.value for a in attacks if a.difference), default=None)
        passed = sum(attack.decision == "passed" for attack in attacks)
        most = "" if worst is None else f"; the largest difference to the reference is {worst:.3f}"
        yield f"The same on models that were {_DONE[variant]}: {passed} of {len(attacks)} measures passed{most}."
    if leakage.utility:
        rows = [
            [f"{u.metric}, {u.regime}", _interval(u.before), _interval(u.after), _interval(u.reference), u.decision]
            for u in leakage.utility
        ]
        yield markdown_table(["utility", "before", "after", "reference", "decision"], rows)
    found = [f"{invariant.name}: {invariant.decision}. {invariant.reason}" for invariant in leakage.invariants]
    if bound := leakage.lower_bound:
        claimed = _ABSENT if bound.claimed is None else f"{bound.claimed:g}"
        found.append(
            f"The attacks have shown ε ≥ {bound.epsilon:.4g} at {100 * bound.confidence:g} % confidence "
            f"({bound.attack}); claimed is {claimed}. {bound.reason}"
        )
    if found:
        yield _list(found)


def _variants(leakage: LeakageRecord) -> dict[str, list[AttackRecord]]:
    found: dict[str, list[AttackRecord]] = {}
    for attack in leakage.attacks:
        if attack.variant != "as released":
            found.setdefault(attack.variant, []).append(attack)
    return found


def _attack(attack: AttackRecord) -> list[str]:
    return [
        f"{attack.attack} on {attack.modality}: {attack.measure}",
        f"{attack.chance:.3g}",
        *(_interval(part) for part in (attack.before, attack.after, attack.reference, attack.difference)),
        _ABSENT if attack.tolerance is None else f"{attack.tolerance:g}",
        attack.decision,
    ]


def _interval(value: Interval | None) -> str:
    return _ABSENT if value is None else f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _origin(predicate: Predicate) -> Iterator[str]:
    lineage = predicate.lineage
    yield "## Where it comes from"
    yield _facts(
        {
            "weights before": _told(lineage.before),
            "models of the lineage": ", ".join(map(_told, lineage.models)),
            "data": f"{lineage.data_name}, {_told(lineage.data)}",
            "DVC revision": lineage.dvc_revision or _ABSENT,
            "git commit": lineage.git_commit or _ABSENT,
            "image": lineage.image_digest or _ABSENT,
            "run": lineage.run_id or _ABSENT,
            **{
                f"versions ({step})": ", ".join(f"{name} {version}" for name, version in versions.items())
                for step, versions in predicate.environment.items()
            },
        }
    )


def _limits(predicate: Predicate) -> Iterator[str]:
    yield "## What this certificate does not say, and what it tells"
    yield _list((predicate.erasure.note, *predicate.disclosures))


def _checking(predicate: Predicate) -> Iterator[str]:
    yield "## How to check it"
    exact = predicate.guarantee.kind == "exact" and predicate.deleted.scope == "modalities"
    reproduce = ", and with `--reproduce --features DIR` trains again and compares the bits"
    yield (
        "`mbd verify BUNDLE --model DIR --trust FILE` checks the signatures, the log, every digest, the structure of "
        f"the weights and the arithmetic, offline{reproduce if exact else ''}."
    )


def _told(told: Told) -> str:
    return f"`{told.sha256}`" if told.sha256 else f"commitment `{told.commitment}`"


def _facts(facts: dict[str, str]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def _list(sentences: tuple[str, ...] | list[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
