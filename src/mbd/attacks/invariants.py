"""Invariants of the files, independent of the attacks.

Of every deleted model:

    input        it takes only the retained modalities
    cut          no tensor belongs to m*, no column reads it; what exists for m* alone in a module that can still be
                 fed it is 0, or has the reference's values
    shape        its tensors have the names and shapes of the reference's, and what is not floating-point its values
    content      none of its tensors has the values of one that belonged to m* alone, in any order and under any name
    record       deletion.json describes this model, and states the same guarantee as model.json
    noise        none of it comes from a seed that anyone may know

A model without deletion.json (a released one, or the reference itself) does not state how it was made, so only the
first four are checked, and `content` only if the model before is still available. With one, its method promises more:
exact and attested, the bytes of the reference; certified, that σ, radius and budget follow from each other; surgery,
nothing beyond the cut.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence

import numpy as np

from mbd.attacks.audit_input import AuditInput, StoredModel
from mbd.files import sha256_file
from mbd.formats.deletion import DeletionRecord
from mbd.formats.files import INDICES
from mbd.formats.guarantee import Guarantee, LineageBudget
from mbd.formats.leakage import InvariantRecord
from mbd.formats.model import TensorRecord
from mbd.model.checkpoint import kept_columns
from mbd.params.deletion import DeletionSettings
from mbd.privacy.gaussian import delta_of, epsilon_by_gaussian, zcdp
from mbd.registry import BACKBONES
from mbd.tensors import Array, is_float, round_mantissa

_CLOSE = 1e-9  # relative; rounding between two ways to compute the same number


def invariants(audit: AuditInput) -> list[InvariantRecord]:
    """Check every invariant; a refusal names what was found."""
    checks = {
        "input": _input(audit),
        "cut": _cut(audit),
        "shape": _shape(audit),
        **({"content": _content(audit.before, audit)} if audit.before else {}),
    }
    records = [_judged(name, *problem) for name, problem in checks.items()]
    if audit.before is None:
        records.append(
            InvariantRecord(name="content", decision="informational", reason="no model before deletion to compare with")
        )
    deletion = audit.after.deletion
    if deletion is None:
        reason = "there is no deletion.json: the model makes no claim about its origin, so nothing is checked"
        records.append(InvariantRecord(name="record", decision="informational", reason=reason))
        # A released model's own record still promises the bytes of the reference, if that was released.
        return [*records, *_released_reference(audit, audit.after.record.guarantee)]
    records.append(_judged("record", *_record(audit.after, deletion)))
    if (seed := deletion.parameters.get("noise_seed")) is not None:
        problem = f"the noise comes from deletion.noise_seed = {seed}, so anyone can subtract it"
        records.append(_judged("noise", [problem], ""))
    records += _released_reference(audit, deletion.guarantee)
    if deletion.guarantee.kind == "certified" and seed is None:
        records.append(_judged("certified", *_certified(audit.after, deletion)))
    return records


def _judged(name: str, problems: Sequence[str], fine: str) -> InvariantRecord:
    reason = "; ".join(problems) if problems else fine
    return InvariantRecord(name=name, decision="refused" if problems else "passed", reason=reason)


def _input(audit: AuditInput) -> tuple[list[str], str]:
    inputs = audit.after.record.inputs
    problems = [f"the model still takes {m} as input" for m in inputs if m in audit.gone]
    problems += [
        f"it takes {m}, which the model before did not" for m in inputs if m not in (*audit.gone, *audit.retained)
    ]
    return problems, f"the model takes {', '.join(inputs)} and nothing else"


def _cut(audit: AuditInput) -> tuple[list[str], str]:
    names = ", ".join(audit.gone)
    tensors = audit.after.record.tensors
    owned = [name for name, entry in tensors.items() if entry.belongs_to in audit.gone]
    read = [name for name, entry in tensors.items() if any(span.reads in audit.gone for span in entry.columns)]
    problems = [f"tensors that belong to {names} alone: {_some(owned)}"] if owned else []
    problems += [f"columns that read {names}: {_some(read)}"] if read else []
    left = [] if problems or audit.after.record.sha256 == audit.reference.record.sha256 else _left_over(audit)
    if left:
        problems += [f"numbers that exist for {names} alone and are neither 0 nor the reference's: {_some(left)}"]
    return problems, f"no tensor belongs to {names}, and no column reads it"


def _left_over(audit: AuditInput) -> list[str]:
    """Return the tensors that hold something for m* alone though no record says so: modules keep their shape.

    After a certified deletion noise covers what branches that were not named hold.
    """
    whole, after = audit.whole.record, audit.after
    find = BACKBONES.get(whole.backbone).own_values
    if find is None:
        return []
    proposed = after.record.guarantee.kind != "certified"
    own, others = (find(whole, s.tensors, audit.gone, proposed=proposed) for s in (after, audit.reference))
    return [n for n, values in own.items() if ((values != 0) & (values != others.get(n, 0))).any()]


def _shape(audit: AuditInput) -> tuple[list[str], str]:
    own, others = ({name: array.shape for name, array in s.tensors.items()} for s in (audit.after, audit.reference))
    kinds = {
        "not in the reference": [name for name in own if name not in others],
        "in the reference only": [name for name in others if name not in own],
        "of another shape than in the reference": [n for n in own if n in others and own[n] != others[n]],
    }
    # State that is not floating-point is in no attack; a single number of it (a counter) holds next to nothing.
    kinds["not floating-point, with other values than in the reference"] = [
        name
        for name, tensor in audit.after.tensors.items()
        if not is_float(tensor) and tensor.size > 1 and not np.array_equal(tensor, audit.reference.tensors.get(name, 0))
    ]
    problems = [f"{what}: {_some(names)}" for what, names in kinds.items() if names]
    return problems, f"{len(own)} tensors have the names and shapes of the reference's"


def _content(before: StoredModel, audit: AuditInput) -> tuple[list[str], str]:
    record, tensors = before.record, before.tensors
    separable = BACKBONES.get(record.backbone).separable
    owned: dict[str, str] = {}
    free: set[str] = set()
    for name, entry in record.tensors.items():
        if _is_owned(entry, audit.gone, separable=separable):
            owned |= dict.fromkeys(_marks(tensors[name], audit), name)
        else:
            spans, whole = [span for span in entry.columns if span.reads in audit.gone], tensors[name]
            for span in spans:
                marks = _marks(whole[..., span.start : span.stop], audit)
                owned |= dict.fromkeys(marks, f"the columns of {name} that read {span.reads}")
            free |= _marks(whole[..., kept_columns(entry, audit.gone)] if spans else whole, audit)
    secret = {mark: name for mark, name in owned.items() if mark not in free}
    prints = {name: fingerprint(array) for name, array in audit.after.tensors.items()}
    kept = [f"{name} = {secret[mark]}" for name, mark in prints.items() if mark in secret]
    names = ", ".join(audit.gone)
    problems = [f"values that belonged to {names} alone in the model before: {_some(kept)}"] if kept else []
    count = len(set(secret.values()))
    return problems, f"no tensor has the values of any of the {count} that belonged to {names} alone"


def _marks(array: Array, audit: AuditInput) -> set[str]:
    """Return the fingerprints of a tensor, as it is and rounded as the released ones are."""
    rounding = audit.after.deletion.rounding if audit.after.deletion else None
    versions = [array, *([round_mantissa(array, rounding.mantissa_bits)] if rounding else [])]
    return {mark for version in versions if (mark := fingerprint(version)) is not None}


def fingerprint(array: Array) -> str | None:
    """Return a digest of a tensor's values in any order; None for a constant one, which carries no information."""
    values = np.sort(np.asarray(array, np.float32), axis=None)
    if not values.size or values[0] == values[-1]:
        return None
    return hashlib.sha256(values.tobytes()).hexdigest()


