"""A page as Markdown, for Kubeflow's UI and for repositories.

Every string is escaped: text of a certificate can neither become markup nor leave its table cell.
"""

import re
from collections.abc import Collection, Iterator

from mbd.evaluation.tables import markdown_table
from mbd.report.page.content import (
    Block,
    Cell,
    Command,
    Fact,
    Facts,
    Items,
    Link,
    Page,
    PageTable,
    Plot,
    Text,
    printable,
)

_MARKUP = re.compile(r"[\\`*|]|\](?=[(\[:])|(?<!\w)[_~]|[_~](?!\w)")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def to_markdown(page: Page, pictures: Collection[str] = ()) -> str:
    """Return the page; a plot whose name is in `pictures` is shown by `figures/NAME.png` too."""
    parts = [f"# {_plain(page.kind)}", f"**{_plain(page.title)}.**"]
    parts.append(" ".join(map(_plain, page.summary)))
    if page.glance:
        parts.append(_facts(page.glance))
    for section in page.sections:
        parts.append(f"## {_plain(section.title)}")
        parts += [part for block in section.blocks for part in _block(block, pictures)]
    return "\n\n".join(parts) + "\n"


def _block(block: Block, pictures: Collection[str]) -> Iterator[str]:
    if isinstance(block, Text):
        lead = f"**{_plain(block.lead)}**" if block.lead else ""
        yield f"{lead} {_plain(block.text)}".strip()
    elif isinstance(block, Items):
        yield "\n".join(f"- {_plain(item)}" for item in block.items)
    elif isinstance(block, Facts):
        yield _facts(block.facts)
    elif isinstance(block, Command):
        yield _plain(block.purpose)
        yield f"    {printable(block.command)}"
    elif isinstance(block, PageTable):
        yield _table(block)
    elif isinstance(block, Plot):
        if block.name in pictures:
            yield f"![{_plain(block.title)}](figures/{block.name}.png)"
        yield _table(block.table)


def _table(table: PageTable) -> str:
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    return f"{_plain(table.caption)}:\n\n{markdown_table([_plain(name) for name in table.header], rows)}"


def _cell(cell: Cell) -> str:
    return f"[{_plain(cell.text)}]({cell.href})" if isinstance(cell, Link) else _plain(str(cell))


def _facts(facts: tuple[Fact, ...]) -> str:
    return "\n".join(
        f"- {_plain(fact.name)}: {_code(fact.value) if fact.code else _plain(fact.value)}" for fact in facts
    )


def _code(text: str) -> str:
    return f"`{printable(text).replace('`', '')}`"


def _plain(text: str) -> str:
    return _MARKUP.sub(lambda found: f"\\{found[0]}", printable(text)).translate(_ENTITIES)
