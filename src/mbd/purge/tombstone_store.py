"""Tombstones on this machine: the list of digests that steps read, and the targets of a purge that was begun.

`purge.tombstones` is a file that every purge and scan updates, or the URL of a store, whose tombstones are read as
:mod:`mbd.history.tombstones` describes.
"""

import logging
import secrets
from collections.abc import Iterable
from pathlib import Path

from mbd.errors import DataError
from mbd.files import write_file
from mbd.formats.purge import TombstoneList
from mbd.history.tombstones import Tombstones, read_tombstones
from mbd.params import Params
from mbd.params.tree import ReaderParams
from mbd.purge.targets import Targets
from mbd.storage import open_private, open_store
from mbd.trust.commitments import SALT_BYTES
from mbd.trust.trust_file import read_trust

_LOG = logging.getLogger(__name__)


def store_tombstones(params: Params | ReaderParams, url: str) -> Tombstones:
    """Return the tombstones of the store at a URL; a list that cannot be read is reported as a warning."""
    trust = read_trust(Path(params.certificate.trust))
    tombstones = read_tombstones(open_store(url, params.store), open_private(url, params.store), trust)
    for problem in tombstones.problems:
        _LOG.warning("purged files of one purge are not known: %s", problem)
    return tombstones


def begin(params: Params, certificate: str, targets: Targets) -> TombstoneList:
    """Keep the targets of a purge in the private folder, so that a purge that is killed can be repeated."""
    listed = TombstoneList(certificate=certificate, targets=tuple(targets), salt=secrets.token_hex(SALT_BYTES))
    file = _begun(params, certificate)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_file(file, listed.to_bytes(), mode=0o600)
    return listed


def begun(params: Params, certificate: str) -> Targets:
    """Return the targets of earlier runs of the purge of a certificate on this machine."""
    file = _begun(params, certificate)
    if not file.exists():
        return Targets()
    return Targets(TombstoneList.read(file, "list of files to purge", "remove it, and purge again").targets)


def _begun(params: Params, certificate: str) -> Path:
    return Path(params.certificate.private) / f"purge-of-{certificate}.json"


def read_list(file: Path) -> frozenset[str]:
    """Return the digests in a list; none if the file does not exist."""
    try:
        return frozenset(file.read_text(encoding="ascii").split())
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            "the list of tombstones cannot be read",
            file=file,
            hint="remove it; `mbd purge scan --store URL` writes it again",
        ) from error


def purged_digests(params: Params | ReaderParams) -> frozenset[str]:
    """Return the digests that no step may read or write, from the list that `purge.tombstones` names."""
    place = params.purge.tombstones
    if place is None:
        return frozenset()
    if file := _list_file(params):
        return read_list(file)
    return frozenset(target.sha256 for target in store_tombstones(params, place))


def lift(params: Params, url: str) -> None:
    """Take the digests of files that may exist again off the list on this machine, if `purge.tombstones` is a file."""
    if (file := _list_file(params)) and (known := read_list(file)):
        _write_list(file, known - store_tombstones(params, url).lifted)


def update_list(params: Params, targets: Targets) -> None:
    """Add targets to the list that `purge.tombstones` names, if it is a file."""
    if (file := _list_file(params)) and (digests := read_list(file).union(t.sha256 for t in targets)):
        _write_list(file, digests)


def _list_file(params: Params | ReaderParams) -> Path | None:
    place = params.purge.tombstones
    return None if place is None or "://" in place else Path(place)


def _write_list(file: Path, digests: Iterable[str]) -> None:
    write_file(file, "".join(f"{digest}\n" for digest in sorted(digests)))
