"""Errors by what a program relies on: their class, and the file, key and value that they name."""

from pathlib import Path
from typing import TypeVar

import pytest

from mbd.errors import DataError, MbdError, MissingExtraError, UsageError

Refusal = TypeVar("Refusal", bound=MbdError)


def refused(kind: type[Refusal], match: str | None = None, **named: object) -> "pytest.RaisesExc[Refusal]":
    """Return what expects an error of this very class that names this `file`, `key`, `value` or `hint`.

    Args:
        kind: The class of the error; one that is derived from it fails the test.
        match: A few words of the problem, for errors that nothing else tells from others.
        named: What the error names, as its reader sees it, and words of its hint; ``None`` for what it must not name.
    """

    def names_it(error: Refusal) -> bool:
        __tracebackhide__ = True
        assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
        for name, expected in named.items():
            actual = getattr(error, name)
            if expected is None or actual is None:
                fits = expected is actual
            else:
                fits = str(expected) in str(actual) if name == "hint" else str(expected) == str(actual)
            assert fits, f"the error names {name} {actual!r} instead of {expected!r}:\n{error}"
        return True

    return pytest.raises(kind, match=match, check=names_it)


def refused_as_revoked(modality: str) -> "pytest.RaisesExc[UsageError]":
    """Return what expects that a model does not take a modality that was revoked from it."""
    return refused(UsageError, match="was revoked", key=modality)


def refused_as_no_modality(name: str) -> "pytest.RaisesExc[UsageError]":
    """Return what expects that a model never had a modality of this name."""
    return refused(UsageError, match="no modality", key=name)


def refused_as_changed(file: Path) -> "pytest.RaisesExc[DataError]":
    """Return what expects that a file of a FeatureSet is not the one in its manifest."""
    return refused(DataError, match="manifest lists", file=file)


def refused_as_unreadable(record: Path) -> "pytest.RaisesExc[DataError]":
    """Return what expects that a record is not there or cannot be read."""
    return refused(DataError, match="no readable", file=record)


def refused_as_encrypted() -> "pytest.RaisesExc[UsageError]":
    """Return what expects that an encrypted folder is not opened."""
    return refused(UsageError, match="folder is encrypted")


def refused_without(package: str) -> "pytest.RaisesExc[MissingExtraError]":
    """Return what expects that a package is not installed."""
    return refused(MissingExtraError, match=f"needs the package {package}")
