"""A FeatureSet of a given revision of a DVC repository.

Git names the revision, DVC knows which bytes belong to it, and the manifest lists the digest of every file: commit →
md5 of `manifest.json` → SHA-256 of all data. Each link is checked, so what comes out is what was committed.

A repository that is a folder here is read in place, with its own cache; any other is cloned into a temporary folder.
Credentials are those of git and of the DVC remote (environment, helpers, profiles).
"""

import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mbd import git
from mbd.errors import DataError, MbdError, UsageError
from mbd.features.contract import FeatureSet
from mbd.files import sha256_file
from mbd.formats.features import MANIFEST
from mbd.remote_errors import ErrorKind, classify_error
from mbd.urls import without_credentials

Prepare = Callable[[Path], Collection[str]]
"""makes a fetched folder plain, where it is; returns the modalities that can no longer be read"""
_NOT_THERE = (
    "the data of the revision is neither in the DVC remote nor in the cache",
    "`dvc push` it from a machine that has it, or name another remote with --dvc-remote",
)
_PROBLEMS = {
    ErrorKind.CREDENTIALS: (
        "the DVC remote refused the credentials, or there are none",
        "set credentials that may read the remote (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
    ),
    ErrorKind.UNREACHABLE: ("the DVC remote cannot be reached", "`mbd doctor` in the repository checks its remotes"),
    ErrorKind.NO_BUCKET: _NOT_THERE,
    ErrorKind.NOT_THERE: _NOT_THERE,
}


@dataclass(frozen=True)
class DataRevision:
    """Where a FeatureSet came from."""

    repository: str
    """URL or folder, without credentials"""
    commit: str
    path: str
    manifest_digest: str
    unreadable: tuple[str, ...] = ()
    """modalities that are missing, because they can no longer be read"""


def as_it_is(_: Path) -> tuple[str, ...]:
    """Leave a fetched folder as it is."""
    return ()


def fetch_revision(
    repository: str, rev: str, path: str, folder: Path, remote: str | None = None, prepare: Prepare = as_it_is
) -> DataRevision:
    """Copy the FeatureSet at `path` in revision `rev` (branch, tag, commit, `HEAD`) into the empty `folder`.

    `remote` is the name of the DVC remote to read from, if it is not the default one.
    """
    with _history(repository) as clone:
        commit = git.resolve(clone, rev)
        place = _Place(clone, commit, path.strip("/"), f"{without_credentials(repository)} at {commit[:12]}")
        committed_md5 = _copy(place, folder, remote)
    unreadable = tuple(prepare(folder))
    _verify(place, folder, committed_md5, unreadable)
    return DataRevision(without_credentials(repository), commit, place.path, sha256_file(folder / MANIFEST), unreadable)


@dataclass(frozen=True)
class _Place:
    clone: Path
    commit: str
    path: str
    shown: str


@contextmanager
def _history(repository: str) -> Iterator[Path]:
    if (Path(repository) / ".git").exists():
        yield Path(repository).absolute()
        return
    with TemporaryDirectory(prefix="mbd-revision-") as temporary:
        git.clone(repository, Path(temporary) / "clone")
        yield Path(temporary) / "clone"


def _copy(place: _Place, folder: Path, remote: str | None) -> str | None:
    """Copy the FeatureSet; return the md5 that the commit has for its manifest."""
    from dvc.api import DVCFileSystem  # noqa: PLC0415 -- takes a second
    from dvc.config import RemoteNotFoundError  # noqa: PLC0415
    from dvc.fs.callbacks import TqdmCallback  # noqa: PLC0415

    copies_not_links = {"cache": {"type": ["reflink", "copy"]}}
    files = DVCFileSystem(str(place.clone), rev=place.commit, subrepos=True, remote=remote, config=copies_not_links)
    try:
        committed_md5 = _find_manifest(files, place)
        with TqdmCallback(desc="fetching", unit="file", disable=None) as callback:
            # The slash at the end: into `folder`, not into a folder in it.
            files.get(f"{place.path}/", str(folder), recursive=True, callback=callback)
    except RemoteNotFoundError:
        raise UsageError(
            "the repository has no DVC remote of that name",
            value=remote,
            hint="`dvc remote list` in the repository lists them",
        ) from None
    except MbdError:
        raise
    except Exception as error:
        kind, reason = classify_error(error)
        problem, hint = _PROBLEMS.get(kind, ("the revision cannot be fetched", None))
        raise DataError(f"{problem}: {reason}", value=f"{place.path} of {place.shown}", hint=hint) from error
    finally:
        files.close()
    (folder / ".gitignore").unlink(missing_ok=True)  # DVC's note to git, no part of the data
    return committed_md5


def _find_manifest(files: Any, place: _Place) -> str | None:  # noqa: ANN401 -- DVC has no types
    """Return the md5 that the commit has for the manifest; none if git itself holds the manifest."""
    # Not exists() or isfile(): those answer False to a remote that cannot be read, too.
    try:
        files.info(place.path)
    except FileNotFoundError:
        raise DataError(
            f"the path is not in {place.shown}",
            value=place.path,
            hint="give a path relative to the top of the repository, and a revision that has it",
        ) from None
    try:
        md5: str | None = files.info(f"{place.path}/{MANIFEST}").get("md5")
    except FileNotFoundError:
        raise DataError(
            f"the path is not a FeatureSet in {place.shown}: it has no {MANIFEST}",
            value=place.path,
            hint="give the folder that `mbd features --out` wrote",
        ) from None
    return md5


def _verify(place: _Place, folder: Path, committed_md5: str | None, unreadable: tuple[str, ...]) -> None:
    md5 = hashlib.md5((folder / MANIFEST).read_bytes(), usedforsecurity=False).hexdigest()
    if committed_md5 not in {None, md5}:
        raise DataError(
            f"the manifest is not the one that was committed in {place.shown}",
            file=f"{place.path}/{MANIFEST}",
            value=f"md5 {md5}, committed {committed_md5}",
            hint="the DVC remote is damaged: push the FeatureSet again from a machine that has it",
        )
    try:
        FeatureSet.open(folder, without=unreadable, verify=True)
    except DataError as error:
        raise DataError(
            f"the FeatureSet in {place.shown} is damaged: {error.problem}",
            file=str(error.file).replace(str(folder), place.path),
            key=error.key,
            value=error.value,
            hint="make it again in its repository, commit it, and `dvc push`",
        ) from error
