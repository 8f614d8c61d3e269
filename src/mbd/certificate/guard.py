"""The guard before a serving system: which models may be loaded, and which inputs they may be given.

A model is admitted only if the store has a certificate of its very weights that verifies (signatures, log, structure),
is not revoked, superseded or overdue, and none of the model's files has a tombstone. :func:`input_schema` is the JSON
Schema of what it may be given: a revoked modality does not validate.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from mbd.certificate.layout import LATEST, certificate_name, read_pointer, tombstone_name
from mbd.certificate.reader import parse_envelope
from mbd.certificate.state import CONSISTENCY, STATE, published
from mbd.certificate.trust import Trust
from mbd.certificate.verify import Verdict, from_store, verify_bundle
from mbd.errors import DataError, MbdError, VerificationError
from mbd.files import sha256_file
from mbd.formats.model import ModelRecord
from mbd.formats.statement import WEIGHTS, DeletionStatement
from mbd.model.checkpoint import RECORD
from mbd.storage.store import Store


@dataclass(frozen=True)
class Admission:
    """A model that may be loaded."""

    certificate: str
    verdict: Verdict
    record: ModelRecord
    """as it is in the model's folder, which was compared with the certificate"""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the model's inputs."""
        return input_schema(self.record)


def admit(model: Path, store: Store, trust: Trust, *, at: datetime | None = None) -> Admission:
    """Return the certificate by which a model may be loaded; a VerificationError says why it may not."""
    try:
        digests = {path.name: sha256_file(path) for path in sorted(model.iterdir()) if path.is_file()}
    except OSError as error:
        raise DataError(f"the model cannot be read: {error.strerror}", file=model) from error
    if WEIGHTS not in digests:
        raise DataError("there are no weights in this folder", file=model / WEIGHTS, hint="give a model folder")
    for name, digest in digests.items():
        if store.stat(tombstone_name("sha256", digest)) is not None:
            raise VerificationError(
                "this file was purged because a modality was revoked, and must not come back",
                file=model / name,
                value=f"sha256 {digest}",
                hint="load the model that has forgotten it, and remove this one (`mbd purge scan` finds copies)",
            )
    refused: list[str] = []
    for certificate in dict.fromkeys(_certificates_of(digests[WEIGHTS], store)):
        verdict = _verified(certificate, model, store, trust, at)
        if not _problems(verdict):
            record = ModelRecord.read(model / RECORD, "model record (model.json)", "fetch the model again")
            return Admission(certificate, verdict, record)
        refused += [f"{check}" for check in _problems(verdict)]
    raise VerificationError(
        f"the model is not admitted: {'; '.join(refused)}" if refused else "no certificate is about these weights",
        file=model / WEIGHTS,
        value=f"sha256 {digests[WEIGHTS]}",
        hint="`mbd certificate list` shows which certificates stand; load a model that has one",
    )


def input_schema(record: ModelRecord) -> dict[str, Any]:
    """Return the JSON Schema of a model's inputs: for each modality, a row of numbers for each utterance."""
    row = {name: {"type": "array", "items": {"type": "number"}} for name in record.inputs}
    properties: dict[str, Any] = {
        name: {"type": "array", "items": {**row[name], "minItems": dim, "maxItems": dim}}
        for name, dim in record.inputs.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:missing-by-design:inputs:{record.sha256}",
        "title": f"Inputs of the model {record.sha256}",
        "type": "object",
        # `false` validates nothing: whatever is given of a revoked modality is refused by name.
        "properties": properties | dict.fromkeys(record.revoked, False),
        "additionalProperties": False,
        "minProperties": 1,
    }


def _verified(certificate: str, model: Path, store: Store, trust: Trust, at: datetime | None) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="mbd-guard-") as folder:
        return verify_bundle(from_store(store, certificate, Path(folder), model), trust, at=at)


def _problems(verdict: Verdict) -> list[str]:
    """Return why a verdict does not admit; here the store must have been asked, which offline is only recommended."""
    asked = [verdict.check(name) for name in (CONSISTENCY, STATE)] if verdict.claims else []
    against = [check for check in verdict.problems if check not in asked]
    against += [check for check in asked if check.outcome != "passed"]
    return [f"{check.name}: {check.reason}" for check in against]


def _certificates_of(weights: str, store: Store) -> Iterator[str]:
    """Yield the certificates that are about these weights, those that pointers name first; nothing is verified yet."""
    latest = [read_pointer(store.read(found.name), found.name).certificate for found in store.list(f"{LATEST}/")]
    for digest in (*latest, *published(store)):
        try:
            statement = parse_envelope(store.read(certificate_name(digest))).require()
        except MbdError:
            continue
        if isinstance(statement, DeletionStatement) and statement.digests[WEIGHTS] == weights:
            yield digest
