"""Step `certify`: from a deletion, the attacks on what it left and its evaluation to a signed certificate.

    certificate.json       the signed statement (DSSE envelope)
    model.json             the released model's record
    indices.safetensors    the edited positions
    leakage.json           every attack, as it may be published; absent if single subjects were forgotten
    report.md              the same for reading

No certificate is issued if the gate refused the model, if the modality was not cut out, or if the inputs do not belong
together. The openings of its commitments go to `certificate.private`, outside the bundle.

Where the model was made comes from environment variables:

    MBD_DVC_REVISION    revision of the DVC repository that the data came from
    MBD_GIT_COMMIT      commit of the code; without it, that of the working folder
    MBD_IMAGE_DIGEST    digest of the container image (sha256:…)
    MBD_RUN_ID          id of the pipeline run
    MBD_ISSUER          who issues it, where certificate.issuer.name is null
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mbd.certificate.compose import IssueContext, compose_predicate
from mbd.certificate.inputs import CertificateInput, read_certificate_input
from mbd.errors import GateRefusedError, MbdError, UsageError
from mbd.files import sha256_file, write_file
from mbd.formats.files import CERTIFICATE, INDICES, MODEL, REPORT, WEIGHTS
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.formats.predicate import Issuer, Predicate, RequestReference
from mbd.formats.statement import DeletionStatement, subjects_of
from mbd.git import git
from mbd.history.lineage import refuse_lost_key, refuse_short_ledger, refuse_uncounted, stated_charges
from mbd.outputs import step_run, versions
from mbd.params import Params
from mbd.records import now
from mbd.report.page.certificate import unsigned_page
from mbd.report.page.markdown import to_markdown
from mbd.steps.revoked import read_log
from mbd.steps.step import reads
from mbd.tensors import open_tensors
from mbd.trust.commitments import Commitments, LineageKey, keep_private, read_lineage_key
from mbd.trust.keys import sign_statement
from mbd.verifier.arithmetic import check_budget
from mbd.verifier.checks import check_agreement, structural_claim
from mbd.verifier.gate import check_gate, check_strength
from mbd.verifier.structure import check_structure

NAME = "certify"
EXPERIMENT = "DVC_EXP_BASELINE_REV"
"""environment variable that `dvc exp run` sets for its stages"""
RUN_ID = "MBD_RUN_ID"
ISSUER = "MBD_ISSUER"
_PROVENANCE = {
    "dvc_revision": "MBD_DVC_REVISION",
    "git_commit": "MBD_GIT_COMMIT",
    "image_digest": "MBD_IMAGE_DIGEST",
    "run_id": RUN_ID,
}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._:/+-]{0,254}")
_GIT_SECONDS = 10.0


@dataclass(frozen=True)
class CertifyResult:
    """A certificate that was signed."""

    statement: DeletionStatement
    certificate: str
    """its SHA-256"""
    private: Path | None
    """file with the openings of its commitments, if it has any"""


@reads("deletion", "leakage", "evaluation")
def run(
    params: Params,
    deletion: Path,
    leakage: Path | None,
    evaluation: Path,
    out: Path,
    *,
    request: Path | None = None,
    supersedes: str | None = None,
    clock: Callable[[], datetime] = now,
) -> CertifyResult:
    """Certify the model in `deletion` and write the bundle to `out`."""
    _refuse_in_experiment(os.environ)
    certificate_input, commitments = read_certificate_input(deletion, leakage, evaluation), Commitments()
    key, hint = (
        read_lineage_key(params.certificate),
        "it has reference, received and due, each optional, and nothing else",
    )
    context = IssueContext(
        model=params.certificate.model,
        issuer=issuer_of(params),
        issued=clock(),
        reaudit_days=params.certificate.reaudit_days,
        provenance=provenance(os.environ),
        versions=versions(),
        request=RequestReference.read(request, "request", hint) if request else RequestReference(),
        lineage_key=key,
        supersedes=supersedes,
    )
    predicate, published = compose_predicate(certificate_input, context, commitments)
    _check_budget(params, certificate_input, predicate, key)
    inputs = {"deletion": deletion, "evaluation": evaluation, **({"leakage": leakage} if leakage else {})}
    with step_run(NAME, out, {"certificate": params.certificate}, **inputs) as step:
        digests = _write_subjects(step.folder, certificate_input, predicate, published)
        statement = DeletionStatement(subject=subjects_of(digests), predicate=predicate)
        _verify_before_signing(statement, certificate_input, published)
        envelope = sign_statement(statement, params.certificate)
        write_file(step.folder / CERTIFICATE, envelope.to_bytes())
        private = None
        if commitments.openings:
            private = keep_private(Path(params.certificate.private), envelope.digest, commitments.openings)
        step.look_at = REPORT
    return CertifyResult(statement, envelope.digest, private)


def _check_budget(params: Params, certificate_input: CertificateInput, predicate: Predicate, key: LineageKey) -> None:
    """Compare the budget of the lineage with its ledger and with the certificates in the store."""
    if predicate.budget is None:
        return
    history = read_log(params, params.store.url)
    refuse_lost_key(history, predicate.model, key)
    stated = stated_charges(history, predicate.lineage.id)
    refuse_short_ledger(Path(params.deletion.ledgers), certificate_input.deletion, stated)
    refuse_uncounted(predicate, stated)


def _refuse_in_experiment(environment: Mapping[str, str]) -> None:
    if EXPERIMENT in environment:
        raise UsageError(
            "an experiment is not certified: its parameters and code are in no commit yet",
            key=EXPERIMENT,
            value=environment[EXPERIMENT],
            hint="apply the experiment (`dvc exp apply`), commit, and run `dvc repro release/dvc.yaml`",
        )


def provenance(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return where this runs, from the environment and git; None for what is not known."""
    stated = {key: environment.get(name) or None for key, name in _PROVENANCE.items()}
    for key, value in stated.items():
        if value is not None and not _PLAIN.fullmatch(value):
            raise UsageError(
                "an environment variable holds a value that cannot be published in a certificate",
                key=_PROVENANCE[key],
                hint="letters, digits and @ . _ : / + - only",
            )
    return stated | {"git_commit": stated["git_commit"] or _commit_here()}


