"""What a certificate is made of: the outputs of `delete`, `attack` and `evaluate`, and whether they belong together.

A certificate never claims more than was shown. It is refused if the gate was closed, if the modality was not cut out,
or if what was attacked and evaluated is not the very model that the deletion has left.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbd.errors import DataError, GateRefusedError, UsageError
from mbd.files import canonical_digest, read_json
from mbd.formats.deletion import DELETION, DeletionRecord, read_deletion
from mbd.formats.files import INDICES, METRICS, MODEL, WEIGHTS
from mbd.formats.guarantee import Kind
from mbd.formats.leakage import LEAKAGE, AuditSummary, LeakageRecord, summarise
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import EvaluationEvidence
from mbd.formats.strength import shortfalls
from mbd.model.checkpoint import load_model
from mbd.outputs import read_step


@dataclass(frozen=True)
class CertificateInput:
    """A deletion, the model it has left, and what was found out about that model."""

    folder: Path
    """of the deleted model"""
    deletion: DeletionRecord
    model: ModelRecord
    digests: dict[str, str]
    """SHA-256 of every file in the folder"""
    leakage: LeakageRecord | None
    evaluation: EvaluationEvidence
    environment: dict[str, dict[str, str]]
    """versions, by step"""


def read_certificate_input(deletion: Path, leakage: Path | None, evaluation: Path) -> CertificateInput:
    """Read the outputs of three steps; GateRefusedError if they do not support a certificate.

    Only a deletion for named subjects, which is exact, has no `leakage`.
    """
    record = read_deletion(deletion)
    if record is None:
        raise DataError("there is no deletion record", file=deletion / DELETION, hint="`mbd delete` writes it")
    model, _ = load_model(deletion, verify=False)
    attacks = _read_leakage(record, leakage)
    _refuse_uncut(record, model, deletion)
    _refuse_public_noise(record, deletion)
    steps = {"delete": read_step(deletion, "delete"), "evaluate": read_step(evaluation, "evaluate")}
    digests: dict[str, str] = steps["delete"]["outputs"]["files"]
    _refuse_other_model(record, model, digests, deletion)
    if leakage and attacks:
        steps["attack"] = read_step(leakage, "attack")
        _refuse_other_attack(record, attacks, leakage)
    return CertificateInput(
        folder=deletion,
        deletion=record,
        model=model,
        digests=digests,
        leakage=attacks,
        evaluation=_evaluation(evaluation, steps["evaluate"], canonical_digest(digests), model),
        environment={name: public_versions(step["versions"]) for name, step in steps.items()},
    )


def public_versions(versions: Mapping[str, str]) -> dict[str, str]:
    """Return versions as a certificate states them, without the kernel of the machine."""
    return {name: version for name, version in versions.items() if name != "platform"}


def _read_leakage(deletion: DeletionRecord, folder: Path | None) -> LeakageRecord | None:
    of_subjects = bool(deletion.request.subjects) and deletion.guarantee.kind == "exact"
    if (folder is None) != of_subjects:
        raise UsageError(
            "attacks say nothing about the exact deletion of single subjects"
            if of_subjects
            else "there is no certificate of a deleted modality without attacks on the model",
            key="--leakage",
            value=folder,
            hint="leave it out" if of_subjects else "give the folder that `mbd attack` wrote",
        )
    if folder is None:
        return None
    leakage = LeakageRecord.read(folder / LEAKAGE, "leakage record", "`mbd attack` writes it")
    refuse_weak(summarise(leakage), deletion.guarantee.kind, folder / LEAKAGE)
    reasons = leakage.reasons or tuple(part.reason for part in leakage.refused)
    if leakage.decision == "refused" or reasons:
        raise GateRefusedError(
            "the gate refused the deleted model, so there is no certificate: "
            + ("; ".join(reasons) or "no reason recorded"),
            file=folder / LEAKAGE,
            hint="delete by another method or with other parameters, and attack again",
        )
    return leakage


def refuse_weak(audit: AuditSummary, kind: Kind, file: Path, *, later: bool = False) -> None:
    """Refuse an audit that was too weak to find anything; `later`: it is not the first one."""
    for weak in shortfalls(audit, kind, later=later):
        raise GateRefusedError(
            f"the audit is too weak: {weak.problem}", file=file, key=weak.key, value=weak.value, hint=weak.hint
        )


def _refuse_uncut(deletion: DeletionRecord, model: ModelRecord, folder: Path) -> None:
    if deletion.method == "surgery" and not deletion.parameters["surgery"]["cut"]:
        raise GateRefusedError(
            "the modality was not cut out of the model "
            f"({deletion.facts.get('variant', 'no structural cut')}), so there is no certificate",
            file=folder / DELETION,
            key="deletion.surgery.cut",
            value=False,
            hint="delete again with deletion.surgery.cut=true",
        )
    for modality in deletion.revoked:
        parts = {
            name: {tensor.belongs_to, *(s.reads for s in tensor.columns)} for name, tensor in model.tensors.items()
        }
        left = [name for name, uses in parts.items() if modality in uses]
        if modality in model.modalities or left:
            raise GateRefusedError(
                f"the model still has inputs or parameters of {modality}, which was revoked from it",
                file=folder / MODEL,
                key=left[0] if left else "modalities",
                hint="delete all revoked modalities with the structural cut",
            )


def _refuse_public_noise(deletion: DeletionRecord, folder: Path) -> None:
    if (seed := deletion.parameters.get("noise_seed")) is not None:
        raise GateRefusedError(
            "the noise comes from a seed that is written down, so anyone can subtract it: there is no certificate",
            file=folder / DELETION,
            key="deletion.noise_seed",
            value=seed,
            hint="delete again with deletion.noise_seed=null",
        )


def _refuse_other_model(deletion: DeletionRecord, model: ModelRecord, digests: dict[str, str], folder: Path) -> None:
    pairs = {
        WEIGHTS: {deletion.after, model.sha256, digests[WEIGHTS]},
        INDICES: {deletion.indices.sha256, digests[INDICES]},
    }
    for name, values in pairs.items():
        if len(values) > 1:
            raise _not_together(f"{name} is not what the deletion record describes", folder / name, "delete again")
    if model.revoked != deletion.revoked or model.guarantee.kind != deletion.guarantee.kind:
        raise _not_together("the model is not what the deletion record describes", folder / MODEL, "delete again")


def _refuse_other_attack(deletion: DeletionRecord, leakage: LeakageRecord, folder: Path) -> None:
    facts: dict[str, tuple[object, object]] = {
        "models.after": (leakage.models.get("after"), deletion.after),
        "models.before": (leakage.models.get("before", deletion.before), deletion.before),
        "modalities": (sorted(leakage.modalities), sorted(deletion.request.modalities)),
        "data.name": (leakage.data.get("name"), deletion.data["name"]),
    }
    if leakage.lower_bound is not None:
        facts["lower_bound.claimed"] = (leakage.lower_bound.claimed, deletion.guarantee.epsilon)
    for key, (attacked, deleted) in facts.items():
        if attacked != deleted:
            raise _not_together(
                f"what was attacked is not what was deleted: {attacked} instead of {deleted}",
                folder / LEAKAGE,
                "attack the deleted model",
                key,
            )


def _evaluation(folder: Path, step: dict[str, Any], deleted: str, model: ModelRecord) -> EvaluationEvidence:
    file = folder / METRICS
    try:
        metrics = read_json(file)
        judged = [
            i["digest"] for name, i in step["inputs"].items() if name.startswith(f"model {metrics['model']} seed ")
        ]
        evidence = EvaluationEvidence(
            metrics_sha256=step["outputs"]["files"][METRICS],
            modalities=tuple(metrics["modalities"]),
            rows=metrics["rows"],
            metrics={name: value for name, value in metrics.items() if isinstance(value, float)},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError("the evaluation is not valid", file=file, hint="run `mbd evaluate` again") from error
    if judged != [deleted] or not set(evidence.modalities) <= set(model.inputs):
        raise _not_together(
            "what was evaluated first is not the deleted model",
            file,
            "evaluate the deleted model: --model DELETED",
            "model",
        )
    return evidence


def _not_together(problem: str, file: Path, hint: str, key: str | None = None) -> GateRefusedError:
    return GateRefusedError(f"no certificate: {problem}", file=file, key=key, hint=hint)
