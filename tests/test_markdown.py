"""Text of others is shown in Markdown and becomes no markup, as a Markdown renderer sees it."""

import html
import re

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mbd.markdown import code, escape, printable, table

HOSTILE = [
    "![x](https://evil.example/x.png)",
    "[click](javascript:alert(1))",
    "[click]: https://evil.example",
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "a | b | c",
    "**bold** _italic_ ~~gone~~ `code`",
    "# heading",
    "- item",
    "1. item",
    "12) item",
    "    code",
    "  # heading",
    "---",
    "a\n\n# heading",
    "&lt;b&gt;",
    "https://evil.example www.evil.example",
    "\\![x](y)",
    "\x1b[31mred",
]


def rendered(markdown: str) -> str:
    """Render as Kubeflow does, with tables."""
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))


def words(text: str) -> str:
    """Return text with single blanks, as HTML shows it."""
    return " ".join(text.split())


def check_plain(text: str) -> None:
    page = rendered(f"before {escape(text)} after\n\n- {escape(text)}\n\n{escape(text)}")
    assert set(re.findall(r"<(/?\w+)", page)) <= {"p", "/p", "ul", "/ul", "li", "/li"}, page
    shown = words(html.unescape(re.sub(r"<[^>]*>", "", page)))
    assert not re.search(r"\w://|\bwww\.", escape(text), re.IGNORECASE)  # renderers make links of bare addresses
    assert shown == words(f"before {printable(text)} after {printable(text)} {printable(text)}")


def test_hostile_text_is_shown_and_becomes_no_markup() -> None:
    for text in HOSTILE:
        check_plain(text)


@given(st.text(alphabet=st.sampled_from("ab1 #*_~`[]()!<>&|\\-+=.:/\n\twW:"), max_size=24))
@example("a_b_c")
def test_any_text_is_shown_and_becomes_no_markup(text: str) -> None:
    check_plain(text)


def test_no_text_leaves_its_table_cell() -> None:
    for text in HOSTILE:
        page = rendered(table(["name", "value"], [[escape(text), "1"]]))
        assert page.count("<td") == 2, text
        assert "<a" not in page and "<img" not in page and "<script" not in page, text


def test_code_has_no_way_to_end_early() -> None:
    assert rendered(code("a`<b>`c")) == "<p><code>a&lt;b&gt;c</code></p>\n"


def test_a_table_aligns_numbers_to_the_right() -> None:
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
