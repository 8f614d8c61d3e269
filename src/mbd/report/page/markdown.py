"""A page as Markdown, for Kubeflow's UI and for repositories; of a certificate's page the head alone as a model card.

Every string is escaped: text of a certificate can neither become markup nor leave its table cell.
"""

from collections.abc import Collection, Iterator

from mbd.markdown import code, escape, printable, table
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
    standing_line,
)


def to_markdown(page: Page, pictures: Collection[str] = ()) -> str:
    """Return the page; a plot whose name is in `pictures` is shown by `figures/NAME.png` too."""
    parts = [f"# {escape(page.kind)}", *_head(page)]
    for section in page.sections:
        parts.append(f"## {escape(section.title)}")
        parts += [part for block in section.blocks for part in _block(block, pictures)]
    return "\n\n".join(parts) + "\n"


def to_card(page: Page) -> str:
    """Return the section about a certificate that people paste into the README of their model."""
    verify = f"    mbd verify {printable(page.address or 'BUNDLE --store URL')} --model DIR --trust FILE"
    warning = "Do not rely on this section. Verify the certificate:"
    return "\n\n".join([f"## {escape(page.kind)}", *_head(page), warning, verify]) + "\n"


def _head(page: Page) -> Iterator[str]:
    yield f"**{escape(page.title)}.**"
    if line := standing_line(page):
        yield f"Certificate {escape(page.number or '')}. {escape(line)}"
    yield " ".join(map(escape, page.summary))
    if page.glance:
        yield _facts(page.glance)


def _block(block: Block, pictures: Collection[str]) -> Iterator[str]:
    if isinstance(block, Text):
        lead = f"**{escape(block.lead)}**" if block.lead else ""
        yield f"{lead} {escape(block.text)}".strip()
    elif isinstance(block, Items):
        yield "\n".join(f"- {escape(item)}" for item in block.items)
    elif isinstance(block, Facts):
        yield _facts(block.facts)
    elif isinstance(block, Command):
        yield escape(block.purpose)
        yield f"    {printable(block.command)}"
    elif isinstance(block, PageTable):
        yield _table(block)
    elif isinstance(block, Plot):
        if block.name in pictures:
            yield f"![{escape(block.title)}](figures/{block.name}.png)"
        yield _table(block.table)


def _table(content: PageTable) -> str:
    rows = [[_cell(cell) for cell in row] for row in content.rows]
    return f"{escape(content.caption)}:\n\n{table([escape(name) for name in content.header], rows)}"


def _cell(cell: Cell) -> str:
    return f"[{escape(cell.text)}]({cell.href})" if isinstance(cell, Link) else escape(str(cell))


def _facts(facts: tuple[Fact, ...]) -> str:
    return "\n".join(
        f"- {escape(fact.name)}: {code(fact.value) if fact.code else escape(fact.value)}" for fact in facts
    )
