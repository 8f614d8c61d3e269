"""The handbook as a whole: it builds without a warning and without a network, and says what the code says."""

import html
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.blocks import CLUSTER, KUBEFLOW, PAGES, REPOSITORY, RUN, SERVICES, UNEXECUTED, blocks, prose
from tests.docs.site import build_site

LOADED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^"'> ]+""")
IMPORTED = re.compile(r"""@import|url\(["']?(?:https?:)?//""")
KINDS = {RUN, SERVICES, UNEXECUTED, CLUSTER, KUBEFLOW, "python", "text"}


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", REPOSITORY / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site") / "site")


def test_the_architecture_names_every_folder() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    folders = {name.partition("/")[0] for name in tracked.split() if "/" in name and not name.startswith(".")}
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    output = text[text.index("## What is where") : text.index("## Packages and layers")]
    assert folders == set(re.findall(r"`(\w+)/(?:mbd/)?`", output))


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert {"index.html", "commands.html", "concepts.html"} <= {page.name for page in pages}
    assert not {(page.name, found) for page in pages for found in LOADED.findall(page.read_text(encoding="utf-8"))}
    assert not [style for style in site.rglob("*.css") if IMPORTED.search(style.read_text(encoding="utf-8"))]


def test_the_tour_is_a_page_with_its_outputs(site: Path) -> None:
    page = (site / "tour.html").read_text(encoding="utf-8")
    assert ">mbd<" in page
    pictures = re.findall(r'src="(tour-\d+\.png)"', page)
    assert pictures
    assert all((site / name).read_bytes().startswith(b"\x89PNG") for name in pictures)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_every_formula_is_one_for_katex(site: Path) -> None:
    pages = [html.unescape(page.read_text(encoding="utf-8")) for page in site.glob("*.html")]
    formulas = [
        formula for page in pages for formula in re.findall(r'class="arithmatex">\\[(\[](.*?)\\[)\]]<', page, re.DOTALL)
    ]
    assert len(formulas) > 20
    script = (
        "for (const f of JSON.parse(process.argv[2])) require(process.argv[1]).renderToString(f, {strict: 'error'})"
    )
    katex = str(site / "javascripts" / "katex" / "katex.min.js")
    subprocess.run(["node", "-e", script, katex, json.dumps(formulas)], check=True)


def test_scripts_of_the_tools_are_no_pages(site: Path) -> None:
    assert not list(site.rglob("*.py"))


@pytest.fixture(scope="module")
def generated(quick: Path) -> dict[str, str]:
    """Every generated page. Made in a process of its own: click keeps the help option of the first context it sees."""
    script = "import json, runpy, sys; pages = runpy.run_path(sys.argv[1])['PAGES'].items()\n"
    script += "print(json.dumps({name: page() for name, page in pages}))"
    command = [f"{quick}/bin/python", "-c", script, str(REPOSITORY / "docs" / "generate.py")]
    pages: dict[str, str] = json.loads(subprocess.check_output(command))
    return pages


def test_generated_pages_are_up_to_date(generated: dict[str, str]) -> None:
    for name, page in generated.items():
        written = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
        assert written == page, f"docs/{name} is stale: run `python docs/generate.py`"


def test_commands_stand_in_fences_that_tests_know() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.kind in KINDS, f"{block.place}: ```{block.kind} is none of {sorted(KINDS)}"
        indented = re.findall(r"^    (?:mbd|make|dvc|pip|git|docker) .*", prose(page), re.MULTILINE)
        assert not indented, f"{page.name}: put commands into a fence of kind sh: {indented}"
        assert not re.search(r"^    \S", prose(page), re.MULTILINE) or page.name == "README.md"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", prose(page)):
            if "://" in target:
                continue
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name} links to {target}, which is not there"
            if anchor and file.suffix == ".md":
                assert anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def test_files_of_the_sources_are_where_pages_say() -> None:
    named = re.compile(r"`((?:src|tests|benchmarks|components|deploy)/[a-z_0-9/.-]+\.[a-z]+)`")
    for page in PAGES:
        for file in named.findall(page.read_text()):
            assert (REPOSITORY / file).exists(), f"{page.name} names {file}, which is not there"


def anchors(page: Path) -> set[str]:
    """The anchors that MkDocs and code hosts give to headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
