"""From the records of a deletion to the predicate of its certificate: what is disclosed, and what is only committed to.

An empirical deletion promises nothing of the old weights, so it may disclose their digests. One of any other kind
states that the release reveals (next to) nothing of what was deleted; a digest of the old weights or of the deleted
data would let anyone with a good guess confirm it, so the certificate holds salted commitments instead, here and in the
evidence.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from mbd.certificate.inputs import CertificateInput, public_versions, refuse_weak
from mbd.errors import GateRefusedError, UsageError
from mbd.files import canonical_digest
from mbd.formats.deletion import DELETION, DeletionRecord
from mbd.formats.files import CERTIFICATE, WEIGHTS
from mbd.formats.leakage import LEAKAGE, LeakageRecord, summarise
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import (
    METHOD_KINDS,
    STABLE_ROWS,
    Absence,
    Budget,
    CalibrationRows,
    DeletedContent,
    DeletionMethod,
    DigestOrCommitment,
    Edit,
    Environment,
    Erasure,
    Evidence,
    Issuer,
    Lineage,
    Noise,
    Predicate,
    RequestReference,
    Structure,
)
from mbd.formats.statement import (
    DeletionStatement,
    Reaudit,
    ReauditStatement,
    Revocation,
    RevocationStatement,
    Supersession,
    SupersessionStatement,
    exact_integers,
    subjects_of,
)
from mbd.formats.strength import STRENGTH
from mbd.registry import METHODS
from mbd.trust.commitments import Commitments, LineageKey
from mbd.verifier.gate import check_gate

_ELSEWHERE = {"variant", "calibration", "noise", "sensitivity", "clip_radius", "sigma", "rho", "finetuning"}
_COMPUTED = {
    *("sigma_by", "classical_sigma", "classical_sigma_is_proven", "delta_achieved", "delta_of_classical_sigma"),
    *("epsilon_by_analytic", "epsilon_by_rdp", "epsilon_by_paper", "information_bits_at_most"),
}


@dataclass(frozen=True)
class IssueContext:
    """What does not follow from the records."""

    model: str
    issuer: Issuer
    issued: datetime
    reaudit_days: int
    provenance: Mapping[str, str | None]
    versions: Mapping[str, str]
    """of what issues the certificate"""
    request: RequestReference
    lineage_key: LineageKey
    supersedes: str | None = None


def compose_predicate(
    certificate_input: CertificateInput, context: IssueContext, commitments: Commitments
) -> tuple[Predicate, LeakageRecord | None]:
    """Return what the certificate states, and what `leakage.json` beside it says.

    `commitments` remembers what opens those that they hold.
    """
    deletion, leakage = certificate_input.deletion, certificate_input.leakage
    hidden = _hidden(certificate_input, commitments)
    request = deletion.request
    published = public_leakage(leakage, hidden) if leakage else None
    predicate = Predicate(
        model=context.model,
        issuer=context.issuer,
        deleted=DeletedContent(
            modalities=request.modalities,
            scope="subjects" if request.subjects else "modalities",
            subjects=commitments.to_all("subject", request.subjects),
            revoked=deletion.revoked,
        ),
        guarantee=deletion.guarantee,
        method=DeletionMethod(
            name=deletion.method,
            kind=METHOD_KINDS.get(deletion.method) or METHODS.get(deletion.method).kind,
            variant=deletion.facts.get("variant"),
            parameters=_parameters(deletion),
            findings=_concealed(_findings(deletion), hidden),
        ),
        edit=_edit(deletion),
        rounding=deletion.rounding,
        noise=_noise(deletion),
        budget=_budget(deletion),
        calibration=_calibration(deletion.facts.get("calibration")),
        structure=structure_of(certificate_input.model),
        evidence=Evidence(
            audit=summarise(published) if published else None,
            evaluation=certificate_input.evaluation,
        ),
        lineage=_lineage(certificate_input, context, hidden),
        environment=_environment({**certificate_input.environment, "certify": public_versions(context.versions)}),
        request=context.request,
        erasure=Erasure(claim="none", note=_NOT_ERASED),
        disclosures=_disclosures(deletion),
        issued=context.issued,
        reaudit_by=context.issued + timedelta(days=context.reaudit_days),
        supersedes=context.supersedes,
    )
    return predicate, published


def structure_of(model: ModelRecord) -> Structure:
    """Return what a model's record says about its weights."""
    tensors = model.tensors.values()
    used = {
        "belongs_to": {t.belongs_to for t in tensors if t.belongs_to},
        "reads": {span.reads for t in tensors for span in t.columns} | set(model.modalities),
        "sees": {modality for t in tensors for modality in t.sees},
    }
    absent = {how: tuple(m for m in model.revoked if m not in there) for how, there in used.items()}
    return Structure(
        backbone=model.backbone,
        inputs=model.inputs,
        absent=Absence(**absent),
    )