def _is_owned(entry: TensorRecord, gone: Sequence[str], *, separable: bool) -> bool:
    """Whether a tensor must go with m*: those of m* alone, and in a separable backbone all that have seen it."""
    return entry.belongs_to in gone or (separable and bool(set(entry.sees) & set(gone)))


def _record(after: StoredModel, deletion: DeletionRecord) -> tuple[list[str], str]:
    problems = []
    if deletion.after != after.record.sha256:
        problems.append("deletion.json describes other weights: the model was changed after its deletion")
    file = after.folder / INDICES
    if not file.is_file() or sha256_file(file) != deletion.indices.sha256:
        problems.append("indices.safetensors is not the list of edited positions that deletion.json names")
    if deletion.guarantee != after.record.guarantee:
        problems.append(f"model.json guarantees {after.record.guarantee.kind}, deletion.json {deletion.guarantee.kind}")
    if set(deletion.revoked) != set(after.record.revoked):
        problems.append("model.json and deletion.json name different revoked modalities")
    return (
        problems,
        f"deletion.json ({deletion.method}) describes these weights, and model.json states the same guarantee",
    )


def _released_reference(audit: AuditInput, guarantee: Guarantee) -> list[InvariantRecord]:
    """Return whether the bytes are those of the reference, where the guarantee says that no tensor saw m*."""
    claimed = guarantee.kind != "none" and guarantee.rules.never_saw
    return [_judged(guarantee.kind, *_same_bytes(audit))] if claimed else []


