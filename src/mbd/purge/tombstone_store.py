"""Tombstones in the store: digests of purged files, which must not reappear.

    tombstones/sha256/HEX     the kind of file, and the certificate of the purge
    tombstones/md5/HEX        SHA-256 and size of the file with this MD5, by which DVC names it

They are created before anything is removed, so that a purge that was killed can be repeated with the same targets.
Steps read the list of digests (`purge.tombstones`: a file that every purge and scan updates, or the store itself).
Everyone who can read the store can read the digests of the old weights here.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

from mbd.certificate.layout import TOMBSTONES, tombstone_name
from mbd.errors import DataError
from mbd.files import write_file
from mbd.formats.purge import Md5Tombstone, Target, Tombstone
from mbd.params import Params
from mbd.purge.targets import Targets
from mbd.records import Record
from mbd.storage import open_store
from mbd.storage.store import OtherContentError, Store

_Stone = TypeVar("_Stone", bound=Record)


def create_tombstones(store: Store, targets: Targets, certificate: str) -> None:
    """Create the tombstones of all targets; existing ones are kept."""
    for target in targets:
        stone = Tombstone(sha256=target.sha256, what=target.what, certificate=certificate)
        _create(store, tombstone_name("sha256", target.sha256), stone)
        if target.md5:
            named = Md5Tombstone(md5=target.md5, sha256=target.sha256, size=target.size)
            _create(store, tombstone_name("md5", target.md5), named)


def read_tombstones(store: Store, certificate: str | None = None) -> Targets:
    """Return the purged files of a store; with `certificate`, only those of its purge."""
    stones = {stone.sha256: stone for stone in _read(store, "sha256", Tombstone)}
    kept = {s.sha256: s for s in stones.values() if certificate in {None, s.certificate}}
    found = Targets(Target(sha256=stone.sha256, what=stone.what) for stone in kept.values())
    for named in _read(store, "md5", Md5Tombstone):
        if stone := kept.get(named.sha256):
            found.add(Target(sha256=named.sha256, what=stone.what, md5=named.md5, size=named.size))
    return found


def write_list(file: Path, targets: Targets) -> None:
    """Add targets to the list that steps on this machine read."""
    digests = {*read_list(file), *(target.sha256 for target in targets)}
    if digests:
        write_file(file, "".join(f"{digest}\n" for digest in sorted(digests)))


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


def purged_digests(params: Params) -> frozenset[str]:
    """Return the digests that no step may read or write, from the list that `purge.tombstones` names."""
    place = params.purge.tombstones
    if place is None:
        return frozenset()
    if "://" not in place:
        return read_list(Path(place))
    prefix = f"{TOMBSTONES}/sha256/"
    return frozenset(found.name.removeprefix(prefix) for found in open_store(place, params.store).list(prefix))


def update_list(params: Params, targets: Targets) -> None:
    """Add targets to the list that `purge.tombstones` names, if it is a file."""
    place = params.purge.tombstones
    if place is not None and "://" not in place:
        write_list(Path(place), targets)


def _create(store: Store, name: str, record: Record) -> None:
    with suppress(OtherContentError):
        store.create(name, record.to_bytes())


def _read(store: Store, algorithm: Literal["sha256", "md5"], kind: type[_Stone]) -> Iterator[_Stone]:
    for found in store.list(f"{TOMBSTONES}/{algorithm}/"):
        hint = "restore the object from a copy of the store, or remove it and purge again"
        yield kind.from_bytes(store.read(found.name), "tombstone", file=found.name, hint=hint)
