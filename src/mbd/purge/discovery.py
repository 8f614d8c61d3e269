"""Find the files to purge, starting from a certificate, and those that other models still need.

- *weights*: the model before the deletion, and all earlier models of the lineage. The certificate holds their digests,
  or only commitments; then the digests come from the deletion record (`--deletion`) or the issuer's private file.
- *features*, if requested: the files of the deleted modalities in every FeatureSet, of any revision, that has the name
  of the model's training data or shares a file with it.
- *snapshots*: states of interrupted trainings (`.NAME.resume`) with tensors of the deleted modalities.
- *exports*: the files that weights of the lineage were imported from (`mbd import`), and those in `purge.also`.

MD5, size and digests of tensors come from tombstones of an earlier run, from the git history, or from existing copies:
on this machine, or the published object of a registered model, which a task on a cluster has where it has no copy of
its own.

Feature files that other models need are not removed, and the proof lists them. A model needs the files of a modality if
it takes the modality and its record lists them. Considered are models in the workspace, models that the current commit
of any git reference tracks, and models with a valid or overdue certificate in the store. Models whose weights are or
were purged are ignored. Weights, snapshots and exports are never kept.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from mbd.errors import DataError, MbdError, UsageError
from mbd.files import STEP_FILE
from mbd.formats.deletion import DELETION, read_deletion
from mbd.formats.features import MANIFEST
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.layout import certificate_name, object_name
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import DigestOrCommitment
from mbd.formats.purge import Needed, Target
from mbd.formats.statement import DeletionStatement
from mbd.history.entries import CertificateEntry, InvalidCertificate, read_entries
from mbd.history.replay import read_history
from mbd.purge.contents import Targets, tensor_digests
from mbd.purge.history import MALFORMED
from mbd.purge.places import Folder
from mbd.purge.workspace import Workspace
from mbd.storage.store import Store, chunks
from mbd.tensors import open_tensors
from mbd.trust.commitments import read_values
from mbd.trust.trust_file import Trust

_COMPARED = ("weights", "features")
"""what is recognised by its tensors in other files, too"""
_SNAPSHOT = re.compile(r"\.[^/]+\.resume/[^/]+\.safetensors$")


@dataclass(frozen=True)
class FeatureFiles:
    """The files of a FeatureSet: SHA-256 by relative path."""

    name: str
    """name of the data"""
    files: dict[str, str]

    def of(self, modalities: Iterable[str]) -> set[str]:
        """Return the digests of the files of these modalities."""
        wanted = set(modalities)
        return {digest for path, digest in self.files.items() if PurePosixPath(path).stem in wanted}


def feature_sets(workspace: Workspace) -> list[FeatureFiles]:
    """Return every FeatureSet that a folder holds or a revision tracks."""
    return list(filter(None, map(_parse_manifest, _records(workspace, MANIFEST))))


def old_weights(certificate: str, statement: DeletionStatement, deletion: Path | None, private: Path) -> list[Target]:
    """Return the weights of all models of the lineage before the certified deletion.

    Those of the released model are not among them: no weight depends on a person in the valid split, say, and the
    deletion of their recordings leaves the weights as they are.
    """
    lineage, released = statement.predicate.lineage, statement.digests[WEIGHTS]
    if deletion is not None:
        record = read_deletion(deletion)
        if record is None or record.after != released:
            raise DataError(
                "the deletion record does not belong to this certificate",
                file=deletion / DELETION,
                hint="give the folder that `mbd delete` wrote and that was published",
            )
        digests = [*record.lineage, record.before]
    else:
        digests = [_opened(digest, certificate, private) for digest in (*lineage.models, lineage.before)]
    return [Target(sha256=digest, what="weights") for digest in dict.fromkeys(digests) if digest != released]


def feature_files(statement: DeletionStatement, store: Store, sets: Iterable[FeatureFiles]) -> list[Target]:
    """Return the files of the deleted modalities in all versions of the model's training data."""
    deleted = statement.predicate.deleted
    if deleted.scope == "subjects":
        raise UsageError(
            "only some subjects were deleted, and the feature files hold all subjects",
            key="purge.features",
            hint="purge without the features, and create the FeatureSet again without these recordings",
        )
    digest = statement.digests[MODEL]
    record = ModelRecord.from_bytes(
        store.read(object_name(digest), sha256=digest), "model record", file=object_name(digest)
    )
    digests = FeatureFiles(record.data.name, record.data.files).of(deleted.modalities)
    for feature_set in sets:
        if feature_set.name == record.data.name or digests & feature_set.of(deleted.modalities):
            digests |= feature_set.of(deleted.modalities)
    return [Target(sha256=digest, what="features") for digest in sorted(digests)]


