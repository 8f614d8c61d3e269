"""Feature files that other models still need: they are not removed, and the proof lists them.

A model needs the files of a modality if it takes the modality and its record lists them. Considered are models in the
workspace, models that the current commit of any git reference tracks, and models with a valid or overdue certificate in
the store. Models whose weights are or were purged are ignored. Weights, snapshots and exports are never kept.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from mbd.errors import DataError
from mbd.formats.layout import certificate_name, object_name
from mbd.formats.purge import Needed
from mbd.formats.statement import MODEL
from mbd.history.replay import read_history
from mbd.history.state import CertificateEntry, InvalidCertificate, entries
from mbd.model.checkpoint import RECORD, WEIGHTS
from mbd.purge.discovery import FeatureFiles
from mbd.purge.places.folders import Folder
from mbd.purge.targets import Targets
from mbd.purge.workspace import Workspace
from mbd.storage.store import Store
from mbd.trust.trust_file import Trust


def needed_by_others(
    targets: Targets,
    gone: Targets,
    workspace: Workspace,
    sets: Iterable[FeatureFiles],
    published: Iterable[tuple[str, dict[str, Any]]],
) -> list[Needed]:
    """Return the feature files among the targets that must be kept, each with a model that needs it.

    Args:
        targets: the files to purge.
        gone: files that were purged before.
        workspace: the places and the git history.
        sets: all FeatureSets.
        published: see :func:`published_models`.

    """
    if not any(target.what == "features" for target in targets):
        return []
    found: dict[str, Needed] = {}
    for where, record in (*_models(workspace), *published):
        for sha256, weights in _needs(record, targets) if not gone.by_sha256(str(record.get("sha256"))) else ():
            found.setdefault(sha256, Needed(sha256=sha256, by=str(weights), where=where))
    for one in sets:
        # A model's record lists the files that training has read; evaluation needs the rest of the FeatureSet.
        peers = one.files.values()
        need = next((found[digest] for digest in peers if digest in found), None)
        for digest in peers if need else ():
            if targets.by_sha256(digest) and need:
                found.setdefault(digest, need.model_copy(update={"sha256": digest}))
    return list(found.values())


def published_models(store: Store, trust: Trust, at: datetime) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the certificate and the record of each model whose certificate was not withdrawn, as far as is known.

    Raises:
        DataError: The record of such a model is missing or was changed: it is not known which files the model needs.
        VerificationError: The same of a certificate, or of another entry of the log.
    """
    history = read_history(store, trust).require()
    for entry in entries(store, trust, at, history):
        if isinstance(entry, InvalidCertificate) and entry.digest in history.certificates:
            raise DataError(
                f"it is not known which files a published model needs: {entry.reason}",
                file=certificate_name(entry.digest),
                hint="restore the object from a copy of the store",
            )
        if isinstance(entry, CertificateEntry) and entry.status.state in {"valid", "overdue", "unknown"}:
            digest = entry.statement.digests[MODEL]
            record = _json(store.read(object_name(digest), sha256=digest))
            if isinstance(record, dict):
                yield f"certificate {entry.digest}", record


def _needs(record: dict[str, Any], targets: Targets) -> Iterator[tuple[str, str]]:
    """Yield the digests of the targets that a model needs, each with the digest of its weights."""
    try:
        weights, taken = record["sha256"], set(record["modalities"]) - set(record["revoked"])
        files = record["data"]["files"].items()
    except (KeyError, TypeError, AttributeError):
        return
    if targets.by_sha256(weights):
        return
    for name, sha256 in files:
        if PurePosixPath(name).stem in taken and targets.by_sha256(sha256):
            yield sha256, weights


def _models(workspace: Workspace) -> Iterator[tuple[str, dict[str, Any]]]:
    for place in workspace.places:
        if isinstance(place, Folder) and not place.by_name:
            for path in place.files():
                whole = path.name == RECORD and (path.parent / WEIGHTS).is_file()
                if whole and isinstance(record := _json(path.read_bytes()), dict):
                    yield str(path), record
    for ref, pointers in workspace.history.tips.items():
        yield from ((ref, record) for record in workspace.history.records(RECORD, pointers) if isinstance(record, dict))


def _json(content: bytes) -> Any:  # noqa: ANN401 -- any JSON
    try:
        return json.loads(content)
    except ValueError:
        return None
