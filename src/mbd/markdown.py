"""Markdown: one function that makes any text plain, and tables; and what notebooks show of a text.

Names, reasons and other text come from data, parameters and certificates. :func:`escape` is applied to each of them
before it becomes part of a page: it can neither become markup nor leave its line or its table cell, where Kubeflow or
a repository renders the page.
"""

import html
import re
from collections.abc import Sequence

_MARKUP = re.compile(r"[\\`*|]|\](?=[(\[:])|(?<!\w)[_~]|[_~](?!\w)|^[#+-](?=[#\s-]|$)|^=(?==*$)")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
_AUTOLINK = re.compile(r"(?<=\w):(?=//)|(?<=\bwww)\.", re.IGNORECASE)
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def printable(text: str) -> str:
    """Return text without line ends, terminal escapes and other control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def escape(text: str) -> str:
    """Return Markdown that shows this text, in one line and without blanks around it."""
    plain = _MARKUP.sub(lambda found: f"\\{found[0]}", printable(text).strip()).translate(_ENTITIES)
    plain = _NUMBERED.sub(r"\1\\\2", plain)
    return _AUTOLINK.sub(lambda found: f"&#{ord(found[0])};", plain)


def code(text: str) -> str:
    """Return text as code."""
    return f"`{printable(text).replace('`', '')}`"


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already: the first column to the left, the others to the right."""
    rule = ["---", *(["---:"] * (len(header) - 1))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines))


class ShownInNotebooks:
    """A result that notebooks show as the text that its command prints, the first line in bold."""

    def to_text(self) -> str:
        """Return what a command prints."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        first, newline, rest = html.escape(self.to_text()).partition("\n")
        return f"<pre><b>{first}</b>{newline}{rest}</pre>"