def _commit_here() -> str | None:
    """Return the commit of the working folder, marked if files have been changed since."""
    try:
        commit = git("rev-parse", "--verify", "HEAD", timeout=_GIT_SECONDS)
        if commit.returncode:
            return None
        changed = git("status", "--porcelain", "--untracked-files=no", timeout=_GIT_SECONDS)
    except (MbdError, subprocess.TimeoutExpired):
        return None
    return commit.stdout.strip() + ("" if changed.returncode == 0 and not changed.stdout.strip() else "-dirty")


def _write_subjects(
    folder: Path, certificate_input: CertificateInput, predicate: Predicate, leakage: LeakageRecord | None
) -> dict[str, str]:
    """Write the files that the certificate is about, but the weights; return the SHA-256 of all of them."""
    for name in (MODEL, INDICES):
        shutil.copyfile(certificate_input.folder / name, folder / name)
    if leakage:
        write_file(folder / LEAKAGE, leakage.to_json())
    write_file(folder / REPORT, to_markdown(unsigned_page(predicate, certificate_input.digests[WEIGHTS], leakage)))
    digests = {file.name: sha256_file(file) for file in folder.iterdir()}
    return {**digests, WEIGHTS: certificate_input.digests[WEIGHTS]}


def _verify_before_signing(
    statement: DeletionStatement, certificate_input: CertificateInput, leakage: LeakageRecord | None
) -> None:
    """Make the checks that a verifier will make, before anything is signed."""
    predicate, audit = statement.predicate, statement.predicate.evidence.audit
    weights, indices = (open_tensors(certificate_input.folder / name) for name in (WEIGHTS, INDICES))
    reference = audit.reference if audit else None
    checks = [
        check_budget(predicate.guarantee, predicate.budget, predicate.noise),
        check_agreement(statement, certificate_input.model, leakage),
        *check_structure(structural_claim(predicate), certificate_input.model, weights, indices, reference),
        *([check_gate(audit, predicate.guarantee.epsilon, leakage), check_strength(predicate, audit)] if audit else []),
    ]
    if wrong := [check for check in checks if check.outcome == "failed"]:
        raise GateRefusedError(
            f"no certificate: a verifier would refuse it ({wrong[0].name}: {wrong[0].reason})",
            file=certificate_input.folder,
            hint="delete, attack and evaluate again",
        )


def issuer_of(params: Params) -> Issuer:
    """Return who issues certificates: as the parameters say, or else the environment."""
    settings = params.certificate.issuer
    return Issuer(name=settings.name or os.environ.get(ISSUER) or None, contact=settings.contact)
