"""A page as one HTML file that needs nothing else: style and script stand in it, and nothing is fetched.

Every string of the content is escaped where it is put in; no markup comes from anywhere but this module and the plots.
The page says nothing about whether the certificate is genuine: that is shown only by the checks that a reader makes.
"""

from collections.abc import Iterator
from html import escape

from mbd.report.page.assets import policy, script, style
from mbd.report.page.content import (
    Block,
    Command,
    Fact,
    Facts,
    Items,
    Link,
    Page,
    PageSection,
    PageTable,
    Plot,
    Text,
    Verification,
)
from mbd.report.page.plot import plot_html

_SHORT = 12
"""letters of a cell that stay on one line"""


def to_html(page: Page) -> str:
    """Return the page."""
    checks = any(isinstance(block, Verification) for section in page.sections for block in section.blocks)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(with_script=checks))}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">',
            f"<title>{escape(page.title)} · {escape(page.kind)}</title>",
            f'<style>{style()}</style>\n</head>\n<body>\n<a class="skip" href="#content">Skip to the content</a>',
            _header(page),
            _contents(page),
            '<main id="content" tabindex="-1">',
            *(_section(section) for section in page.sections),
            "</main>",
            f"<script>{script()}</script>" if checks else "",
            "</body>\n</html>\n",
        ]
    )


def _header(page: Page) -> str:
    back = f'<p class="back"><a href="{escape(page.back.href)}">{escape(page.back.text)}</a></p>' if page.back else ""
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in page.summary)
    return (
        f'<header>{back}<p class="kind">{escape(page.kind)}</p><h1>{escape(page.title)}</h1>'
        f'<div class="summary">{sentences}</div>{_facts(page.glance, "glance")}</header>'
    )


def _contents(page: Page) -> str:
    if len(page.sections) == 1:
        return ""
    links = "".join(f'<li><a href="#{escape(s.id)}">{escape(s.title)}</a></li>' for s in page.sections)
    return f'<nav aria-label="On this page"><ul>{links}</ul></nav>'


def _section(section: PageSection) -> str:
    identity = escape(section.id)
    blocks = "\n".join(_block(block, f"{identity}-{n}") for n, block in enumerate(section.blocks))
    return (
        f'<section id="{identity}" aria-labelledby="{identity}-title">\n<h2 id="{identity}-title">'
        f"{escape(section.title)}</h2>\n{blocks}\n</section>"
    )


def _block(block: Block, identity: str) -> str:
    if isinstance(block, PageTable):
        return _table(block, identity)
    if isinstance(block, Plot):
        return (
            f'<figure aria-labelledby="{identity}-title">\n<h3 id="{identity}-title">{escape(block.title)}</h3>'
            f"<p>{escape(block.description)}</p>{plot_html(block, identity)}</figure>\n"
            f"{_table(block.table, f'{identity}-table')}"
        )
    if isinstance(block, Verification):
        return _desk(block)
    return _prose(block)


def _prose(block: Text | Items | Facts | Command) -> str:
    if isinstance(block, Text):
        return "<p>" + (f"<strong>{escape(block.lead)}</strong> " if block.lead else "") + f"{escape(block.text)}</p>"
    if isinstance(block, Items):
        return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in block.items) + "</ul>"
    if isinstance(block, Facts):
        return _facts(block.facts, "facts")
    return f'<p>{escape(block.purpose)}</p>\n<pre tabindex="0"><code>{escape(block.command)}</code></pre>'


def _facts(facts: tuple[Fact, ...], kind: str) -> str:
    return f'<dl class="{kind}">' + "".join(map(_fact, facts)) + "</dl>"


def _fact(fact: Fact) -> str:
    value = f"<code>{escape(fact.value)}</code>" if fact.code else escape(fact.value)
    return f"<div><dt>{escape(fact.name)}</dt><dd>{value}</dd></div>"


def _table(table: PageTable, identity: str) -> str:
    """Return a table in a region that scrolls, and that the keyboard reaches; a folded one in a closed drawer."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header)
    rows = "\n".join(f"<tr>{''.join(_cells(row))}</tr>" for row in table.rows)
    caption = escape(table.caption)
    shown = "" if table.folded else f'<caption id="{identity}-c">{caption}</caption>'
    label = f'aria-label="{caption}"' if table.folded else f'aria-labelledby="{identity}-c"'
    body = (
        f'<div class="table" role="region" tabindex="0" {label}><table>{shown}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )
    return f"<details><summary>{caption}</summary>{body}</details>" if table.folded else body


def _cells(row: tuple[str | Link, ...]) -> Iterator[str]:
    for place, cell in enumerate(row):
        text = escape(cell) if isinstance(cell, str) else f'<a href="{escape(cell.href)}">{escape(cell.text)}</a>'
        length = "short" if isinstance(cell, str) and len(cell) <= _SHORT else "long"
        yield f'<td class="{length}">{text}</td>' if place else f'<th scope="row">{text}</th>'


def _desk(block: Verification) -> str:
    """Return the place to drop files; what the checks say, the script puts there."""
    names = ", ".join(f"<code>{escape(name)}</code>" for name in block.files)
    return (
        f'<p>{escape(block.caution)}</p>\n<div id="desk" data-certificate="{escape(block.certificate)}">\n'
        f'<p id="wanted">The files: {names}.</p>\n'
        '<div id="drop"><p><label for="files">Drop the files in this box, or choose them, several at once</label>\n'
        '<input type="file" id="files" multiple aria-describedby="wanted"></p>\n'
        '<p><label for="folder">or choose a folder that holds some of them</label>\n'
        '<input type="file" id="folder" webkitdirectory aria-describedby="wanted"></p></div>\n'
        "<noscript><p><strong>Scripts are switched off here, so this page cannot check anything; use the command "
        "below.</strong></p></noscript>\n"
        '<progress id="progress" max="1" value="0" aria-label="Reading the files" hidden></progress>\n'
        '<p id="verdict" role="status" aria-live="polite" data-decision="open">Nothing has been checked yet.</p>\n'
        '<ol id="checks" aria-label="Checks"></ol>\n'
        '<p><button type="button" id="clear" hidden>Begin again with other files</button></p>\n</div>\n'
        f"<p>{escape(block.beyond)}</p>"
    )
