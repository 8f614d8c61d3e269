"""What a page says, whatever it is shown as: sections of blocks, in plain strings and numbers.

Nothing in it is markup. Whoever shows a page escapes every string for his format.
"""

from typing import Literal

from mbd.formats.leakage import Interval
from mbd.records import Record


class Text(Record):
    """A paragraph; `lead` is its first sentence, where that matters most."""

    block: Literal["text"] = "text"
    lead: str = ""
    text: str = ""


class Items(Record):
    """Sentences, one below the other."""

    block: Literal["items"] = "items"
    items: tuple[str, ...]


class Fact(Record):
    """A name and a value; `code`: a digest or another string for machines."""

    name: str
    value: str
    code: bool = False


class Facts(Record):
    """Names and values."""

    block: Literal["facts"] = "facts"
    facts: tuple[Fact, ...]


class Command(Record):
    """Something to type into a terminal, and what it is good for."""

    block: Literal["command"] = "command"
    purpose: str
    command: str


class Link(Record):
    """A way to another page beside this one."""

    text: str
    href: str


class PageTable(Record):
    """A table; `folded`: shown when asked for, where that is possible."""

    block: Literal["table"] = "table"
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str | Link, ...], ...]
    folded: bool = False


class MeasureRow(Record):
    """What one measure of an attack found in each model."""

    label: str
    chance: float
    tolerance: float | None
    before: Interval | None
    after: Interval | None
    reference: Interval | None
    decision: str


class Plot(Record):
    """Measures on one scale, each beside the reference; `table` says the same in numbers."""

    block: Literal["plot"] = "plot"
    title: str
    description: str
    measures: tuple[MeasureRow, ...]
    table: PageTable


class Verification(Record):
    """The place where files are dropped to be checked in the browser; other formats have none."""

    block: Literal["verification"] = "verification"
    caution: str
    """what to know before"""
    beyond: str
    """what a browser does not check"""
    certificate: str
    """SHA-256 of the envelope that the page is about"""
    files: tuple[str, ...]
    """what to drop"""


Block = Text | Items | Facts | Command | PageTable | Plot | Verification


class PageSection(Record):
    """A part of a page under a heading of its own."""

    id: str
    title: str
    blocks: tuple[Block, ...]


class Page(Record):
    """Everything a page says."""

    format: Literal["urn:missing-by-design:page:v1"] = "urn:missing-by-design:page:v1"
    kind: str
    """what the page is, above its title"""
    title: str
    back: Link | None = None
    summary: tuple[str, ...]
    """the whole of it in a few sentences that need no knowledge of machine learning"""
    glance: tuple[Fact, ...]
    """what somebody looks for first"""
    sections: tuple[PageSection, ...]


ABSENT = "–"


def interval(value: Interval | None, digits: int = 3) -> str:
    """Return a value with its interval as people read it."""
    if value is None:
        return ABSENT
    return f"{value.value:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"
