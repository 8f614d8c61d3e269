"""The guard before a serving system: which models may be loaded, and which inputs they may be given.

A model is admitted only if the log has a certificate of its very weights that verifies (signatures, log, structure),
is not revoked, superseded, refuted or overdue, and the model takes no modality that was revoked for its name. Purged
weights have none, so the guard needs no list of them. Nothing is admitted if the log cannot be read completely, or if
its checkpoint is too old.
:func:`input_schema` is the JSON Schema of what a model may be given: a revoked modality does not validate.
"""

import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from mbd.certificate.history import MAX_AGE, History
from mbd.certificate.replay import read_history
from mbd.certificate.state import status_in
from mbd.certificate.trust import Trust
from mbd.certificate.verify import Verdict, from_store, verify_bundle
from mbd.errors import DataError, VerificationError
from mbd.files import sha256_file
from mbd.formats.features import Shape, lengths_of
from mbd.formats.model import ModelRecord
from mbd.formats.statement import WEIGHTS
from mbd.model.checkpoint import RECORD
from mbd.records import now
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


def admit(
    model: Path,
    store: Store,
    trust: Trust,
    *,
    at: datetime | None = None,
    max_age: timedelta | None = MAX_AGE,
    history: History | None = None,
    name: str | None = None,
) -> Admission:
    """Return the certificate by which a model may be loaded.

    Args:
        model: The model's folder.
        store: Where its certificate is published.
        trust: Who is trusted.
        at: The time that counts as now.
        max_age: How old the log's checkpoint may be; an older one may hide that the certificate was revoked.
        history: What the store's log says, if it was read before.
        name: The model name under which it is to be loaded: certificates of other names do not count. None: any name.

    Raises:
        VerificationError: The model may not be loaded; it says why.

    """
    at = at or now()
    try:
        digests = {path.name: sha256_file(path) for path in sorted(model.iterdir()) if path.is_file()}
    except OSError as error:
        raise DataError(f"the model cannot be read: {error.strerror}", file=model) from error
    if WEIGHTS not in digests:
        raise DataError("there are no weights in this folder", file=model / WEIGHTS, hint="give a model folder")
    history = (history or read_history(store, trust)).require(at, max_age)
    refused: list[str] = []
    named = [one for one in history.certificates.values() if name in (None, one.model)]
    about = [one for one in named if one.weights == digests[WEIGHTS]]
    for certificate in reversed(about):
        status = status_in(history, certificate, at, max_age=max_age)
        if status.state != "valid":
            refused.append(status.reason)
            continue
        verdict = _verified(certificate.digest, model, history, trust, at, max_age)
        if verdict.verified:
            record = ModelRecord.read(model / RECORD, "model record (model.json)", "fetch the model again")
            return Admission(certificate.digest, verdict, record)
        refused += [f"{check.name}: {check.reason}" for check in verdict.problems]
    raise VerificationError(
        f"the model is not admitted: {'; '.join(refused)}" if refused else "no certificate is about these weights",
        file=model / WEIGHTS,
        value=f"sha256 {digests[WEIGHTS]}",
        hint="`mbd certificate list` shows which certificates are valid; load a model that has one",
    )


def input_schema(record: ModelRecord) -> dict[str, Any]:
    """Return the JSON Schema of a model's inputs: for each modality, an entry of its shape for each utterance."""
    properties: dict[str, Any] = {}
    for name, shape in record.shapes.items():
        if name in record.inputs:
            properties[name] = {"type": "array", "items": _entry_schema(shape)}
            if shape.has_lengths:
                length = {"type": "integer", "minimum": 1, "maximum": shape.size[0]}
                properties[lengths_of(name)] = {"type": "array", "items": length}
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


def _entry_schema(shape: Shape) -> dict[str, Any]:
    """Return the JSON Schema of one row of a shape: arrays of fixed sizes in each other, and numbers or token ids."""
    schema: dict[str, Any] = {"type": "number"}
    if shape.vocabulary is not None:
        schema = {"type": "integer", "minimum": 0, "maximum": shape.vocabulary - 1}
    for size in reversed(shape.size):
        schema = {"type": "array", "items": schema, "minItems": size, "maxItems": size}
    return schema


def _verified(
    certificate: str, model: Path, history: History, trust: Trust, at: datetime, max_age: timedelta | None
) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="mbd-guard-") as folder:
        given = from_store(history.store, certificate, Path(folder), model)
        return verify_bundle(given, trust, at=at, history=history, max_age=max_age)