def _same_bytes(audit: AuditInput) -> tuple[list[str], str]:
    own, other = audit.after.record, audit.reference.record
    problems = []
    seen = [name for name, entry in own.tensors.items() if set(entry.sees) & set(audit.gone)]
    if seen:
        problems.append(f"{', '.join(audit.gone)} was seen by {_some(seen)}")
    differing = [what for what in ("seed", "spec", "data") if getattr(own, what) != getattr(other, what)]
    if differing:
        problems.append(
            f"the reference was trained with another {' and '.join(differing)}, so the bytes cannot be compared: train "
            "it with the same"
        )
    elif own.sha256 != other.sha256:
        problems.append(f"the weights ({own.sha256[:16]}…) are not those of the reference ({other.sha256[:16]}…)")
    return problems, f"the weights are byte for byte those of the reference (sha256 {own.sha256})"


def _certified(after: StoredModel, deletion: DeletionRecord) -> tuple[list[str], str]:
    from mbd.deletion.certified import accounting  # noqa: PLC0415 -- needs an extra that the other methods do without

    settings, facts = DeletionSettings.model_validate(deletion.parameters), deletion.facts
    sensitivity, sigma = 2 * settings.certified.radius, float(facts["sigma"])
    again = accounting(settings)
    problems = [
        f"{name} is {facts.get(name)} in deletion.json and {again[name]} when computed again"
        for name in ("sigma", "rho", "delta_achieved", "epsilon_by_analytic")
        if not _equal(facts.get(name), again[name])
    ]
    if not _equal(facts.get("clip_radius"), settings.certified.radius):
        problems.append(f"the weights were clipped to {facts.get('clip_radius')}, not {settings.certified.radius}")
    if not _equal(facts["sensitivity"]["value"], sensitivity):
        problems.append(f"the sensitivity is {facts['sensitivity']['value']}, not 2C = {sensitivity}")
    if delta_of(settings.epsilon, sigma, sensitivity) > settings.delta * (1 + _CLOSE):
        problems.append(f"σ = {sigma:g} is too little noise for ε = {settings.epsilon:g}, δ = {settings.delta:g}")
    if (deletion.guarantee.epsilon, deletion.guarantee.delta) != (settings.epsilon, settings.delta):
        problems.append("the guarantee is not the (ε, δ) that the noise was made for")
    problems += _budget(deletion.budget, zcdp(sigma, sensitivity))
    bare = [n for n in facts["tensors_without_noise"] if set(after.record.tensors[n].sees) & set(deletion.revoked)]
    if bare:
        problems.append(f"{', '.join(deletion.revoked)} was seen by {_some(bare)}, without noise")
    fine = (
        f"σ = {sigma:.4g} on weights clipped to C = {settings.certified.radius:g} is what ε = {settings.epsilon:g}, "
        f"δ = {settings.delta:g} require, and the budget adds up"
    )
    return problems, fine


def _budget(budget: LineageBudget | None, rho: float) -> Iterator[str]:
    if budget is None:
        yield "the deletion was not charged to a budget"
        return
    if not _equal(budget.rho_after, budget.rho_before + rho):
        yield f"the budget does not add up: ρ = {budget.rho_before} + {rho} is not {budget.rho_after}"
    if not _equal(budget.epsilon_after, epsilon_by_gaussian(budget.rho_after, budget.delta)):
        yield f"ε = {budget.epsilon_after} of the lineage does not follow from ρ = {budget.rho_after}"
    if budget.epsilon_after > budget.limit:
        yield f"the lineage has spent ε = {budget.epsilon_after:g}, and its limit is {budget.limit:g}"


def _equal(one: object, other: float) -> bool:
    return isinstance(one, int | float) and math.isclose(one, other, rel_tol=_CLOSE, abs_tol=1e-15)


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} tensors ({names[0]}, …)"
