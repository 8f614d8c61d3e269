"""The HTML page: self-contained, safe with hostile content, and accessible."""

import base64
import hashlib
import re
import tomllib
from itertools import pairwise
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mbd
from mbd.formats.leakage import Interval
from mbd.report.page.certificate import certificate_page
from mbd.report.page.content import (
    Command,
    Fact,
    Facts,
    Items,
    Link,
    MeasureRow,
    Page,
    PageSection,
    PageTable,
    Plot,
    Text,
    Verification,
)
from mbd.report.page.html import script, style, to_html
from mbd.report.page.markdown import to_markdown
from mbd.report.text import to_text
from tests.report.html import Seen
from tests.report.statements import KINDS, page_context, statement_of

HOSTILE = (
    "<script>alert(1)</script>",
    "</title></style></script><img src=x onerror=alert(1)>",
    '" autofocus onfocus="alert(1)',
    "' onmouseover='alert(1)",
    "<!-- -->]]>&lt;b&gt;&amp;",
    "| a | b |\n\n# heading\n\n```\n[link](javascript:alert(1)) ![x](http://example.org/x) **b**",
)


def everything(text: str) -> Page:
    """Return a page with this text wherever content comes from a certificate."""
    value = Interval(value=0.5, low=0.4, high=0.6)
    measure = MeasureRow(
        label=text,
        chance=0.5,
        tolerance=0.1,
        blind=False,
        before=value,
        after=value,
        reference=None,
        difference=value,
        decision="passed",
    )
    table = PageTable(caption=text, header=(text, text), rows=((text, text), (Link(text=text, href="a.html"), text)))
    blocks = (
        Text(lead=text, text=text),
        Items(items=(text, text)),
        Facts(facts=(Fact(name=text, value=text), Fact(name=text, value=text, code=True))),
        Command(purpose=text, command=text),
        table,
        *(
            Plot(name="one", title=text, description=text, measures=(measure,), folded=folded)
            for folded in (False, True)
        ),
        Verification(caution=text, beyond=text, certificate="0" * 64, files=(text,)),
    )
    return Page(
        kind=text,
        title=text,
        summary=(text,),
        glance=(Fact(name=text, value=text),),
        sections=(PageSection(id="one", title=text, blocks=blocks), PageSection(id="two", title=text, blocks=())),
    )


PLAIN = Seen.of(to_html(everything("x")))


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_certificate_never_becomes_markup(text: str) -> None:
    seen = Seen.of(to_html(everything(text)))
    assert seen.shape == PLAIN.shape
    assert seen.raw == PLAIN.raw
    assert seen.text.count(text) >= 20


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_no_string_changes_the_shape_of_a_page(text: str) -> None:
    seen = Seen.of(to_html(everything(text)))
    assert seen.shape == PLAIN.shape
    assert seen.raw == PLAIN.raw


@settings(deadline=None, max_examples=100)
@given(st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(codec="utf-8"), min_size=1)))
def test_no_string_changes_the_shape_of_the_markdown(text: str) -> None:
    def shape(markdown: str) -> list[str]:
        lines = markdown.split("\n")
        return [re.sub(r"\\.|[^|]", "", line) if line.startswith("|") else "" for line in lines]

    shown = to_markdown(everything(text))
    assert shape(shown) == shape(to_markdown(everything("x")))
    prose = [re.sub(r"\\.|`[^`]*`", "", line) for line in shown.splitlines() if not line.startswith("    ")]
    assert not any("<" in line or "](javascript" in line or "](http" in line for line in prose)


@settings(deadline=None, max_examples=100)
@given(st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(codec="utf-8"), min_size=1)))
def test_no_string_sends_control_characters_to_the_terminal(text: str) -> None:
    assert all(letter.isprintable() or letter == "\n" for letter in to_text(everything(text), 80))


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_lets_the_page_run_its_own_script_and_style_and_nothing_else(kind: str) -> None:
    html = to_html(certificate_page(statement_of(kind), page_context(kind)))  # type: ignore[arg-type]
    seen = Seen.of(html)
    (policy,) = (
        e.attributes["content"] for e in seen.all("meta") if e.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for what in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(seen.raw[what].encode()).digest()).decode()
        assert rules[f"{what}-src"] == f"'sha256-{digest}'"
        assert len(seen.all(what)) == 1
    assert set(rules) == {
        *("default-src", "script-src", "style-src", "base-uri", "form-action"),
        *("require-trusted-types-for", "trusted-types"),
    }


