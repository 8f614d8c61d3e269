"""Errors by what a program relies on: their class, and the key or the file that they name; wording is for readers."""

from collections.abc import Callable
from pathlib import Path

from mbd.errors import MbdError


def about(key: str) -> Callable[[MbdError], bool]:
    """Return a check for `pytest.raises`: the error names this key."""
    return lambda error: error.key == key


def in_file(file: Path) -> Callable[[MbdError], bool]:
    """Return a check for `pytest.raises`: the error names this file."""
    return lambda error: error.file == file