def snapshots(workspace: Workspace, modalities: Iterable[str]) -> Iterator[Target]:
    """Yield the states of interrupted trainings in local folders that hold tensors of these modalities."""
    word = re.compile(rf"(?<![a-z0-9_])({'|'.join(map(re.escape, modalities))})(?![a-z0-9_])")
    for path in _local_files(workspace):
        if _SNAPSHOT.search(path.as_posix()) and _has_tensor(path, word):
            yield with_digests(path, Target(sha256=_digests(path)[0], what="snapshot"))


def imported_from(workspace: Workspace, targets: Targets) -> Iterator[Target]:
    """Yield the files that `mbd import` has made weights among the targets from, by the records of the step."""
    for record in _json_files(workspace, STEP_FILE):
        with suppress(*MALFORMED):
            made = record["outputs"]["files"].values() if record["step"] == "import" else ()
            if any(targets.by_sha256(digest) for digest in made):
                yield Target(sha256=record["inputs"]["weights"]["digest"], what="export")


def complete(
    targets: Targets, workspace: Workspace, store: Store, statement: DeletionStatement, registered: Collection[str]
) -> None:
    """Add MD5, size and tensors to the targets that lack them.

    They come from the git history, copies on this machine, then the store: it is asked for what the log says is
    `registered`, since a request for an object names it. Tensors of weights count that have seen what was deleted,
    where the record of the model is there, and none that the released model has as well.
    """
    for target in list(workspace.history.known(targets)):
        targets.add(target)
    seen = _tensors_that_saw(workspace, set(statement.predicate.deleted.modalities))
    # Weights and features are safetensors files, so usually no other file has to be read.
    for wanted in (True, False):
        for path in _local_files(workspace):
            missing = Targets(filter(_lacks, targets))
            if not len(missing):
                break
            if (path.suffix == ".safetensors") is wanted:
                _match(path, missing, targets, seen)
    for target in [target for target in targets if _lacks(target) and target.sha256 in registered]:
        stored = store.stat(object_name(target.sha256))
        # If it has another digest it is no copy, and its size would hide the true ones.
        if stored and _digest_pieces(store.pieces(stored))[0] == target.sha256:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / WEIGHTS
                store.fetch(stored.name, file, sha256=target.sha256)
                targets.add(with_digests(file, target, seen))
    _forget_released(targets, store, statement.digests[WEIGHTS])


def _lacks(target: Target) -> bool:
    return target.md5 is None or target.size is None or (target.what in _COMPARED and not target.tensors)


def _tensors_that_saw(workspace: Workspace, modalities: set[str]) -> dict[str, set[str]]:
    """Return the tensors that have seen one of these modalities, by the SHA-256 of the weights."""
    seen = dict[str, set[str]]()
    for record in _records(workspace, MODEL):
        with suppress(*MALFORMED):
            names = {name for name, tensor in record["tensors"].items() if modalities.intersection(tensor["sees"])}
            seen[str(record["sha256"])] = names
    return seen


