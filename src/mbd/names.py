"""The rule for names of modalities, models and files, checked where a name enters and again where it is read.

A name starts with a letter or a digit and contains only letters, digits, blanks, `_`, `-` and `.`. Letters and digits
of all scripts are allowed, in Unicode normalization form C. So a name contains no path separator and no control
character, is never `..` or hidden, and cannot be confused with the file `_rows` of a FeatureSet or with a combination
of modalities such as `text+visual`. Names that operating systems or reports use for something else are reserved.

A relative path consists of file names separated by `/`; these may also start with `_`.
"""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator

from mbd.errors import DataError

LONGEST = 100
RESERVED = frozenset(
    {"full", "con", "prn", "aux", "nul", *(f"{device}{number}" for device in ("com", "lpt") for number in range(1, 10))}
)
"""in lower case: the regime `full`, and device names of Windows"""
HINT = "a name starts with a letter or a digit and contains only letters, digits, blanks, `_`, `-` and `.`"
_PUNCTUATION = frozenset("_-. ")
_LONGEST_LINE = 200


@lru_cache
def problem_with(name: str) -> str | None:
    """Return why a text is not a name, or None if it is one."""
    unknown = next((c for c in name if not (c in _PUNCTUATION or unicodedata.category(c)[0] in "LMN")), None)
    checks = (
        (not name, "it is empty"),
        (len(name) > LONGEST, f"it is longer than {LONGEST} characters"),
        (not name[:1].isalnum(), "it does not start with a letter or a digit"),
        (unknown is not None, f"it contains {unknown!r}"),
        (name.endswith((".", " ")), "it ends with a dot or a blank"),
        (unicodedata.normalize("NFC", name) != name, "it is not in Unicode normalization form C"),
        (name.partition(".")[0].casefold() in RESERVED, "it is reserved"),
    )
    return next((problem for wrong, problem in checks if wrong), None)


def valid_name(name: str) -> str:
    """Return a name; ValueError if it is not one."""
    if problem := problem_with(name):
        raise ValueError(f"{name!r} is not a valid name: {problem}")
    return name


def dotless(name: str) -> str:
    """Return a name as one part of a dotted name, such as that of a tensor: no two names become the same part."""
    return name.replace(".", "%2E")


def dotted(part: str) -> str:
    """Return the name that :func:`dotless` made into a part."""
    return part.replace("%2E", ".")


def valid_path(path: str) -> str:
    """Return a relative path of file names; ValueError if it is not one."""
    for part in path.split("/"):
        if problem := problem_with(part[1:] if part.startswith("_") else part):
            raise ValueError(f"{path!r} is not a valid relative path: {part!r}: {problem}")
    return path


def check_names(names: Iterable[str], what: str, file: object = None) -> None:
    """Raise a DataError if one of these is not a name.

    Args:
        names: The names, for example of modalities.
        what: What they name: "modality".
        file: Where they come from.
    """
    for name in names:
        if problem := problem_with(name):
            raise DataError(
                f"this cannot be the name of a {what}: {problem}",
                file=str(file) if file else None,
                value=repr(name),
                hint=HINT,
            )


def valid_line(text: str) -> str:
    """Return one line of printable text; ValueError if it is not one."""
    if not text.strip() or len(text) > _LONGEST_LINE or not text.isprintable():
        raise ValueError(f"this is not a line of 1 to {_LONGEST_LINE} printable characters")
    return text


Name = Annotated[str, AfterValidator(valid_name)]
"""a name in a record"""
Line = Annotated[str, AfterValidator(valid_line)]
"""a text for people in a record: one printable line"""
RelativePath = Annotated[str, AfterValidator(valid_path)]
"""a relative path in a record"""
