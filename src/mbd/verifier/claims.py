"""What a certificate says, in the terms of the checks, and whether it says the same thing everywhere."""

from collections.abc import Iterator
from typing import Any

from mbd.formats.audit import AuditSummary, summarise
from mbd.formats.deletion import INDICES
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import Erasure, Predicate
from mbd.formats.statement import WEIGHTS, DeletionStatement, exact_integers
from mbd.verifier.structure import StructuralClaim
from mbd.verifier.verdict import Check, failed, passed

AGREEMENT = "claims agree"


def structural_claim(predicate: Predicate) -> StructuralClaim:
    """Return what is claimed about the released weights."""
    return StructuralClaim(
        revoked=predicate.deleted.revoked,
        exact=predicate.guarantee.kind == "exact",
        edit=predicate.edit.kind,
        count=predicate.edit.count,
        mantissa_bits=predicate.rounding.mantissa_bits if predicate.rounding else None,
    )


def in_short(statement: DeletionStatement, erasure: Erasure | None = None) -> dict[str, Any]:
    """Return what a person wants to know first; `erasure` is the claim of a later purge, if there was one."""
    predicate = statement.predicate
    return {
        "model": predicate.model,
        "issuer": predicate.issuer.to_plain(),
        "modalities": list(predicate.deleted.modalities),
        "scope": predicate.deleted.scope,
        "method": predicate.method.name,
        "guarantee": predicate.guarantee.to_plain(),
        "weights": statement.digests[WEIGHTS],
        "issued": predicate.issued.isoformat(),
        "reaudit_by": predicate.reaudit_by.isoformat(),
        "erasure": (erasure or predicate.erasure).to_plain(),
    }


def agreement_check(statement: DeletionStatement, record: ModelRecord | None, leakage: LeakageRecord | None) -> Check:
    """Compare everything that is said more than once; `record` is model.json and `leakage` leakage.json, if given."""
    for what, one, other in _said_twice(statement, record, leakage):
        if one != other:
            return failed(AGREEMENT, f"{what}: the certificate contradicts itself or the files that it lists")
    return passed(AGREEMENT, "facts that are stated more than once agree")


def _said_twice(
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
    if predicate.guarantee.kind == "exact":
        yield "revoked modalities (sees)", set(predicate.structure.absent.sees), revoked
    if predicate.budget:
        yield "ε", predicate.budget.epsilon, predicate.guarantee.epsilon
        yield "δ", predicate.budget.delta, predicate.guarantee.delta
        yield "σ", predicate.budget.sigma, predicate.noise.sigma if predicate.noise else None
    if leakage is not None:
        yield LEAKAGE, _plain(summarise(leakage)), _plain(audit)
    if record is not None:
        yield from _said_by_the_model(statement, record)


def _plain(record: AuditSummary | None) -> Any:  # noqa: ANN401 -- any JSON
    return record and exact_integers(record.to_plain())


def _said_by_the_model(statement: DeletionStatement, record: ModelRecord) -> Iterator[tuple[str, Any, Any]]:
    predicate, structure = statement.predicate, statement.predicate.structure
    yield "digest of the weights in model.json", record.sha256, statement.digests[WEIGHTS]
    yield "backbone", record.backbone, structure.backbone
    yield "inputs", record.inputs, structure.inputs
    yield "revoked modalities", set(record.revoked), set(predicate.deleted.revoked)
    yield "guarantee in model.json", record.guarantee, predicate.guarantee