def _forget_released(targets: Targets, store: Store, released: str) -> None:
    """Take tensors off the targets that the released model has as well: no copy is recognised by them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / WEIGHTS
        try:
            store.fetch(object_name(released), file, sha256=released)
        except MbdError:
            return  # it is not published; then what the records say of the tensors decides
        kept = tensor_digests(file)
    for target in [target for target in targets if kept.keys() & target.tensors.keys()]:
        targets.forget_tensors(target, kept)


def _match(path: Path, missing: Targets, targets: Targets, seen: Mapping[str, Collection[str]]) -> None:
    try:
        if missing.may_be(path.stat().st_size) and (target := missing.by_sha256(_digests(path)[0])):
            targets.add(with_digests(path, target, seen))
    except OSError:
        return  # the search of its place reports that it cannot be read


def with_digests(path: Path, target: Target, seen: Mapping[str, Collection[str]] = MappingProxyType({})) -> Target:
    """Return a target with the digests and the size of a copy; `seen`: the tensors that count, by weights."""
    sha256, md5 = _digests(path)
    tensors = tensor_digests(path, seen.get(sha256)) if target.what in _COMPARED else {}
    return Target(sha256=sha256, what=target.what, md5=md5, size=path.stat().st_size, tensors=tensors)


def _opened(digest: DigestOrCommitment, certificate: str, private: Path) -> str:
    """Return a digest; for a commitment, the value that its opening in the private file gives."""
    if value := digest.sha256 or read_values(private, certificate).get(str(digest.commitment)):
        return value
    raise UsageError(
        "the certificate holds only commitments to the digests of the old weights",
        file=private / f"{certificate}.json",
        hint="give the folder of the deletion with --deletion, or run where the folder certificate.private is",
    )


def _local_files(workspace: Workspace) -> Iterator[Path]:
    for place in workspace.places:
        if isinstance(place, Folder):
            yield from place.files()


def _has_tensor(path: Path, word: re.Pattern[str]) -> bool:
    try:
        return any(word.search(name) for name in open_tensors(path))
    except (MbdError, OSError):
        return True  # an unreadable snapshot is removed as well


def _digests(path: Path) -> tuple[str, str]:
    with path.open("rb") as stream:
        return _digest_pieces(chunks(stream))


def _digest_pieces(pieces: Iterable[bytes]) -> tuple[str, str]:
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        sha256.update(piece)
        md5.update(piece)
    return sha256.hexdigest(), md5.hexdigest()


def _files_named(workspace: Workspace, name: str) -> Iterator[Path]:
    for place in workspace.places:
        if isinstance(place, Folder) and not place.by_name:
            yield from (path for path in place.files() if path.name == name)


def _json_files(workspace: Workspace, name: str) -> Iterator[Any]:
    for path in _files_named(workspace, name):
        with suppress(OSError, ValueError):
            yield json.loads(path.read_bytes())


def _records(workspace: Workspace, name: str) -> Iterator[Any]:
    """Yield the content of every JSON file of a name that a folder holds or a revision tracks."""
    yield from _json_files(workspace, name)
    yield from workspace.history.records(name)


def _parse_manifest(record: Any) -> FeatureFiles | None:  # noqa: ANN401 -- any JSON
    with suppress(*MALFORMED):
        files = {path: digest for split in record["splits"].values() for path, digest in split["files"].items()}
        return FeatureFiles(str(record["name"]), files)
    return None


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
    needed: dict[str, Needed] = {}
    for where, record in (*_models(workspace), *published):
        for sha256, weights in _needs(record, targets) if not gone.by_sha256(str(record.get("sha256"))) else ():
            needed.setdefault(sha256, Needed(sha256=sha256, by=str(weights), where=where))
    for feature_set in sets:
        # A model's record lists the files that training has read; evaluation needs the rest of the FeatureSet.
        peers = feature_set.files.values()
        need = next((needed[digest] for digest in peers if digest in needed), None)
        for digest in peers if need else ():
            if targets.by_sha256(digest) and need:
                needed.setdefault(digest, need.model_copy(update={"sha256": digest}))
    return list(needed.values())


def published_models(store: Store, trust: Trust, at: datetime) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the certificate and the record of each model whose certificate was not withdrawn, as far as is known.

    Raises:
        DataError: The record of such a model is missing or was changed: it is not known which files the model needs.
        VerificationError: The same of a certificate, or of another entry of the log.
    """
    history = read_history(store, trust).require()
    for entry in read_entries(store, trust, at, history):
        if isinstance(entry, InvalidCertificate) and entry.digest in history.certificates:
            raise DataError(
                f"it is not known which files a published model needs: {entry.reason}",
                file=certificate_name(entry.digest),
                hint="restore the object from a copy of the store",
            )
        if isinstance(entry, CertificateEntry) and entry.status.state in {"valid", "overdue", "unknown"}:
            digest = entry.statement.digests[MODEL]
            with suppress(ValueError):
                record = json.loads(store.read(object_name(digest), sha256=digest))
                if isinstance(record, dict):
                    yield f"certificate {entry.digest}", record


def _needs(record: dict[str, Any], targets: Targets) -> Iterator[tuple[str, str]]:
    """Yield the digests of the targets that a model needs, each with the digest of its weights."""
    with suppress(*MALFORMED):
        weights, taken = str(record["sha256"]), set(record["modalities"]) - set(record["revoked"])
        for name, sha256 in record["data"]["files"].items() if not targets.by_sha256(weights) else ():
            if PurePosixPath(name).stem in taken and targets.by_sha256(str(sha256)):
                yield sha256, weights


def _models(workspace: Workspace) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in _files_named(workspace, MODEL):
        if (path.parent / WEIGHTS).is_file():
            with suppress(ValueError):  # one that cannot be read at all may need any of the files
                record = json.loads(path.read_bytes())
                if isinstance(record, dict):
                    yield str(path), record
    for ref, pointers in workspace.history.tips.items():
        yield from ((ref, record) for record in workspace.history.records(MODEL, pointers) if isinstance(record, dict))
