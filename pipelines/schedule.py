"""Cron expressions as Kubeflow takes them: six fields, seconds first."""

import re

from mbd.errors import UsageError

_FIELDS = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    ("day of week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_PART = re.compile(r"(?P<first>\*|\?|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>\d+))?")


def checked_cron(text: str) -> str:
    """Return the expression with six fields; five fields, as crontab has them, start at second 0."""
    fields = text.split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise _error(text, f"it has {len(fields)} fields")
    for field, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
        for part in field.lower().split(","):
            _check(text, part, name, (low, high), names)
    return " ".join(fields)


def _check(text: str, part: str, name: str, span: tuple[int, int], names: tuple[str, ...]) -> None:
    match = _PART.fullmatch(part)
    if match is None:
        raise _error(text, f"{part!r} is no {name}")
    if match["first"] == "?" and name not in ("day of month", "day of week"):
        raise _error(text, f"'?' is no {name}")
    if match["first"] in ("*", "?") and match["last"]:
        raise _error(text, f"{part!r} is no range of a {name}")
    ends = [_number(text, end, name, span, names) for end in (match["first"], match["last"]) if end and end not in "*?"]
    if len(ends) == 2 and ends[0] > ends[1]:
        raise _error(text, f"the range {part!r} runs backwards")
    if match["step"] and not 1 <= int(match["step"]) <= span[1]:
        raise _error(text, f"every {match['step']} is no step of a {name}")


def _number(text: str, end: str, name: str, span: tuple[int, int], names: tuple[str, ...]) -> int:
    if end in names:
        return names.index(end) + span[0]
    if not end.isdecimal() or not span[0] <= int(end) <= span[1]:
        raise _error(text, f"{end!r} is no {name}")
    return int(end)


def _error(text: str, why: str) -> UsageError:
    return UsageError(
        f"this is no schedule: {why}",
        key="--cron",
        value=text,
        hint="five fields as in crontab, or six with the second first: '0 0 3 * * *' is every night at three",
    )
