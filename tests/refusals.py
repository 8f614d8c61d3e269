"""Errors by what a program relies on, their class and the key that they name; how they are worded is for readers."""

from collections.abc import Callable

from mbd.errors import MbdError


def about(key: str) -> Callable[[MbdError], bool]:
    """Return a check for `pytest.raises`: the error names this key."""
    return lambda error: error.key == key