def hidden_digests(weights: Sequence[str], data: Mapping[str, str], commitments: Commitments) -> dict[str, str]:
    """Return the commitments that replace digests of old weights and the one in `data`."""
    hidden = {digest: commitments.to("weights", digest) for digest in weights}
    return hidden | ({data["digest"]: commitments.to("data", data["digest"])} if "digest" in data else {})


def public_leakage(leakage: LeakageRecord, hidden: Mapping[str, str]) -> LeakageRecord:
    """Return the record of attacks as it may be published."""
    plain = exact_integers(leakage.to_plain())
    return LeakageRecord.model_validate(_concealed(plain, hidden))


def _hidden(certificate_input: CertificateInput, commitments: Commitments) -> dict[str, str]:
    deletion, leakage = certificate_input.deletion, certificate_input.leakage
    if not deletion.guarantee.rules.hides_digests:
        return {}
    hidden = hidden_digests([*deletion.lineage, deletion.before], deletion.data, commitments)
    return hidden | (hidden_digests([], leakage.data, commitments) if leakage else {})


def _concealed(value: Any, hidden: Mapping[str, str]) -> Any:  # noqa: ANN401 -- any JSON
    """Return JSON with each hidden digest replaced by its commitment."""
    if isinstance(value, Mapping):
        return {_concealed(key, hidden): _concealed(part, hidden) for key, part in value.items()}
    if isinstance(value, list):
        return [_concealed(part, hidden) for part in value]
    return f"commitment:{hidden[value]}" if isinstance(value, str) and value in hidden else value


def _environment(versions: Mapping[str, dict[str, str]]) -> tuple[Environment, ...]:
    """Return the versions of all steps, those of steps that ran with the same ones together."""
    alike: dict[str, list[str]] = {}
    for step, own in versions.items():
        alike.setdefault(canonical_digest(own), []).append(step)
    return tuple(Environment(steps=tuple(steps), versions=versions[steps[0]]) for steps in alike.values())


def _parameters(deletion: DeletionRecord) -> dict[str, Any]:
    """Return the parameters that the result depends on; no paths."""
    used: dict[str, Any] = {}
    for key in METHODS.get(deletion.method).parameters:
        section, _, name = key.partition(".")
        if name:
            used.setdefault(section, {})[name] = deletion.parameters[section][name]
        else:
            used[section] = deletion.parameters[section]
    return used


def _findings(deletion: DeletionRecord) -> dict[str, Any]:
    left_out = _ELSEWHERE | _COMPUTED if deletion.guarantee.kind == "certified" else _ELSEWHERE
    facts = {key: value for key, value in deletion.facts.items() if key not in left_out}
    if deletion.reference:
        facts["reference"] = deletion.reference
    return facts


def _edit(deletion: DeletionRecord) -> Edit:
    kind: Literal["zero", "noise", "all", "none"] = "none"
    if deletion.guarantee.kind == "certified":
        kind = "all"
    elif deletion.indices.count:
        kind = deletion.facts["edit"]["kind"]
    return Edit(kind=kind, sha256=deletion.indices.sha256, count=deletion.indices.count)


def _noise(deletion: DeletionRecord) -> Noise | None:
    facts = deletion.facts if deletion.guarantee.kind == "certified" else deletion.facts.get("edit", {})
    return Noise(sigma=facts["sigma"], **facts["noise"]) if "noise" in facts else None


def _budget(deletion: DeletionRecord) -> Budget | None:
    if deletion.guarantee.kind != "certified" or deletion.budget is None:
        return None
    facts = deletion.facts
    return Budget.model_validate(
        {
            "clip_radius": facts["clip_radius"],
            "sensitivity": facts["sensitivity"]["value"],
            "reason": facts["sensitivity"]["reason"],
            "sigma": facts["sigma"],
            "epsilon": deletion.guarantee.epsilon,
            "delta": deletion.guarantee.delta,
            "rho": facts["rho"],
            "computed": {key: facts[key] for key in facts if key in _COMPUTED},
            "lineage": deletion.budget,
        }
    )


def _calibration(facts: Mapping[str, Any] | None) -> CalibrationRows | None:
    if facts is None:
        return None
    used = min(facts["rows_with_modality"].values())
    few = f"Only {used:,} calibration rows; the paper calls its proxies stable from {STABLE_ROWS:,} on."
    return CalibrationRows(requested=facts["requested"], used=used, note=few if used < STABLE_ROWS else None)


def _lineage(certificate_input: CertificateInput, context: IssueContext, hidden: Mapping[str, str]) -> Lineage:
    deletion, provenance, key = certificate_input.deletion, context.provenance, context.lineage_key

    def disclosed(digest: str) -> DigestOrCommitment:
        return DigestOrCommitment(commitment=hidden[digest]) if digest in hidden else DigestOrCommitment(sha256=digest)

    return Lineage(
        before=disclosed(deletion.before),
        models=tuple(disclosed(digest) for digest in deletion.lineage),
        id=key.lineage(deletion.lineage[0]),
        record=key.record(certificate_input.digests[DELETION]),
        key=key.id,
        data_name=deletion.data["name"],
        data=disclosed(deletion.data["digest"]),
        dvc_revision=provenance["dvc_revision"],
        git_commit=provenance["git_commit"],
        image_digest=provenance["image_digest"],
        run_id=provenance["run_id"],
    )


