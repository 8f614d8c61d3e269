"""From a receipt to the files that must go.

- *weights*: those that were deleted from, and all before them in the lineage. A certificate tells their digests, or
  only commitments; then the deletion record (`--deletion`) or the issuer's private file tells them.
- *features*, if asked for: the files of the deleted modalities in every FeatureSet, of any revision, that has the name
  of the data that the model was made from or shares a file with it.
- *snapshots*: states of a killed training (`.NAME.resume`) that hold something of the deleted modalities.
- *exports*: what `purge.also` lists.

Their MD5s and sizes come from tombstones of an earlier run, from the history, or from copies that are still there.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mbd.certificate.commitments import read_private
from mbd.certificate.layout import object_name
from mbd.errors import DataError, MbdError, UsageError
from mbd.formats.deletion import DELETION, read_deletion
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import DigestOrCommitment
from mbd.formats.receipt import Receipt
from mbd.formats.statement import MODEL, DeletionStatement
from mbd.purge.feature_sets import FeatureFiles
from mbd.purge.places import Workspace
from mbd.purge.places.folders import Folder
from mbd.purge.targets import Target, Targets
from mbd.storage.store import Store
from mbd.tensors import open_tensors

_SNAPSHOT = re.compile(r"\.[^/]+\.resume/[^/]+\.safetensors$")


def old_weights(receipt: Receipt, statement: DeletionStatement, deletion: Path | None, private: Path) -> list[Target]:
    """Return the weights of the lineage before the certified deletion."""
    lineage = statement.predicate.lineage
    if deletion is not None:
        record = read_deletion(deletion)
        if record is None or record.after != receipt.weights:
            raise DataError(
                "this is not the deletion that the receipt is about",
                file=deletion / DELETION,
                hint="give the folder that `mbd delete` wrote, and that was published",
            )
        digests = [*record.lineage, record.before]
    else:
        digests = [_opened(told, receipt.certificate, private) for told in (*lineage.models, lineage.before)]
    return [Target(digest, "weights") for digest in dict.fromkeys(digests)]


def feature_files(statement: DeletionStatement, store: Store, sets: Iterable[FeatureFiles]) -> list[Target]:
    """Return the files of the deleted modalities in the data that the model was made from, in all its versions."""
    deleted = statement.predicate.deleted
    if deleted.scope == "subjects":
        raise UsageError(
            "only some subjects were forgotten, and the feature files hold all of them",
            key="purge.features",
            hint="purge without the features; make the FeatureSet again without these recordings",
        )
    digest = statement.digests[MODEL]
    record = ModelRecord.model_validate_json(store.read(object_name(digest), sha256=digest))
    digests = FeatureFiles(record.data.name, record.data.files).of(deleted.modalities)
    for one in sets:
        if one.name == record.data.name or digests & one.of(deleted.modalities):
            digests |= one.of(deleted.modalities)
    return [Target(digest, "features") for digest in sorted(digests)]


def snapshots(workspace: Workspace, modalities: Iterable[str]) -> Iterator[Target]:
    """Yield the states of killed trainings in local folders that hold something of these modalities."""
    word = re.compile(rf"(?<![a-z0-9_])({'|'.join(map(re.escape, modalities))})(?![a-z0-9_])")
    for path in _local_files(workspace):
        if _SNAPSHOT.search(path.as_posix()) and _has_tensor(path, word):
            yield seen(path, Target(_digests(path)[0], "snapshot"))


def complete(targets: Targets, workspace: Workspace) -> None:
    """Find out MD5 and size of the targets that lack them: from the history, then from copies on this machine."""
    for target in list(workspace.history.known(targets)):
        targets.add(target)
    # Weights and features are safetensors files, so most often nothing else has to be read.
    for wanted in (True, False):
        for path in _local_files(workspace):
            missing = Targets(t for t in targets if t.md5 is None or t.size is None)
            if not len(missing):
                return
            if (path.suffix == ".safetensors") is wanted:
                _look_at(path, missing, targets)


def _look_at(path: Path, missing: Targets, targets: Targets) -> None:
    try:
        if missing.may_be(path.stat().st_size) and (target := missing.by_sha256(_digests(path)[0])):
            targets.add(seen(path, target))
    except OSError:
        return  # the search of its place will tell


def seen(path: Path, target: Target) -> Target:
    """Return a target with what a copy of it tells."""
    sha256, md5 = _digests(path)
    return Target(sha256, target.what, md5, path.stat().st_size)


def _opened(told: DigestOrCommitment, certificate: str, private: Path) -> str:
    if told.sha256:
        return told.sha256
    file = private / f"{certificate}.json"
    if file.exists():
        for opening in read_private(file).openings:
            if opening.commitment == told.commitment:
                return opening.value
    raise UsageError(
        "the certificate does not tell the digests of the old weights, only commitments to them",
        file=file,
        hint="give the deleted model's folder with --deletion, or run where certificate.private is",
    )


def _local_files(workspace: Workspace) -> Iterator[Path]:
    for place in workspace.places:
        if isinstance(place, Folder):
            yield from place.files()


def _has_tensor(path: Path, word: re.Pattern[str]) -> bool:
    try:
        return any(word.search(name) for name in open_tensors(path))
    except (MbdError, OSError):
        return True  # what cannot be read is no reason to keep it


def _digests(path: Path) -> tuple[str, str]:
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            sha256.update(chunk)
            md5.update(chunk)
    return sha256.hexdigest(), md5.hexdigest()
