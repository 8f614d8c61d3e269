"""A page as one self-contained HTML file: style and script are inline, and nothing is fetched.

Every string of the content is escaped where it is inserted; markup comes only from this module and the plots. The page
does not claim that the certificate is genuine: only the checks that a reader runs show that. Its content security
policy allows its own script and style and nothing else:

    default-src 'none'; script-src 'sha256-…'; style-src 'sha256-…'

As PDF it is printed by the browser or the library that is here: Chromium, or else WeasyPrint, of which neither is
installed with this package. It is printed as its style sheet says: page one can be filed on its own.
"""

import base64
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Literal

import segno

from mbd.errors import MbdError
from mbd.formats.verdict import VERDICTS
from mbd.report.page.content import (
    NOT_ASKED,
    Block,
    Cell,
    Command,
    Estimate,
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

Paper = Literal["A4", "letter"]
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 120
_CHECKS = ("bytes", "sha256", "canonical", "envelope", "trust", "log", "checks")
"""the parts of the script that verify, in dependency order; `panel` shows the results"""
_NO_EVIDENCE = "Anyone could write such a page: before you rely on it, verify the certificate."
_SHORT = 12
"""cells up to this length do not wrap"""


def to_html(page: Page, paper: Paper | None = None) -> str:
    """Return the page; `paper`: what it is printed on, else what the reader chooses."""
    looks, word = f"{style()}{_footer(page, paper)}", f"{page.standing.word}: " if page.standing else ""
    checks = any(isinstance(block, Verification) for section in page.sections for block in section.blocks)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(looks, with_script=checks))}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">',
            f"<title>{word}{escape(page.title)} · {escape(page.kind)}</title>",
            f'<style>{looks}</style>\n</head>\n<body>\n<a class="skip" href="#content">Skip to the content</a>',
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
        f'<header>{back}<p class="kind">{escape(page.kind)}</p><h1>{escape(page.title)}</h1>{_standing(page)}'
        f'<div class="summary">{sentences}</div><div class="head">{_facts(page.glance, "glance")}{_code(page)}</div>'
        "</header>"
    )


def _standing(page: Page) -> str:
    if page.number is None:
        return ""
    if page.standing is None:
        return f'<p id="standing" data-severity="unknown">{NOT_ASKED}</p>'
    standing, later = page.standing, page.standing.successor
    successor = f"{later.label}: {_address(later.address)} " if later else ""
    return (
        f'<p id="standing" data-severity="{standing.rules.severity}"><strong>{standing.word}</strong> '
        f"{escape(standing.sentence)} {successor}<span>{standing.when}. {_NO_EVIDENCE}</span></p>"
    )


def _address(address: str) -> str:
    """Return an address, as a link if a browser can open it."""
    return f'<a href="{escape(address)}">{escape(address)}</a>' if address.startswith("http") else escape(address)


def _code(page: Page) -> str:
    """Return the number of a certificate, and its address as a QR code: the digest in it, at least."""
    if page.number is None:
        return ""
    address = page.address if page.address and page.address.startswith("http") else None
    drawn = segno.make(address or f"certificate {page.number}", micro=False, error="m")
    picture = drawn.svg_inline(border=2, omitsize=True, dark="#000", light="#fff")
    shown = f"<span>{_address(page.address)}</span>" if page.address else ""
    return (
        f'<figure class="number"><div role="img" aria-label="QR code of the certificate">{picture}</div>'
        f"<figcaption>Certificate <strong>{page.number}</strong>{shown}</figcaption></figure>"
    )


def _footer(page: Page, paper: Paper | None) -> str:
    """Return the rules for printed pages: their size, and the certificate's number beside the page's."""
    size = f" size: {paper};" if paper else ""
    number = f'@bottom-left {{ content: "{page.kind} {page.number}" }} ' if page.number else ""
    return f'@page {{{size} {number}@bottom-right {{ content: counter(page) " / " counter(pages) }} }}\n'


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
        return _plot(block, identity)
    if isinstance(block, Verification):
        return _verification_panel(block)
    return _prose(block)