def _disclosures(deletion: DeletionRecord) -> tuple[str, ...]:
    """Return what the certificate itself reveals that its guarantee, which is about the weights, does not cover."""
    names = ", ".join(deletion.request.modalities)
    subjects = (
        f"The number of subjects is disclosed. model.json lists digests of the files that the model was trained "
        f"from, {names} among them as it was before the deletion: anyone who has such a file can recognise it."
    )
    attacks = (
        f"The attacks used recordings of {names} that existed at the time; numbers in the column before are of the "
        "weights before the deletion. All of them are averages over rows, and no guarantee covers them."
    )
    disclosed = (
        "Digests of the old weights and of the data are disclosed: anyone who has these files can recognise them."
    )
    hidden = (
        "Digests of the old weights and of the data as a whole are hidden behind salted commitments, which "
        "reveal nothing without the salts. The issuer keeps these."
    )
    return (
        subjects if deletion.request.subjects else attacks,
        hidden if deletion.guarantee.rules.hides_digests else disclosed,
        "Certificates of models that come from the same training can be recognised by lineage.id.",
    )


_NOT_ERASED = (
    "This certificate is about the released model. It does not claim that copies of the old weights or of the deleted "
    "data have been erased; a separate statement does, once they have been."
)


# Statements about a certificate


def compose_revocation(certificate: str, reason: str, issued: datetime) -> RevocationStatement:
    """Return the statement that withdraws a certificate, named by the SHA-256 of its envelope."""
    if not reason.strip():
        raise UsageError("the reason for the revocation is missing", key="--reason")
    return RevocationStatement(
        subject=subjects_of({CERTIFICATE: certificate}), predicate=Revocation(reason=reason, issued=issued)
    )


def compose_supersession(certificate: str, by: str, reason: str, issued: datetime) -> SupersessionStatement:
    """Return the statement that one certificate takes the place of another."""
    if certificate == by:
        raise UsageError("a certificate cannot supersede itself", key="--by", value=by)
    return SupersessionStatement(
        subject=subjects_of({CERTIFICATE: certificate}), predicate=Supersession(by=by, reason=reason, issued=issued)
    )


def compose_reaudit(
    certificate: str,
    statement: DeletionStatement,
    leakage: Path,
    issued: datetime,
    days: int,
    commitments: Commitments,
    run_id: str | None = None,
) -> tuple[ReauditStatement, bytes]:
    """Return the statement that the attacks in `leakage` (as `mbd attack` wrote them) were made on its model.

    Beside it comes the `leakage.json` that is to be published.

    An audit that the gate refused is published as well: it refutes the certificate.
    """
    file = leakage / LEAKAGE
    record = LeakageRecord.read(file, "leakage record", "`mbd attack` writes it")
    predicate = statement.predicate
    facts: dict[str, tuple[object, object]] = {
        "models.after": (record.models.get("after"), statement.digests[WEIGHTS]),
        "modalities": (sorted(record.modalities), sorted(predicate.deleted.modalities)),
    }
    if set(predicate.deleted.modalities) <= set(record.modalities) <= set(predicate.deleted.revoked):
        del facts["modalities"]  # an audit may be after all that was ever deleted
    for key, (attacked, certified) in facts.items():
        if attacked != certified:
            raise UsageError(
                f"what was attacked is not what was certified: {attacked} instead of {certified}",
                file=file,
                key=key,
                hint="attack the model that the certificate is about",
            )
    if all(reason.startswith(f"{STRENGTH} (") for reason in record.reasons):
        _refuse_unsupported(record, predicate, file)
    old = [record.models["before"]] if "before" in record.models else []
    hidden = hidden_digests(old, record.data, commitments) if predicate.guarantee.rules.hides_digests else {}
    published = public_leakage(record, hidden)
    content = published.to_bytes()
    reaudited = ReauditStatement(
        subject=subjects_of({CERTIFICATE: certificate}),
        predicate=Reaudit(
            audit=summarise(published),
            leakage=hashlib.sha256(content).hexdigest(),
            issued=issued,
            reaudit_by=issued + timedelta(days=days),
            run_id=run_id,
        ),
    )
    return reaudited, content


def _refuse_unsupported(record: LeakageRecord, predicate: Predicate, file: Path) -> None:
    """Refuse an audit that was too weak to find anything, or that its numbers do not carry: it shows nothing."""
    refuse_weak(summarise(record), predicate.guarantee.kind, file, later=True)
    decided = check_gate(summarise(record), predicate.guarantee.epsilon, record)
    if decided.outcome != "passed":
        problem = f"the audit does not support its decision: {decided.reason}"
        raise GateRefusedError(problem, file=file, hint="attack the model again with `mbd attack`")
