"""One page with all studies, and the chapter of the handbook."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mbd.errors import UsageError
from studies import corruption, findings, full_modality, loss_curves
from studies.layout import Layout
from studies.outcome import Finding, StudyOutcome, StudyTable, write_outcome
from studies.page import write_page
from studies.written import counted, read_studies
from tests.refusals import refused

STUDIES = {"corruption": corruption.study, "full-modality": full_modality.study, "loss-curves": loss_curves.study}


class ParsedPage(HTMLParser):
    """What a browser would load, show and jump to; and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.pictures: list[str] = []
        self.open: list[str] = []
        self.shown = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [value] if (value := found.get("id")) else []
        self.targets += [value] if (value := found.get("href")) else []
        self.pictures += [value] if (value := found.get("src")) else []
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.shown += data


@pytest.fixture(scope="module")
def real(sentiment: Layout, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Three real studies."""
    layout = Layout(sentiment.plan, tmp_path_factory.mktemp("real"))
    for name, study in STUDIES.items():
        write_outcome(study(sentiment), layout.study(name))
    return layout


@pytest.fixture
def written(real: Layout, tmp_path: Path) -> Layout:
    """A layout with three real studies and one of our own making."""
    layout = Layout(real.plan, tmp_path / "synthetic")
    shutil.copytree(real.root, layout.root)
    table = StudyTable("sizes <of> things", ["|B|", "n"], [["small & round", 3]], note="Counted.")
    claims = [Finding("x < y & |B| > 2.", "holds", "Because <script>alert(1)</script> is text.")]
    clock = StudyTable("clock", ["phase", "seconds"], [["all", 1.5]])
    write_outcome(StudyOutcome("zoo", "Zoo", "Which animal?", [table], claims, readings=[clock]), layout.study("zoo"))
    return layout


def test_studies_come_in_the_order_of_the_paper(written: Layout) -> None:
    assert [study.name for study in read_studies(written.root)] == ["full-modality", "corruption", "loss-curves", "zoo"]


def test_tables_are_found_with_what_is_written_around_them(written: Layout) -> None:
    by_name = {study.name: study for study in read_studies(written.root)}
    first, clock = by_name["zoo"].tables
    assert (first.title, first.note, first.printed) == ("sizes <of> things", "Counted.", False)
    assert (clock.title, clock.note) == ("clock", "")
    assert [shown.printed for shown in by_name["full-modality"].tables] == [False, True]


def test_the_page_needs_no_other_file(written: Layout) -> None:
    write_page(written)
    page = ParsedPage((written.root / "page" / "index.html").read_text())
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert {target.removeprefix("#") for target in page.targets} <= set(page.ids)
    assert page.pictures
    assert all(source.startswith("data:image/png;base64,") for source in page.pictures)
    text = (written.root / "page" / "index.html").read_text()
    assert not re.search(r"https?://|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text


def test_the_page_has_every_claim_first_and_every_number_later(written: Layout) -> None:
    write_page(written)
    text = (written.root / "page" / "index.html").read_text()
    page = ParsedPage(text)
    overview = text[text.index('id="claims"') : text.index('id="full-modality"')]
    for study in read_studies(written.root):
        assert f'href="#{study.name}"' in overview
        for finding in study.findings:
            assert finding.claim in page.shown
            assert finding.reason in page.shown
        for shown in study.tables:
            for cell in re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", shown.table):
                assert cell in page.shown
    assert "<script>alert" not in text
    assert "1.5" in page.shown, "clock readings are shown"


def test_markdown_and_html_are_the_same_bytes_each_time(written: Layout) -> None:
    def bytes_of() -> dict[str, bytes]:
        write_page(written)
        return {file.name: file.read_bytes() for file in (written.root / "page").iterdir()}

    assert bytes_of() == bytes_of()
    markdown = (written.root / "page" / "index.md").read_text()
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", markdown):
        assert (written.root / "page" / picture).is_file()


def test_the_chapter_tells_all_claims_of_all_results(written: Layout, talks: Layout) -> None:
    own = Layout(talks.plan, written.root.parent / "talks")
    for name, study in STUDIES.items():
        write_outcome(study(talks), own.study(name))
    findings.main([written.root, own.root])
    text, record = (Path(folder, "findings.md").read_text() for folder in ("docs", "studies"))
    results = {folder.name: read_studies(folder) for folder in (written.root, own.root)}
    for studies in results.values():
        found = [finding for study in studies for finding in study.findings]
        assert f"of {len(found)} claims {counted(found)}" in text
        for finding in found:
            assert finding.reason in record
            assert finding.claim.replace("|", "&#124;") in text
    assert "| claim | synthetic data | talks.npz |" in text
    assert all(line in record for line in findings.measured(written.root))
    assert "`make study NAME=corruption` and `make study NAME=corruption DATA=talks.npz`." in record
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert (Path("docs") / picture).stat().st_size < findings.LARGEST_PICTURE


def test_readers_are_told_what_was_measured(talks: Layout) -> None:
    (line,) = findings.measured(talks.root)
    assert line.startswith("- talks.npz, talks: classification; rows: train ")
    assert line.endswith("dimensions: voice 9, face 7")


def test_a_claim_that_differs_between_data_is_said_to(written: Layout) -> None:
    other = Layout(written.plan, written.root.parent / "other")
    claims = [Finding("x < y & |B| > 2.", "does not hold", "Here it is not.")]
    write_outcome(StudyOutcome("zoo", "Zoo", "Which animal?", [], claims), other.study("zoo"))
    findings.main([written.root, other.root])
    text = Path("docs/findings.md").read_text()
    assert "| x < y & &#124;B&#124; > 2. | ✓ | ✗ |" in text


def test_results_with_a_page_are_found_synthetic_ones_first(written: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    root = written.root.parent
    monkeypatch.setattr(findings, "ROOT", root)
    with refused(UsageError, key="FOLDER"):
        findings.main([])
    other = Layout(written.plan, root / "another")
    write_outcome(StudyOutcome("zoo", "Zoo", "Which animal?", [], []), other.study("zoo"))
    for layout in (other, written):
        write_page(layout)
    findings.main([])
    assert "| claim | synthetic data | another.npz |" in Path("docs/findings.md").read_text()


def test_a_large_picture_is_made_small(tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (250, 250, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    png = findings.small_picture(tmp_path / "noise.png")
    assert len(png) <= findings.LARGEST_PICTURE < (tmp_path / "noise.png").stat().st_size
    assert png == findings.small_picture(tmp_path / "noise.png")
