"""Step `publish`: from a certificate bundle and its model to objects in a store, an entry in the log, and a receipt.

    certificate.json, model.json, indices.safetensors, leakage.json, report.md     the bundle, as it was certified
    proof.json                                                                     its inclusion in the log
    receipt.json                                                                   every object with version and lock

Nothing is published that does not verify. Run again, with the same bundle, it changes nothing and writes the same.
"""

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbd.certificate.publish import Publisher, publish_certificate
from mbd.certificate.verification import from_folder, verify_bundle
from mbd.errors import UsageError, VerificationError
from mbd.files import write_file
from mbd.formats.deletion import DELETION
from mbd.formats.files import CERTIFICATE, PROOF, WEIGHTS
from mbd.formats.layout import RECEIPT, Receipt
from mbd.formats.statement import DeletionStatement
from mbd.history.lineage import keep_record, refuse_uncounted, stated_charges
from mbd.history.replay import read_history
from mbd.log.check import adopt_log
from mbd.log.memory import read_memory
from mbd.outputs import step_run
from mbd.params import Params
from mbd.steps.step import reads
from mbd.storage import open_private, open_store
from mbd.trust.commitments import read_lineage_key
from mbd.trust.envelope import certificate_digest
from mbd.trust.keys import load_signer
from mbd.trust.trust_file import read_trust
from mbd.verifier.bundle import VerificationInput
from mbd.verifier.reader import parse_envelope

NAME = "publish"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishResult:
    """A certificate that was published."""

    receipt: Receipt
    claims: Mapping[str, Any]
    """what it claims, as the verdict has it"""


@reads("certificate", "model")
def run(params: Params, certificate: Path, model: Path, store: str, out: Path | None = None) -> PublishResult:
    """Publish the bundle in `certificate` and the weights in `model`; with `out`, write the published bundle there."""
    trust = read_trust(Path(params.certificate.trust))
    given = from_folder(certificate, model)
    verdict = verify_bundle(given, trust, unpublished=True)
    if not verdict.genuine:
        problems = "; ".join(f"{check.name}: {check.reason}" for check in verdict.problems)
        raise VerificationError(
            f"the bundle does not verify, so it is not published: {problems}",
            file=certificate,
            hint="`mbd verify` shows all checks; certify again",
        )
    publisher = open_publisher(params, store)
    _check_budget(publisher, given.envelope)
    files = {name: places[0] for name, places in given.files.items()}
    _keep_record(params, store, model / DELETION, certificate_digest(given.envelope))
    receipt, inclusion = publish_certificate(publisher, given.envelope, files)
    if out is not None:
        with step_run(NAME, out, {"store": params.store}, certificate=certificate) as step:
            _write(step.folder, given, inclusion.to_bytes(), receipt)
            step.inputs["model"] = {"path": str(model), "digest": receipt.weights}
            step.look_at = RECEIPT
    return PublishResult(receipt, verdict.claims)


def open_publisher(params: Params, url: str) -> Publisher:
    """Return what publishes to the store at `url`, with the log's key and the trust file of the parameters."""
    trust = read_trust(Path(params.certificate.trust))
    signer = load_signer(params.certificate.log_signer, trust, key="certificate.log_signer")
    store = open_store(url, params.store)
    if params.certificate.first_time and read_memory(trust).signed is None:
        adopt_log(store, trust, max_age=params.certificate.checkpoint_age)
    return Publisher(store, params.store, signer, trust, Path(params.certificate.private))


def _keep_record(params: Params, store: str, deletion: Path, certificate: str) -> None:
    """Keep the deletion record for the next deletion of this model; a warning where that cannot be done."""
    try:
        key = read_lineage_key(params.certificate)
    except UsageError as error:
        _LOG.warning("the deletion record is not kept, and `mbd request run` cannot start from this model: %s", error)
        return
    if deletion.is_file():
        keep_record(open_private(store, params.store), certificate, deletion, key)


def _check_budget(publisher: Publisher, envelope: bytes) -> None:
    """Compare the budget that a certificate states with those of its lineage that are published."""
    statement = parse_envelope(envelope).require()
    if isinstance(statement, DeletionStatement) and statement.predicate.budget:
        history = read_history(publisher.store, publisher.trust).require()
        refuse_uncounted(statement.predicate, stated_charges(history, statement.predicate.lineage.id))


def _write(folder: Path, given: VerificationInput, proof: bytes, receipt: Receipt) -> None:
    """Write the published bundle: what was certified, and nothing else that may lie beside it."""
    write_file(folder / CERTIFICATE, given.envelope)
    write_file(folder / PROOF, proof)
    for name in (entry.what for entry in receipt.objects if entry.what not in {WEIGHTS, CERTIFICATE, PROOF}):
        shutil.copyfile(given.files[name][0], folder / name)
    write_file(folder / RECEIPT, receipt.to_json())
