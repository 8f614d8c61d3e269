"""Checks of the certified files and of what is said of them: digests, then contents, then whether all of it agrees."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from mbd.errors import MbdError
from mbd.files import sha256_file
from mbd.formats.files import INDICES, MODEL, WEIGHTS
from mbd.formats.leakage import LEAKAGE, AuditSummary, LeakageRecord, summarise
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import LONGEST_INTERVAL, Predicate
from mbd.formats.statement import SUBJECTS, DeletionStatement, exact_integers
from mbd.tensors import open_tensors
from mbd.verifier.arithmetic import BUDGET, check_budget
from mbd.verifier.bundle import VerificationInput
from mbd.verifier.gate import GATE, STRENGTH, check_gate, check_strength
from mbd.verifier.structure import POSITIONS, PRECISION, REMOVED, SHAPES, TENSORS, StructuralClaim, check_structure
from mbd.verifier.verdict import Check, StoreStatus, failed, not_checkable, passed

REAUDIT = "re-audit date"
AGREEMENT = "claims agree"
_STRUCTURE = (TENSORS, REMOVED, SHAPES, POSITIONS)


def digest_name(file: str) -> str:
    """Return the name of the check that a file is the one that was certified."""
    return f"digest of {file}"


def check_digests(verification_input: VerificationInput, statement: DeletionStatement) -> list[Check]:
    """Compare every file at hand with the digest that was signed."""
    return [
        _digest_check(verification_input, name, statement.digests[name])
        for name in SUBJECTS
        if name in statement.digests
    ]


def _digest_check(verification_input: VerificationInput, name: str, wanted: str) -> Check:
    check = digest_name(name)
    if name in verification_input.broken:
        return failed(check, verification_input.broken[name])
    if name in verification_input.missing:
        return failed(check, verification_input.missing[name], "not verified")
    places = verification_input.files.get(name, ())
    if not places:
        return not_checkable(check, "no model was given, so nothing is said about any weights (--model DIR)")
    for place in places:
        try:
            digest = sha256_file(place)
        except OSError as error:
            return failed(check, f"{place} cannot be read: {error.strerror}", "not verified")
        if digest != wanted:
            return failed(
                check,
                f"{place.name} was changed after signing, or belongs to another certificate ({place} has sha256 "
                f"{digest}, certified is {wanted})",
            )
    return passed(check, f"sha256 {wanted}")


class Contents:
    """The certified files that are at hand, each with the right digest."""

    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files

    @cached_property
    def model(self) -> ModelRecord | None:
        """What model.json says; None if it is not at hand."""
        return ModelRecord.read(self.files[MODEL], MODEL) if MODEL in self.files else None

    @cached_property
    def leakage(self) -> LeakageRecord | None:
        """What leakage.json says; None if it is not at hand."""
        return LeakageRecord.read(self.files[LEAKAGE], LEAKAGE) if LEAKAGE in self.files else None


def check_contents(
    verification_input: VerificationInput, statement: DeletionStatement, digests: list[Check]
) -> list[Check]:
    """Look into the files whose digest is right, and at what the certificate says of them."""
    right = {check.name for check in digests if check.outcome == "passed"}
    contents = Contents({name: verification_input.files[name][0] for name in SUBJECTS if digest_name(name) in right})
    predicate = statement.predicate
    return [
        *_guarded(_STRUCTURE, lambda: _structure(contents, statement)),
        *_guarded((BUDGET,), lambda: [check_budget(predicate.guarantee, predicate.budget, predicate.noise)]),
        *_guarded((GATE, STRENGTH), lambda: _gate(predicate, contents.leakage)),
        *_guarded((AGREEMENT,), lambda: [check_agreement(statement, contents.model, contents.leakage)]),
    ]


def check_date(
    statement: DeletionStatement, extended: datetime | None, at: datetime, *, replaced: bool = False
) -> Check:
    """Check that the next audit is not overdue; none is due of a model that was replaced."""
    predicate = statement.predicate
    if predicate.reaudit_by > predicate.issued + LONGEST_INTERVAL:
        return failed(REAUDIT, f"the next audit is due later than {LONGEST_INTERVAL.days} days after the date of issue")
    due = max(predicate.reaudit_by, extended or predicate.reaudit_by)
    if at > due and not replaced:
        what = "the next audit was due by" if predicate.evidence.audit else "the certificate held until"
        return failed(REAUDIT, f"{what} {due:%Y-%m-%d}, and no later audit is known", "not verified")
    what = "the next audit is due by" if predicate.evidence.audit else "the certificate holds until"
    return passed(REAUDIT, f"{what} {due:%Y-%m-%d}")


def _structure(contents: Contents, statement: DeletionStatement) -> list[Check]:
    if WEIGHTS not in contents.files or contents.model is None:
        reason = "the weights or model.json are not at hand, or not the certified ones"
        rounded = [PRECISION] if statement.predicate.rounding else []
        return [not_checkable(name, reason) for name in (*_STRUCTURE, *rounded)]
    indices = open_tensors(contents.files[INDICES]) if INDICES in contents.files else None
    audit = statement.predicate.evidence.audit
    return check_structure(
        structural_claim(statement.predicate),
        contents.model,
        open_tensors(contents.files[WEIGHTS]),
        indices,
        audit.reference if audit else None,
    )


def _gate(predicate: Predicate, leakage: LeakageRecord | None) -> list[Check]:
    audit = predicate.evidence.audit
    if audit is None:
        reason = "subjects were forgotten exactly: equal bits are claimed, which no attack could show"
        return [not_checkable(name, reason) for name in (GATE, STRENGTH)]
    return [
        check_gate(audit, predicate.guarantee.epsilon, leakage),
        check_strength(predicate, audit, leakage),
    ]


def _guarded(names: tuple[str, ...], look: Callable[[], list[Check]]) -> list[Check]:
    """Run checks of signed content; whatever goes wrong in them is a failure of the content."""
    try:
        return look()
    except MbdError as error:
        reason = error.problem
    except (ArithmeticError, ValueError, OSError) as error:
        reason = f"what is certified cannot be read or computed: {error}"
    return [failed(name, reason) for name in names]


def structural_claim(predicate: Predicate) -> StructuralClaim:
    """Return what is claimed about the released weights."""
    return StructuralClaim(
        revoked=predicate.deleted.revoked,
        never_saw=predicate.guarantee.rules.never_saw,
        edit=predicate.edit.kind,
        count=predicate.edit.count,
        mantissa_bits=predicate.rounding.mantissa_bits if predicate.rounding else None,
    )


def summarise_claims(
    statement: DeletionStatement, keys: Iterable[str] = (), status: StoreStatus | None = None
) -> dict[str, Any]:
    """Return what a person wants to know first; `keys`: SHA-256 of those that signed; `status`: what a store says."""
    predicate, status = statement.predicate, status or StoreStatus(())
    return {
        "model": predicate.model,
        "issuer": predicate.issuer.to_plain(),
        "keys": list(keys),
        "modalities": list(predicate.deleted.modalities),
        "scope": predicate.deleted.scope,
        "persons": len(predicate.deleted.subjects),
        "method": predicate.method.name,
        "guarantee": predicate.guarantee.to_plain(),
        "weights": statement.digests[WEIGHTS],
        "issued": predicate.issued.isoformat(),
        "reaudit_by": (status.reaudit_by or predicate.reaudit_by).isoformat(),
        "erasure": (status.erasure or predicate.erasure).to_plain(),
    }


def check_agreement(statement: DeletionStatement, record: ModelRecord | None, leakage: LeakageRecord | None) -> Check:
    """Compare everything that is said more than once; `record` is model.json and `leakage` leakage.json, if given."""
    for what, stated, repeated in _stated_twice(statement, record, leakage):
        if stated != repeated:
            return failed(AGREEMENT, f"the certificate contradicts itself or the files that it lists: {what}")
    return passed(AGREEMENT, "facts that are stated more than once agree")


def _stated_twice(
    statement: DeletionStatement, record: ModelRecord | None, leakage: LeakageRecord | None
) -> Iterator[tuple[str, Any, Any]]:
    predicate, digests = statement.predicate, statement.digests
    audit, revoked = predicate.evidence.audit, set(predicate.deleted.revoked)
    yield "digest of the index list", predicate.edit.sha256, digests[INDICES]
    if audit is not None:
        yield "weights that were attacked", audit.models.get("after"), digests[WEIGHTS]
        yield "modalities that were attacked", sorted(audit.modalities), sorted(predicate.deleted.modalities)
    yield "inputs of the model", bool(revoked & set(predicate.structure.inputs)), False
    for how in ("belongs_to", "reads"):
        yield f"revoked modalities ({how})", set(getattr(predicate.structure.absent, how)), revoked
    if predicate.guarantee.rules.never_saw:
        yield "revoked modalities (sees)", set(predicate.structure.absent.sees), revoked
    if predicate.budget:
        yield "ε", predicate.budget.epsilon, predicate.guarantee.epsilon
        yield "δ", predicate.budget.delta, predicate.guarantee.delta
        yield "σ", predicate.budget.sigma, predicate.noise.sigma if predicate.noise else None
    if leakage is not None:
        yield LEAKAGE, _plain(summarise(leakage)), _plain(audit)
    if record is not None:
        yield from _stated_by_the_model(statement, record)


def _plain(record: AuditSummary | None) -> Any:  # noqa: ANN401 -- any JSON
    return record and exact_integers(record.to_plain())


def _stated_by_the_model(statement: DeletionStatement, record: ModelRecord) -> Iterator[tuple[str, Any, Any]]:
    predicate, structure = statement.predicate, statement.predicate.structure
    yield "digest of the weights in model.json", record.sha256, statement.digests[WEIGHTS]
    yield "backbone", record.backbone, structure.backbone
    yield "inputs", record.inputs, structure.inputs
    yield "revoked modalities", set(record.revoked), set(predicate.deleted.revoked)
    yield "guarantee in model.json", record.guarantee, predicate.guarantee
    if predicate.guarantee.kind == "exact":
        yield "training that can be repeated", record.training_is_recorded, True
