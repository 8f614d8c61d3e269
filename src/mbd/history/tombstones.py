"""Tombstones: the files that purges have removed, which must not reappear.

A purge statement is signed and logged, and names the SHA-256 of its list of files. The lists are in the private part of
the store, because a digest of old weights lets anyone confirm a guess of them:

    tombstones/HEX      a list, by its digest

A list is believed only if a statement that verifies names it. One that is missing or damaged is reported, and stops
nothing. Files of a current release are never among the tombstones, whatever a list says. Nor are those that only lists
of certificates name whose deletions were reinstated, unless their release may still not be used: training with the same
data and seed gives the same bytes again.
"""

import hashlib
import logging
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mbd import tombstones
from mbd.errors import DataError, MbdError
from mbd.files import write_file
from mbd.formats.purge import Target, TombstoneList
from mbd.history.history import History
from mbd.history.replay import read_history
from mbd.storage import open_private, open_store
from mbd.storage.store import NotThereError, Store
from mbd.trust.commitments import SALT_BYTES
from mbd.trust.trust_file import Trust, read_trust

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.params.tree import ReaderParams

_LOG = logging.getLogger(__name__)
PREFIX = "tombstones/"


@dataclass(frozen=True)
class Tombstones:
    """The purged files of a store."""

    lists: tuple[TombstoneList, ...]
    released: frozenset[str]
    """SHA-256 of the files of current releases"""
    lifted: frozenset[str]
    """SHA-256 of the files that may exist again, because what was deleted was reinstated"""
    problems: tuple[str, ...]
    """lists that could not be read, in words"""

    def of(self, certificate: str) -> Iterator[Target]:
        """Yield the files that purges of this certificate have removed."""
        return iter(replace(self, lists=tuple(p for p in self.lists if p.certificate == certificate)))

    def __iter__(self) -> Iterator[Target]:
        """Yield all purged files; none of a current release, and none that may exist again."""
        allowed = self.released | self.lifted
        return (target for p in self.lists for target in p.targets if target.sha256 not in allowed)


def keep_list(private: Store, listed: TombstoneList) -> str:
    """Store a list; return its digest, which the purge statement has to name."""
    content = listed.to_bytes()
    digest = hashlib.sha256(content).hexdigest()
    private.create(PREFIX + digest, content)
    return digest


def read_list(private: Store, digest: str, certificate: str) -> TombstoneList:
    """Return the list that a statement about a certificate names.

    Raises:
        DataError: The list is missing, has another digest, or belongs to another certificate.
    """
    name, hint = PREFIX + digest, "restore the object from a backup of the private part of the store"
    try:
        listed = TombstoneList.from_bytes(
            private.read(name, sha256=digest), "list of purged files", file=name, hint=hint
        )
    except NotThereError as error:
        raise DataError("a list of purged files is missing", file=name, hint=hint) from error
    if listed.certificate != certificate:
        raise DataError("the list of purged files belongs to another certificate", file=name, value=listed.certificate)
    return listed


def read_tombstones(store: Store, private: Store, trust: Trust) -> Tombstones:
    """Return the purged files of a store, by the statements in its log.

    Raises:
        VerificationError: The log cannot be trusted.
    """
    history = read_history(store, trust)
    lists = list[TombstoneList]()
    problems = [f"entry {f.index} of the log: {f.reason}" for f in history.blocking]
    for purge in (s for s in history.statements if s.kind == "purge"):
        try:
            lists.append(read_list(private, str(purge.tombstones), purge.about))
        except MbdError as error:
            problems.append(f"{error.problem}: {PREFIX}{purge.tombstones}")
    return Tombstones(tuple(lists), _released(history), _lifted(history, lists), tuple(problems))


def _lifted(history: History, lists: list[TombstoneList]) -> frozenset[str]:
    """Return what only reinstated deletions have listed, without the weights of releases that may not be used."""
    binding, lifted = set[str](), set[str]()
    for purged in lists:
        certificate = history.certificates.get(purged.certificate)
        again = certificate is not None and history.reinstated(certificate).issuperset(certificate.modalities)
        (lifted if again else binding).update(target.sha256 for target in purged.targets)
    releases = (release for name in history.models for release in history.model(name).releases)
    revoked = {r.weights for r in releases if r.weights in lifted and history.model(r.model).problem(r)}
    return frozenset(lifted - binding - revoked)


def _released(history: History) -> frozenset[str]:
    """Return the SHA-256 of every file of a current release, and of its references."""
    digests = set[str]()
    for model in map(history.model, history.models):
        if current := model.current:
            digests.add(current.weights)
            with suppress(MbdError):  # the statement's object was removed; `mbd log check` reports it
                digests.update(history.statement(current.digest).digests.values())
        for reference in model.references.values():
            digests.update((reference.weights, reference.record) if reference else ())
    return frozenset(digests)


def store_tombstones(params: "Params | ReaderParams", url: str) -> Tombstones:
    """Return the tombstones of the store at a URL; a list that cannot be read is reported as a warning."""
    trust = read_trust(Path(params.certificate.trust))
    known = read_tombstones(open_store(url, params.store), open_private(url, params.store), trust)
    for problem in known.problems:
        _LOG.warning("purged files of one purge are not known: %s", problem)
    return known


# On this machine


def begin(params: "Params", certificate: str, targets: Iterable[Target]) -> TombstoneList:
    """Keep the targets of a purge in the private folder, so that a purge that is killed can be repeated."""
    listed = TombstoneList(certificate=certificate, targets=tuple(targets), salt=secrets.token_hex(SALT_BYTES))
    file = _begun(params, certificate)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_file(file, listed.to_bytes(), mode=0o600)
    return listed


def begun(params: "Params", certificate: str) -> tuple[Target, ...]:
    """Return the targets of earlier runs of the purge of a certificate on this machine."""
    file = _begun(params, certificate)
    if not file.exists():
        return ()
    return TombstoneList.read(file, "list of files to purge", "remove it, and purge again").targets


def _begun(params: "Params", certificate: str) -> Path:
    return Path(params.certificate.private) / f"purge-of-{certificate}.json"


def update_list(params: "Params", targets: Iterable[Target]) -> None:
    """Add targets to the list that `purge.tombstones` names, if it is a file."""
    if (file := _list_file(params)) and (digests := tombstones.read_digests(file).union(t.sha256 for t in targets)):
        tombstones.write_digests(file, digests)


def lift(params: "Params", url: str) -> None:
    """Take the digests of files that may exist again off the list on this machine, if `purge.tombstones` is a file."""
    if (file := _list_file(params)) and (known := tombstones.read_digests(file)):
        tombstones.write_digests(file, known - store_tombstones(params, url).lifted)


def _list_file(params: "Params") -> Path | None:
    place = params.purge.tombstones
    return None if place is None or "://" in place else Path(place)
