"""A page as Markdown, as Kubeflow's UI and terminals show it.

Every string is escaped: what a certificate says can neither become markup nor leave its table cell.
"""

import re
from collections.abc import Iterator

from mbd.evaluation.tables import markdown_table
from mbd.report.page.content import Block, Command, Fact, Facts, Items, Link, Page, PageTable, Plot, Text

_MARKUP = re.compile(r"[\\`*|]|\](?=[(\[:])|(?<!\w)[_~]|[_~](?!\w)")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def to_markdown(page: Page) -> str:
    """Return the page."""
    parts = [f"# {_plain(page.kind)}", f"**{_plain(page.title)}.**"]
    parts.append(" ".join(map(_plain, page.summary)))
    parts.append(_facts(page.glance))
    for section in page.sections:
        parts += [f"## {_plain(section.title)}", *(part for block in section.blocks for part in _block(block))]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        lead = f"**{_plain(block.lead)}**" if block.lead else ""
        yield f"{lead} {_plain(block.text)}".strip()
    elif isinstance(block, Items):
        yield "\n".join(f"- {_plain(item)}" for item in block.items)
    elif isinstance(block, Facts):
        yield _facts(block.facts)
    elif isinstance(block, Command):
        yield _plain(block.purpose)
        yield f"    {_one_line(block.command)}"
    elif isinstance(block, PageTable):
        yield _table(block)
    elif isinstance(block, Plot):
        yield _table(block.table)


def _table(table: PageTable) -> str:
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    return f"{_plain(table.caption)}:\n\n{markdown_table([_plain(name) for name in table.header], rows)}"


def _cell(cell: str | Link) -> str:
    return f"[{_plain(cell.text)}]({cell.href})" if isinstance(cell, Link) else _plain(cell)


def _facts(facts: tuple[Fact, ...]) -> str:
    return "\n".join(
        f"- {_plain(fact.name)}: {_code(fact.value) if fact.code else _plain(fact.value)}" for fact in facts
    )


def _code(text: str) -> str:
    return f"`{_one_line(text).replace('`', '')}`"


def _plain(text: str) -> str:
    return _MARKUP.sub(lambda found: f"\\{found[0]}", _one_line(text)).translate(_ENTITIES)


def _one_line(text: str) -> str:
    """Return text without line ends and other control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