def _plot(plot: Plot, identity: str) -> str:
    """Return the strips of a plot and the table of their numbers; a folded one collapsed."""
    title = escape(plot.title)
    heading = "" if plot.folded else f'<h3 id="{identity}-title">{title}</h3>'
    label = f'aria-label="{title}"' if plot.folded else f'aria-labelledby="{identity}-title"'
    body = (
        f"<figure {label}>\n{heading}<p>{escape(plot.description)}</p>{plot_html(plot, identity)}</figure>\n"
        f"{_table(plot.table, f'{identity}-table')}"
    )
    return _folded(title, body) if plot.folded else body


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
    """Return a table in a region that scrolls and takes keyboard focus; a folded one collapsed."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header)
    rows = "\n".join(f"<tr>{''.join(_cells(row))}</tr>" for row in table.rows)
    caption = escape(table.caption)
    shown = "" if table.folded else f'<caption id="{identity}-c">{caption}</caption>'
    label = f'aria-label="{caption}"' if table.folded else f'aria-labelledby="{identity}-c"'
    body = (
        f'<div class="table" role="region" tabindex="0" {label}><table>{shown}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )
    return _folded(caption, body) if table.folded else body


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>{body}</details>"


def _cells(row: tuple[Cell, ...]) -> Iterator[str]:
    for index, cell in enumerate(row):
        length = "short" if not isinstance(cell, Link) and len(str(cell)) <= _SHORT else "long"
        yield f'<td class="{length}">{_cell(cell)}</td>' if index else f'<th scope="row">{_cell(cell)}</th>'


def _cell(cell: Cell) -> str:
    """Return the content of a cell; an interval never breaks between its ends."""
    if isinstance(cell, Link):
        return f'<a href="{escape(cell.href)}">{escape(cell.text)}</a>'
    if isinstance(cell, Estimate):
        return f'{cell.short} <span class="short">{str(cell).removeprefix(cell.short).strip()}</span>'
    return escape(str(cell))


def _verification_panel(block: Verification) -> str:
    """Return where files are dropped; the script inserts the results of the checks."""
    names = ", ".join(f"<code>{escape(name)}</code>" for name in block.files)
    return (
        f'<p id="panel-caution">{escape(block.caution)}</p>\n'
        f'<div id="panel" data-certificate="{escape(block.certificate)}">\n'
        f'<p id="wanted">The files: {names}.</p>\n'
        '<div id="drop"><p><label for="files">Drop the files here, or choose several at once</label>\n'
        '<input type="file" id="files" multiple aria-describedby="wanted"></p>\n'
        '<p><label for="folder">Or choose a folder that contains some of them</label>\n'
        '<input type="file" id="folder" webkitdirectory aria-describedby="wanted"></p></div>\n'
        "<noscript><p><strong>Scripts are disabled, so this page cannot run any checks. Use the command below."
        "</strong></p></noscript>\n"
        '<progress id="progress" max="1" value="0" aria-label="Reading the files" hidden></progress>\n'
        '<p id="verdict" role="status" aria-live="polite" data-kind="open">Nothing has been checked yet.</p>\n'
        '<ol id="checks" aria-label="Checks"></ol>\n'
        '<p><button type="button" id="clear" hidden>Start over with other files</button></p>\n</div>\n'
        f'<p id="panel-beyond">{escape(block.beyond)}</p>'
    )


@cache
def style() -> str:
    """Return the style sheet."""
    return _read("style.css")


@cache
def script() -> str:
    """Return the script that verifies in the browser, in a scope of its own."""
    return f'(() => {{\n"use strict";\n\n{checking_script()}{_read("script/panel.js")}}})();\n'


def checking_script() -> str:
    """Return the part of the script that verifies: the table of verdicts, and all checks."""
    table = json.dumps({verdict: asdict(rules) for verdict, rules in VERDICTS.items()})
    return "\n".join([f"const VERDICTS = {table};", *(_read(f"script/{name}.js") for name in _CHECKS)]) + "\n"


def policy(looks: str, *, with_script: bool) -> str:
    """Return the content security policy of a page with this style sheet."""
    sources = [f"style-src {_source(looks)}"]
    if with_script:
        sources += [f"script-src {_source(script())}", "require-trusted-types-for 'script'", "trusted-types 'none'"]
    return "; ".join(["default-src 'none'", *sources, "base-uri 'none'", "form-action 'none'"])


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def print_pdf(html: str) -> bytes:
    """Return a page that :func:`to_html` made as PDF.

    Raises:
        MbdError: There is nothing to print with, or it failed.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser:
        return _by_browser(browser, html)
    try:
        weasyprint = importlib.import_module("weasyprint")
    except ImportError as error:
        hint = "install Chromium or WeasyPrint, or print the HTML page from a browser"
        raise MbdError("there is no program here that prints a page as PDF", hint=hint) from error
    return bytes(weasyprint.HTML(string=html).write_pdf())


def _by_browser(browser: str, html: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="mbd-pdf-") as folder:
        page, pdf = Path(folder) / "page.html", Path(folder) / "page.pdf"
        page.write_text(html, encoding="utf-8")
        options = ["--headless", "--disable-gpu", "--no-first-run", "--no-pdf-header-footer"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to run as root with its sandbox
        command = [browser, *options, f"--user-data-dir={folder}/profile", f"--print-to-pdf={pdf}", page.as_uri()]
        try:
            done = subprocess.run(  # noqa: S603 -- a browser of this machine, with a page that was made here
                command, capture_output=True, text=True, timeout=_PATIENCE, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise MbdError(f"printing took longer than {_PATIENCE} seconds", value=browser) from error
        if not pdf.is_file():
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise MbdError(f"the page could not be printed: {lines[-1]}", value=browser)
        return pdf.read_bytes()
