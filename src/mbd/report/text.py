"""Plain text for the terminal: tables, and whole pages (`to_text`) that fit its width."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from mbd.markdown import printable
from mbd.report.page.content import (
    ABSENT,
    Block,
    Command,
    Estimate,
    Fact,
    Facts,
    Items,
    Link,
    Page,
    PageTable,
    Plot,
    Text,
    Verification,
    standing_line,
)

_COLUMNS = 100
"""width where there is no terminal"""
_GAP = "  "
_EQUALS = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"


def to_text(page: Page, width: int | None = None) -> str:
    """Return a page for a terminal; folded tables are named, not shown.

    Args:
        page: The content.
        width: Columns to fit into; by default those of the terminal, or 100.

    """
    width = width or shutil.get_terminal_size((_COLUMNS, 0)).columns
    line = standing_line(page)
    first = [f"Certificate {page.number}. {line}"] if line else []
    parts = [printable(page.kind), _heading(page.title, "=", width)]
    parts += [_fill(sentence, width) for sentence in (*first, *page.summary)]
    if page.glance:
        parts.append(_facts(page.glance, width))
    for section in page.sections:
        blocks = [shown for block in section.blocks if (shown := _block(block, width))]
        parts += ["\n" + _heading(section.title, "-", width), *blocks]
    return "\n\n".join(parts) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> str:
    """Return aligned columns: numbers to the right, text to the left.

    What does not fit drops its intervals first, then wraps between words. Where even the longest words are too wide,
    each row becomes a block of lines, one line for each cell.

    Args:
        header: Names of the columns.
        rows: Cells; an `Estimate` is shown with its interval if there is room.
        width: Columns to fit into; by default those of the terminal, and no limit where there is none.

    """
    width = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    names, cells = [*map(printable, header)], [[_cell(value) for value in row] for row in rows]
    widths = _widths([names, *cells])
    if width and _width(widths) > width:
        short = [[value.short if isinstance(value, Estimate) else _cell(value) for value in row] for row in rows]
        least = _widths([[max(cell.split(), key=len, default="") for cell in row] for row in (names, *short)])
        if _width(least) > width:
            return "\n\n".join(_record(names, row, width) for row in cells)
        cells, widths = short, _narrowed(_widths([names, *short]), least, width)
    right = [all(_is_number(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join(line for row in (names, *cells) for line in _lines(row, widths, right))


def _record(names: Sequence[str], row: Sequence[str], width: int) -> str:
    """Return a row as lines: its first cell, and below it the name and value of each other one."""
    first, *others = row
    filled = [_fill(first, width, _GAP, _GAP * 2)]
    for name, cell in zip(names[1:], others, strict=True):
        filled.append(_fill(f"{name}: {cell}" if name else cell, width, _GAP * 2, _GAP * 3))
    return "\n".join(filled)


def _lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    """Yield the lines of a row; a cell that is too wide takes several."""
    wrapped = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, widths, strict=True)]
    for line in zip_longest(*wrapped, fillvalue=""):
        parts = (
            part.rjust(width) if is_right else part.ljust(width)
            for part, width, is_right in zip(line, widths, right, strict=True)
        )
        yield (_GAP + _GAP.join(parts)).rstrip()


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(1, *map(len, column)) for column in zip(*rows, strict=True)]


def _narrowed(widths: list[int], least: Sequence[int], width: int) -> list[int]:
    """Return widths that fit: the widest columns lose first, none below its longest word."""
    while _width(widths) > width:
        spare = [i for i, (column, word) in enumerate(zip(widths, least, strict=True)) if column > word]
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * len(widths)


def _cell(value: object) -> str:
    if isinstance(value, Link):
        return printable(value.text)
    return f"{value:.2f}" if isinstance(value, float) else printable(str(value))


def _is_number(text: str) -> bool:
    return text in ("", ABSENT) or text.lstrip("+-−")[:1].isdigit()


def _block(block: Block, width: int) -> str:
    if isinstance(block, Text):
        return _fill(f"{block.lead} {block.text}".strip(), width)
    if isinstance(block, Items):
        return "\n".join(_fill(item, width, "- ", _GAP) for item in block.items)
    if isinstance(block, Facts):
        return _facts(block.facts, width)
    if isinstance(block, Command):
        return f"{_fill(block.purpose, width)}\n\n    {printable(block.command)}"
    if isinstance(block, Verification):
        return ""
    return _table(block, width)


def _table(block: PageTable | Plot, width: int) -> str:
    title, content = (block.title, block.table) if isinstance(block, Plot) else (block.caption, block)
    if block.folded:
        count = len(content.rows)
        return _fill(f"{title}: {count} row{'s' * (count != 1)}, in the full report.", width)
    return f"{_fill(title, width)}:\n\n{table(content.header, content.rows, width)}"


def _facts(facts: Sequence[Fact], width: int) -> str:
    names = max(len(printable(fact.name)) for fact in facts) + len(_GAP)

    def line(fact: Fact) -> str:
        if fact.code and names + len(fact.value) > width:  # a digest stays in one piece
            return f"{printable(fact.name)}\n    {printable(fact.value)}"
        return _fill(fact.value, width, printable(fact.name).ljust(names), " " * names)

    return "\n".join(map(line, facts))


def _heading(text: str, line: str, width: int) -> str:
    title = _fill(text, width)
    return f"{title}\n{line * max(map(len, title.splitlines()), default=1)}"


def _fill(text: str, width: int, first: str = "", others: str = "") -> str:
    whole = printable(text).replace(" = ", _EQUALS)  # ε = 1 stays on one line
    wrapper = textwrap.TextWrapper(width, first, others, break_on_hyphens=False, break_long_words=False)
    return wrapper.fill(whole).replace(_EQUALS, " = ")