def test_nothing_is_fetched_and_nothing_runs_from_an_attribute() -> None:
    seen = Seen.of(to_html(certificate_page(statement_of("surgery"), page_context("surgery"))))
    for element in seen.elements:
        assert element.tag not in {"link", "iframe", "object", "embed", "img", "base", "form"}
        for name, value in element.attributes.items():
            assert name != "style"
            assert not name.startswith("on")
            assert name not in {"src", "srcset", "action"}
            assert name != "href" or str(value).startswith("#")
    assert not re.search(r"@import|url\(|https?:", style())
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|fetch\(|XMLHttp|import\(", script()
    )
    assert "</" not in script()


def test_the_same_page_has_the_same_bytes() -> None:
    pages = [certificate_page(statement_of("certified"), page_context("certified")) for _ in range(2)]
    assert to_html(pages[0]) == to_html(pages[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_screen_reader_can_navigate_the_page(kind: str) -> None:
    seen = Seen.of(to_html(certificate_page(statement_of(kind), page_context(kind))))  # type: ignore[arg-type]
    ids = [e.attributes["id"] for e in seen.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in seen.elements:
        for name in ("aria-labelledby", "aria-describedby", "for"):
            assert set((element.attributes.get(name) or "").split()) <= set(ids)
        if (element.attributes.get("href") or "").startswith("#"):
            assert str(element.attributes["href"])[1:] in ids
        if element.attributes.get("role") in ("img", "region"):
            assert "aria-label" in element.attributes or "aria-labelledby" in element.attributes
    for landmark in ("header", "nav", "main", "h1"):
        assert len(seen.all(landmark)) == 1
    levels = [int(e.tag[1]) for e in seen.elements if re.fullmatch(r"h[1-6]", e.tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert seen.all("html")[0].attributes["lang"] == "en"
    labelled = [label.attributes["for"] for label in seen.all("label")]
    assert [field.attributes["id"] for field in seen.all("input")] == labelled == ["files", "folder"]
    (status,) = (e for e in seen.elements if e.attributes.get("role") == "status")
    assert status.attributes["aria-live"] == "polite"


def test_every_plot_is_described_in_words() -> None:
    seen = Seen.of(to_html(certificate_page(statement_of("surgery"), page_context("surgery"))))
    drawn = [e for e in seen.all("svg") if e.attributes.get("role") == "img"]
    assert len(drawn) == len(seen.all("desc")) == len(seen.all("title")) - 1 > 0
    assert "released model 0.520 [0.490, 0.550]" in seen.text
    assert "whitebox: balanced accuracy" in seen.text


def test_every_part_of_the_script_and_the_style_are_in_the_distribution() -> None:
    package = Path(mbd.__file__).parent
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["mbd"]
    found = [file for file in package.rglob("*") if file.suffix in (".js", ".css", ".html")]
    for file in found:
        assert any(PurePosixPath(file.relative_to(package).as_posix()).match(pattern) for pattern in patterns), file
    own = [file for file in found if "page" in file.parts]
    assert len(own) > 1
    for file in own:
        assert file.read_text(encoding="utf-8") in (script() if file.suffix == ".js" else style())


def _colours(block: str) -> dict[str, tuple[float, float, float]]:
    found = re.findall(r"--(\w+): #([0-9a-f]{6});", block)
    return {name: tuple(int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)) for name, code in found}  # type: ignore[misc]


def _luminance(colour: tuple[float, float, float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_enough_contrast_in_light_in_dark_and_on_paper() -> None:
    schemes = re.findall(r":root \{(.*?)\}", style(), re.DOTALL)
    assert len(schemes) == 3
    for scheme in map(_colours, schemes):
        for ground in ("paper", "panel"):
            for text in ("ink", "muted", "link", "before", "after", "reference", "passed", "failed", "unknown"):
                light, dark = sorted((_luminance(scheme[text]), _luminance(scheme[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)
        for shape in ("before", "after", "reference", "muted"):
            light, dark = sorted((_luminance(scheme[shape]), _luminance(scheme["band"])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3, shape
