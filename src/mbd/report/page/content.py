"""The content of a page, independent of its format: sections of blocks, in plain strings and numbers.

Nothing in it is markup: each renderer (`text`, `markdown`, `html`) escapes every string for its format.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from mbd.formats.leakage import Decision, Interval
from mbd.formats.verdict import VERDICTS, VerdictRules
from mbd.formats.verdict import Decision as Verdict
from mbd.records import Record
from mbd.verifier.verdict import Successor, begin_sentence


class Text(Record):
    """A paragraph; `lead` is its first sentence, shown in bold."""

    block: Literal["text"] = "text"
    lead: str = ""
    text: str = ""


class Items(Record):
    """A bulleted list of sentences."""

    block: Literal["items"] = "items"
    items: tuple[str, ...]


class Fact(Record):
    """A name and a value; `code`: the value is a digest or another literal."""

    name: str
    value: str
    code: bool = False


class Facts(Record):
    """Names and values."""

    block: Literal["facts"] = "facts"
    facts: tuple[Fact, ...]


class Command(Record):
    """A command to run in a terminal, and its purpose."""

    block: Literal["command"] = "command"
    purpose: str
    command: str


class Link(Record):
    """A link to another page beside this one."""

    text: str
    href: str


class Estimate(Interval):
    """A measured value with its interval; a narrow terminal shows the value alone."""

    digits: int = 3

    @property
    def short(self) -> str:
        """The value without its interval."""
        return f"{self.value:.{self.digits}f}"

    def __str__(self) -> str:
        return f"{self.short} [{self.low:.{self.digits}f}, {self.high:.{self.digits}f}]"


Cell = str | Link | Estimate


class PageTable(Record):
    """A table; `folded`: collapsed until a reader opens it."""

    block: Literal["table"] = "table"
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False


class MeasureRow(Record):
    """One measure of an attack, on each model."""

    label: str
    chance: float
    before: Interval | None
    after: Interval | None
    reference: Interval | None
    difference: Interval | None
    """after − reference"""
    tolerance: float | None
    blind: bool | None
    """whether the attack finds nothing in the model before either"""
    decision: Decision

    @property
    def outcome(self) -> str:
        """The decision, and whether the measure is blind."""
        return f"{self.decision}, blind" if self.blind else self.decision


class Plot(Record):
    """A forest plot: measures on one scale, the released model beside the reference."""

    block: Literal["plot"] = "plot"
    name: str
    """what a picture of it is called"""
    title: str
    description: str
    measures: tuple[MeasureRow, ...]
    folded: bool = False

    @property
    def table(self) -> PageTable:
        """The same in numbers."""
        return measures_table(f"{self.title}, in numbers", self.measures)


class Verification(Record):
    """Where files are dropped to be checked in the browser; HTML only."""

    block: Literal["verification"] = "verification"
    caution: str
    """what to know first"""
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


class PageStatus(Record):
    """What a store said of a certificate when its page was made."""

    verdict: Verdict
    reason: str
    """why, if it is not verified"""
    asked: datetime
    successor: Successor | None = None
    """the release that has taken the place of the certified model"""

    @property
    def rules(self) -> VerdictRules:
        """What the verdict means."""
        return VERDICTS[self.verdict]

    @property
    def word(self) -> str:
        """The verdict as it is shown."""
        return self.verdict.upper()

    @property
    def when(self) -> str:
        """When the store was asked."""
        return f"As of {self.asked:%Y-%m-%d %H:%M} UTC"

    @property
    def sentence(self) -> str:
        """What the verdict means, why it is that, and what to do."""
        if self.verdict == "verified":
            return self.rules.sentence
        return f"{self.rules.sentence} {begin_sentence(self.reason)}. {self.rules.to_do}"


class Page(Record):
    """The whole content of a page."""

    format: Literal["urn:missing-by-design:page:v1"] = "urn:missing-by-design:page:v1"
    kind: str
    """what the page is, above its title"""
    title: str
    number: str | None = None
    """of a certificate: the start of its digest, to compare by eye and to file it"""
    address: str | None = None
    """where it is published, for the QR code; null: only its digest is known"""
    standing: PageStatus | None = None
    """whether it was in force when the page was made; null: no store was asked"""
    back: Link | None = None
    summary: tuple[str, ...]
    """a few sentences that need no knowledge of machine learning"""
    glance: tuple[Fact, ...]
    """key facts"""
    sections: tuple[PageSection, ...]


ABSENT = "–"
NOT_ASKED = "Whether this certificate is in force was not asked: no store was given."


def standing_line(page: Page) -> str | None:
    """Return in a line whether a certificate was in force when its page was made; None: the page is about none."""
    if page.number is None:
        return None
    if (standing := page.standing) is None:
        return NOT_ASKED
    line = f"{standing.word}. {standing.when}: {standing.sentence}"
    return f"{line} {standing.successor.label}: {standing.successor.address}" if standing.successor else line


_MEASURES = ("attack", "chance", "before", "after", "reference", "after − reference", "tolerance", "decision")


def measures_table(caption: str, measures: Sequence[MeasureRow]) -> PageTable:
    """Return the table of a forest plot."""
    rows = tuple(
        (
            measure.label,
            f"{measure.chance:.3g}",
            *(estimate(part) for part in (measure.before, measure.after, measure.reference, measure.difference)),
            ABSENT if measure.tolerance is None else f"{measure.tolerance:g}",
            measure.outcome,
        )
        for measure in measures
    )
    return PageTable(caption=caption, header=_MEASURES, rows=rows, folded=True)


def estimate(found: Interval | None, digits: int = 3) -> Cell:
    """Return the cell of a measured value."""
    return ABSENT if found is None else Estimate(**found.model_dump(), digits=digits)
