"""Errors by what a program relies on: their class, and the file, key and value that they name; wording is for readers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from mbd.errors import MbdError

Refusal = TypeVar("Refusal", bound=MbdError)


@contextmanager
def refused(
    kind: type[Refusal], match: str | None = None, **named: object
) -> Iterator[pytest.ExceptionInfo[Refusal]]:
    """Within, an error of this very class is raised that names this `file`, `key`, `value` or `hint`.

    Args:
        kind: The class of the error; one that is derived from it fails the test.
        match: A few words of the problem, for errors that nothing else tells from others.
        named: What the error names, as its reader sees it; ``None`` for what it must not name.
    """
    __tracebackhide__ = True
    with pytest.raises(kind, match=match) as caught:
        yield caught
    error = caught.value
    assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
    for name, expected in named.items():
        actual = getattr(error, name)
        assert str(actual) == str(expected), f"the error names {name} {actual!r} instead of {expected!r}:\n{error}"
