"""The guard before a serving system: which models may be loaded, and which inputs they may be given.

A model is admitted only if the log has a certificate of its very weights that verifies (signatures, log, structure),
is not revoked, superseded, refuted or overdue, and the model takes no modality that was revoked for its name. Without a
certificate, a registration of its weights and record admits it, if it was not revoked and the model has seen nothing
that was revoked for its name, neither a modality nor recordings of a person. Weights that have several names are loaded
under one of them, and what is held against them under one holds under all: a model that an audit has refuted, or that
has seen what is revoked for one of its names, is not admitted by registering it under another. Purged weights are
admitted by nothing, so the guard needs no list of them. Nothing is admitted if the log cannot be read completely, or if
its checkpoint is too old.
:func:`input_schema` is the JSON Schema of what a model may be given: a revoked modality does not validate.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from mbd.certificate.verification import Verdict, from_store, verify_bundle
from mbd.errors import DataError, UsageError, VerificationError
from mbd.files import sha256_file
from mbd.formats.features import Shape, lengths_of
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.model import ModelRecord
from mbd.history.facts import CertificateFacts, RegistrationFacts, Release
from mbd.history.history import MAX_AGE, History
from mbd.history.replay import read_history
from mbd.history.state import status_in
from mbd.records import now
from mbd.storage.store import Store
from mbd.trust.trust_file import Trust


@dataclass(frozen=True)
class Admission:
    """A model that may be loaded."""

    release: Release
    """the certificate or the registration that admits it, as the log has it"""
    verdict: Verdict | None
    """of the certificate; None: a registration admits the model"""
    record: ModelRecord
    """as it is in the model's folder, which was compared with the certificate or the registration"""

    @property
    def certificate(self) -> str | None:
        """SHA-256 of the certificate that admits it; None: a registration does."""
        return self.release.digest if isinstance(self.release, CertificateFacts) else None

    @property
    def registration(self) -> str | None:
        """SHA-256 of the registration that admits it; None: a certificate does."""
        return self.release.digest if isinstance(self.release, RegistrationFacts) else None

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
    """Return the certificate, or else the registration, by which a model may be loaded.

    Args:
        model: The model's folder.
        store: Where it is published.
        trust: Who is trusted.
        at: The time that counts as now.
        max_age: How old the log's checkpoint may be; an older one may hide that the certificate was revoked.
        history: What the store's log says, if it was read before.
        name: The model name under which it is to be loaded. None: its only one.

    Raises:
        VerificationError: The model may not be loaded; it says why.
        UsageError: The weights have several names, and none was given.

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
    releases = _releases(history, digests[WEIGHTS])
    names = sorted({release.model for release in releases})
    if name is None and len(names) > 1:
        hint = "say under which it is to be loaded"
        raise UsageError("these weights have several names", key="--as", value=", ".join(names), hint=hint)
    for release in (r for r in releases if name in (None, r.model)):
        problem, verdict = _problem(release, model, digests, history, trust, at, max_age)
        problem = problem or _held_against(releases, release, history)
        if problem is None:
            record = ModelRecord.read(model / MODEL, "model record (model.json)", "fetch the model again")
            return Admission(release, verdict, record)
        refused.append(problem)
    nothing = "no certificate is about these weights, and no registration"
    raise VerificationError(
        f"the model is not admitted: {'; '.join(refused)}" if refused else nothing,
        file=model / WEIGHTS,
        value=f"sha256 {digests[WEIGHTS]}",
        hint="`mbd models list` shows what is current, `mbd certificate list` which certificates are valid",
    )


def _releases(history: History, weights: str) -> list[Release]:
    """Return the certificates and then the registrations of these weights, the latest first."""
    kinds: tuple[Iterable[Release], ...] = (history.certificates.values(), history.registrations.values())
    return [r for releases in kinds for r in reversed(tuple(releases)) if r.weights == weights]


def _held_against(releases: Sequence[Release], release: Release, history: History) -> str | None:
    """Say what the log holds against the weights of a release under any of their names; None: nothing.

    An audit that has refuted them is answered by a certificate alone that was logged after it.
    """
    by_name: dict[str, list[str | None]] = {}
    for each in releases:
        for audit in (s for s in history.about(each.digest) if s.effect == "refuted"):
            if isinstance(release, RegistrationFacts) or release.index < audit.index:
                return f"these weights, as {each.model}, were refused by the audit of {audit.issued:%Y-%m-%d}"
        by_name.setdefault(each.model, []).append(history.model(each.model).problem(each))
    return next((problems[0] for problems in by_name.values() if all(problems)), None)


def _problem(
    release: Release,
    model: Path,
    digests: Mapping[str, str],
    history: History,
    trust: Trust,
    at: datetime,
    max_age: timedelta | None,
) -> tuple[str | None, Verdict | None]:
    """Return why a release does not admit the model in a folder (None: it does), and the verdict on a certificate."""
    if isinstance(release, RegistrationFacts):
        revoked = next((s for s in history.about(release.digest) if s.effect == "revoked"), None)
        if revoked:
            return f"its registration was revoked {revoked.issued:%Y-%m-%d}: {revoked.reason}", None
        if digests.get(MODEL) != release.record:
            return f"{MODEL} is not the one that was registered", None
        return history.model(release.model).problem(release), None
    status = status_in(history, release, at, max_age=max_age)
    if status.state != "valid":
        return status.reason, None
    with tempfile.TemporaryDirectory(prefix="mbd-guard-") as folder:
        published = from_store(history.store, release.digest, Path(folder), model)
        verdict = verify_bundle(published, trust, at=at, history=history, max_age=max_age)
    if not verdict.verified:
        return "; ".join(f"{check.name}: {check.reason}" for check in verdict.problems), verdict
    return history.model(release.model).problem(release), verdict


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
