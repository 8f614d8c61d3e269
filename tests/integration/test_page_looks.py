"""How the pages look and feel in a real browser: phone and desk, light and dark, keyboard, paper, hostile content."""

from pathlib import Path

import pytest
from docs.pictures import take

from mbd.formats.leakage import summarise
from mbd.production.store_pages import write_store_pages
from mbd.steps import report, verify
from tests.integration.servers.chromium import Browser, Scheme
from tests.integration.verification_panel import VerificationPanel, checked
from tests.report.statements import SmallAuthority, attack, leakage

pytestmark = pytest.mark.services

SCHEMES: tuple[Scheme, ...] = ("light", "dark")
PICTURES = [(width, scheme) for width in (390, 1280) for scheme in SCHEMES]


@pytest.fixture
def panel(tmp_path: Path) -> VerificationPanel:
    authority = SmallAuthority.make(tmp_path / "authority")
    return VerificationPanel.set_up(tmp_path / "desk", authority.publish("surgery"), authority.trust_file)


def test_a_hostile_certificate_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    wicked = "</script><script>document.title = 'gone'</script><img src=x onerror=\"document.title='gone'\">"
    authority = SmallAuthority.make(tmp_path / "authority")
    found = summarise(leakage(attacks=[attack("wicked", reason=wicked, modality=wicked)]))
    evaluation = {"metrics_sha256": "a" * 64, "modalities": [wicked], "rows": 1, "metrics": {wicked: 1.0}}
    bundle = authority.publish(
        "surgery", evidence={"audit": found, "evaluation": evaluation}, disclosures=[wicked, "x"]
    )
    (bundle / wicked.replace("/", "")[:50]).write_text("a file with a wicked name")
    panel = VerificationPanel.set_up(tmp_path / "desk", bundle, authority.trust_file)
    assert checked(browser, panel).kind == "genuine"
    assert browser.complaints() == []
    assert browser.evaluate("[document.scripts.length, document.images.length]") == [1, 0]
    assert browser.evaluate("document.title").startswith('Attacks found no audio in model "sentiment"')
    assert wicked in browser.evaluate("document.body.textContent")


@pytest.mark.parametrize(("width", "scheme"), PICTURES)
def test_pages_fit_the_window_and_follow_the_scheme(
    browser: Browser, panel: VerificationPanel, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    browser.look(width, scheme)
    browser.open(panel.page)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert checked(browser, panel).kind == "genuine"
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    beyond = "Array.from(document.querySelectorAll('.table')).filter((e) => e.scrollWidth > e.clientWidth).length"
    assert width < 1280 or browser.evaluate(beyond) == 0
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]
    small = browser.evaluate(
        "Array.from(document.querySelectorAll('main p, main li, main td, main th, main dd, svg text'))"
        ".filter((e) => e.checkVisibility() && parseFloat(getComputedStyle(e).fontSize) < 12).length"
    )
    assert small == 0
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_the_keyboard_reaches_everything_and_everything_has_a_name(browser: Browser, panel: VerificationPanel) -> None:
    browser.look(1280, "light")
    browser.open(panel.page)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(80):
        browser.press("Tab")
        reached.add(browser.evaluate("document.activeElement.id || document.activeElement.localName"))
        outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or browser.evaluate("document.activeElement === document.body")
    assert {"files", "summary", "a", "div", "pre"} <= reached
    browser.call("Accessibility.enable")
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    for node in nodes:
        focusable = any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", []))
        if focusable and node["role"]["value"] not in ("RootWebArea", "main", "generic", "code", "none", "pre"):
            assert node.get("name", {}).get("value"), node
    roles = {node["role"]["value"] for node in nodes}
    assert {"main", "navigation", "banner", "status", "region", "table", "columnheader", "rowheader", "image"} <= roles


def test_on_paper_the_tables_are_open_and_nothing_asks_to_be_clicked(
    browser: Browser, panel: VerificationPanel
) -> None:
    browser.open(panel.page)
    browser.look(794, "dark", media="print")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.getElementById('drop')).display") == "none"
    assert browser.evaluate("document.querySelector('details table').getBoundingClientRect().height") > 0
    assert browser.printed().startswith(b"%PDF")
    browser.look(1280, "light")


def test_the_pictures_of_the_handbook_are_taken_of_any_certificate(tmp_path: Path) -> None:
    authority = SmallAuthority.make(tmp_path / "authority")
    bundle, page = authority.publish("surgery"), tmp_path / "page.html"
    verdict = verify.run(authority.params, str(bundle), trust=authority.trust_file, store=authority.url)
    report.of_bundle(bundle, page, verdict)
    (tmp_path / "pictures").mkdir()
    take.main(page, tmp_path / "pictures")
    taken = {file.name: file.read_bytes()[16:24] for file in (tmp_path / "pictures").iterdir()}
    assert taken == {name: (take.HERE / name).read_bytes()[16:24] for name in taken}  # width and height of a PNG
    assert len(taken) == 5


def test_the_index_leads_to_the_pages(browser: Browser, tmp_path: Path) -> None:
    authority = SmallAuthority.make(tmp_path / "authority")
    digest = authority.publish("exact").name
    write_store_pages(authority.params, authority.url, tmp_path / "site", trust=authority.trust_file)
    browser.look(390, "light")
    browser.open(tmp_path / "site" / "index.html")
    assert browser.evaluate("document.documentElement.scrollWidth") == 390
    browser.evaluate("document.querySelector('tbody a').click()")
    browser.wait_for(f"location.pathname.endsWith('{digest}.html') && document.readyState === 'complete'")
    browser.evaluate("document.querySelector('.back a').click()")
    browser.wait_for("location.pathname.endsWith('index.html')")
    assert browser.complaints() == []
