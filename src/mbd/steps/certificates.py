"""Steps `certificate fetch|reaudit|restore-ledger`: what is done with certificates that are published.

`fetch` brings the model of a certificate out of the store, every file checked by its digest:

    model.safetensors, model.json, indices.safetensors     as they were published
    published.json                                         by which certificate, and what was deleted

The model of a certificate that was revoked, superseded or refuted is not fetched.

`reaudit` signs and logs what new attacks on a certified model found. If the gate let the model pass, the statement sets
the date of the next audit. If it refused, the certificate is refuted: it is withdrawn, and the step ends with
exit code 3. Whether the model passed is decided again from the numbers in the record: one whose decision does not
follow from them is not signed.

`restore-ledger` enters what published certificates state into the budget ledger of their lineage, after it was lost.
What was charged and never certified is counted as far as a later certificate states it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mbd.certificate.compose import compose_reaudit
from mbd.certificate.publish import announce
from mbd.errors import DataError, GateRefusedError, UsageError, VerificationError
from mbd.files import write_file
from mbd.formats.deletion import read_deletion
from mbd.formats.files import INDICES, MODEL, WEIGHTS
from mbd.formats.layout import object_name
from mbd.formats.statement import ReauditStatement
from mbd.history.entries import read_entry
from mbd.history.facts import audit_effect
from mbd.history.lineage import restore, stated_charges
from mbd.history.replay import read_history
from mbd.model.checkpoint import load_model
from mbd.outputs import step_run
from mbd.params import Params
from mbd.privacy.ledger import open_ledger
from mbd.records import Digest, Record, now
from mbd.steps.certify import RUN_ID
from mbd.steps.publish import open_publisher
from mbd.steps.revoked import read_log
from mbd.steps.step import reads
from mbd.storage import open_store
from mbd.storage.store import Store
from mbd.trust.commitments import Commitments, read_lineage_key
from mbd.trust.trust_file import Trust, read_trust

NAME = "fetch"
PUBLISHED = "published.json"


class Published(Record):
    """What `published.json` says."""

    format: Literal["urn:missing-by-design:published-model:v1"] = "urn:missing-by-design:published-model:v1"
    certificate: Digest
    model: str
    """the name under which it was published"""
    modalities: tuple[str, ...]
    """what this certificate says was deleted"""
    revoked: tuple[str, ...]
    """all that was ever revoked: a reference is trained without these"""


def fetch_certified(
    params: Params, store: str, out: Path, *, modality: str | None = None, certificate: str | None = None
) -> Published:
    """Fetch the model of a certificate, or of the latest one for a modality of `certificate.model`, to `out`."""
    opened, trust = open_store(store, params.store), read_trust(Path(params.certificate.trust))
    digest = certificate or _latest(opened, trust, params.certificate.model, modality)
    certified = read_entry(opened, digest, trust, now(), max_age=params.certificate.checkpoint_age)
    predicate, digests = certified.statement.predicate, certified.statement.digests
    if certified.status.state not in ("valid", "overdue"):
        raise UsageError(
            f"this certificate is no longer valid: {certified.status.reason}",
            value=certified.digest,
            hint="`mbd certificate list` shows those that are valid",
        )
    published = Published(
        certificate=certified.digest,
        model=predicate.model,
        modalities=predicate.deleted.modalities,
        revoked=predicate.deleted.revoked,
    )
    with step_run(NAME, out, {"store": params.store}) as step:
        step.inputs["certificate"] = {
            "path": f"{opened.url}/certificates/{certified.digest}",
            "digest": certified.digest,
        }
        for name in (WEIGHTS, MODEL, INDICES):
            opened.fetch(object_name(digests[name]), step.folder / name, sha256=digests[name])
        write_file(step.folder / PUBLISHED, published.to_json())
        step.look_at = PUBLISHED
    return published


def _latest(store: Store, trust: Trust, model: str, modality: str | None) -> str:
    if not modality:
        raise UsageError("neither a certificate nor a modality was named", hint="give CERTIFICATE or --modality")
    latest = read_history(store, trust).model(model).audited(modality)
    if latest is None:
        raise DataError(
            f"no certificate was published for {modality} of {model}",
            file=store.url,
            hint="`mbd certificate list` shows what there is; certificate.model names the model",
        )
    return latest.digest


@reads("leakage")
def log_audit(params: Params, certificate: str, leakage: Path, store: str) -> ReauditStatement:
    """State what the attacks in `leakage` found about a certificate, given by its SHA-256 or the start of it.

    Raises:
        GateRefusedError: the gate refused the model. The statement is published nevertheless.
        VerificationError: The record says that the model passed, and its numbers do not. Nothing is published.
    """
    publisher, commitments = open_publisher(params, store), Commitments()
    publisher.complete()
    certified = read_entry(publisher.store, certificate, publisher.trust, now())
    days = params.certificate.reaudit_days
    run_id = os.environ.get(RUN_ID) or None
    statement, content = compose_reaudit(
        certified.digest, certified.statement, leakage, now(), days, commitments, run_id
    )
    effect, reason = audit_effect(statement, certified.facts)
    if statement.predicate.passed and effect != "passed":
        raise VerificationError(
            f"the record says that the model passed, and every reader would refuse it: {reason}",
            file=leakage,
            hint="run `mbd attack` again on the certified model",
        )
    publisher.store.create(object_name(statement.predicate.leakage), content)
    announce(statement, params.certificate, publisher, commitments)
    if not statement.predicate.passed:
        raise GateRefusedError(
            f"the audit refutes certificate {certified.digest}: {'; '.join(statement.predicate.audit.reasons)}",
            file=leakage,
            hint="the audit is in the log and the certificate is withdrawn; delete with another method",
        )
    return statement


@dataclass(frozen=True)
class RestoredLedger:
    """A ledger after what it lacked was entered."""

    ledger: Path
    added: int
    """number of charges that were added"""
    rho: float
    """what the lineage has spent"""


@reads("model")
def restore_ledger(params: Params, model: Path, store: str) -> RestoredLedger:
    """Restore the ledger of the lineage of `model`, the first model or a later one with its deletion record."""
    deletion = read_deletion(model)
    first = deletion.lineage[0] if deletion else load_model(model)[0].sha256
    stated = stated_charges(read_log(params, store), read_lineage_key(params.certificate).lineage(first))
    with open_ledger(Path(params.deletion.ledgers), first) as ledger:
        added = restore(ledger, stated)
        return RestoredLedger(ledger.file, added, ledger.rho)
