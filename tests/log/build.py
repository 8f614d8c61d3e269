"""Logs for tests, in a real folder store."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from mbd.errors import VerificationError
from mbd.log.append import append_leaf
from mbd.log.check import adopt_log, check_log
from mbd.log.checkpoint import Inclusion, UnknownLogKeyError
from mbd.log.reader import Log, LogDamagedError
from mbd.log.tiles import claim_name
from mbd.storage.folder import FolderStore
from mbd.storage.store import Store
from tests.refusals import refused
from tests.trust.keys import Keys, keys_in, leaf


@dataclass(frozen=True)
class LogLocation:
    """A log with its keys."""

    folder: Path
    keys: Keys

    @property
    def store(self) -> FolderStore:
        return FolderStore(self.folder)

    @property
    def log(self) -> Log:
        return Log(self.store, self.keys.trust)

    def append(self, number: int, store: Store | None = None) -> Inclusion:
        return append_leaf(store or self.store, leaf(number), self.keys.log, self.keys.trust)

    def file(self, name: str) -> Path:
        return self.folder / name

    def copy(self, to: Path, *, linked: bool = False) -> "LogLocation":
        """Return a copy; a linked one is quick, and good for all who never change a file in place, as the store.

        It is the one that this machine goes on with.
        """
        shutil.copytree(self.folder, to, copy_function=os.link if linked else shutil.copy2)
        copied = LogLocation(to, self.keys)
        adopt_log(copied.store, self.keys.trust, instead=True)
        return copied

    def open_store(self) -> Store:
        return self.store

    def append_to(self, number: int) -> "partial[Inclusion]":
        """Return what appends this leaf, to the store it is given or to its own."""
        return partial(self.append, number)


@contextmanager
def another_machine(folder: Path) -> Iterator[None]:
    """Within: nothing is remembered but what is read or signed within, in this folder."""
    with patch.dict(os.environ, XDG_CACHE_HOME=str(folder)):
        yield


def become_another_machine(folder: Path) -> None:
    """From here to the end of the test, remember nothing but what is read or signed with this folder."""
    os.environ["XDG_CACHE_HOME"] = str(folder)  # every test begins with its own


def log_of(folder: Path, size: int) -> LogLocation:
    """Return a log of this size; its entries are leaf(0), leaf(1), …

    All but the last are only claimed before the last one is appended, which brings them in as well.
    """
    place = LogLocation(folder / "store", keys_in(folder / "keys"))
    with patch("os.fsync"):  # what is built here need not survive a power cut
        store = place.store
        for number in range(size - 1):
            store.create(claim_name(number), leaf(number))
        if size:
            place.append(size - 1, store)
    return place


def assert_whole(place: LogLocation, numbers: set[int]) -> None:
    """The log has each of these entries once and no other, nothing is left over, and all of it holds together."""
    report = check_log(place.store, place.keys.trust)
    assert report.problems == []
    assert report.pending == 0
    entries = [entry for _, entry in place.log.entries()]
    assert sorted(entries) == sorted(leaf(number) for number in numbers)
    assert not list(place.store.unfinished())


def refused_as_shrunk() -> pytest.RaisesExc[VerificationError]:
    """Return what expects that the log is older than one that was seen or signed."""
    return refused(VerificationError, match="has shrunk")


def refused_as_copy() -> pytest.RaisesExc[VerificationError]:
    """Return what expects that the log was continued in another place."""
    return refused(VerificationError, match="gone on elsewhere")


def refused_as_unknown() -> pytest.RaisesExc[VerificationError]:
    """Return what expects that this machine has not signed the log before."""
    return refused(VerificationError, match="has never signed the log")


def refused_as_untrusted(
    why: str, kind: type[VerificationError] = UnknownLogKeyError
) -> pytest.RaisesExc[VerificationError]:
    """Return what expects that a checkpoint cannot be trusted, and says this of it."""
    return refused(kind, match=f"cannot be trusted: .*{why}")


def refused_claim(place: int) -> pytest.RaisesExc[LogDamagedError]:
    """Return what expects that a place of the log is claimed for something that is no statement of ours."""
    return refused(LogDamagedError, match="must not be logged", file=claim_name(place))
