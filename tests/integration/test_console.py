"""The console in a real browser: a request is entered, carried out by the worker, certified, and verified."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from mbd.formats.files import CERTIFICATE, PROOF, WEIGHTS
from mbd.formats.layout import certificate_name, object_name, proof_name
from mbd.formats.statement import DeletionStatement, parse_payload
from mbd.formats.verdict import VERDICTS, Decision
from mbd.trust.envelope import Envelope
from tests.golden.test_verdicts import golden_file
from tests.integration import console_pictures, console_verdicts
from tests.integration.console_pictures import Office, open_page, take
from tests.integration.servers.chromium import Browser, Scheme
from tests.integration.verification_panel import shown
from tests.serving.waiting import wait_until
from tests.serving.worker_site import WorkerSite, call, wait_for_end

pytestmark = pytest.mark.services

PAGES = ("overview", "requests", "request", "models", "model", "certificates", "certificate", "new", "sign-in")
CONTRAST = """() => {
  const numbers = (color) => color.match(/[0-9.]+/g).map(Number);
  const light = (color) => {
    const linear = (v) => (v <= 10.31 ? v / 3294.6 : ((v / 255 + .055) / 1.055) ** 2.4);
    const [r, g, b] = numbers(color).map(linear);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = (e) => {
    const { backgroundColor } = getComputedStyle(e);
    const seen = numbers(backgroundColor);
    return seen.length === 4 && seen[3] === 0 ? ground(e.parentElement) : backgroundColor;
  };
  const own = (e) => Array.from(e.childNodes).some((n) => n.nodeType === 3 && n.textContent.trim());
  const texts = Array.from(document.querySelectorAll("body *")).filter((e) => e.checkVisibility() && own(e));
  return texts.filter((e) => !e.closest("svg"))
    .map((e) => {
      const [one, other] = [light(getComputedStyle(e).color), light(ground(e))].sort((a, b) => b - a);
      return [e.innerText, (one + .05) / (other + .05)];
    }).filter(([, ratio]) => ratio < 4.5);
}"""
"""returns the texts whose contrast with their ground is below 4.5 (WCAG AA)"""
PICTURES: list[tuple[int, Scheme]] = [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")]


def text(browser: Browser, selector: str) -> str:
    found: str = browser.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")
    return found


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:
        content: bytes = response.read()
        return content


def answers(url: str) -> bool:
    try:
        return bool(fetch(url))
    except OSError:
        return False


def fetch_bundle(url: str, digest: str, folder: Path) -> list[Path]:
    """Fetch what a certificate is about, but the weights, as a reader does."""
    envelope = fetch(f"{url}/store/{certificate_name(digest)}")
    statement = parse_payload(Envelope.parse(envelope).content)
    assert isinstance(statement, DeletionStatement)
    names = {CERTIFICATE: certificate_name(digest), PROOF: proof_name(digest)}
    names |= {name: object_name(sha256) for name, sha256 in statement.digests.items() if name != WEIGHTS}
    for name, stored in names.items():
        (folder / name).write_bytes(fetch(f"{url}/store/{stored}"))
    return [folder / name for name in names]


def test_from_the_console_to_a_certificate_that_verifies_in_the_browser(browser: Browser, tmp_path: Path) -> None:
    site = WorkerSite.make(tmp_path)
    token = site.token("submit", "read")
    with site.served(*site.worker) as url:
        browser.look(1280, "light")
        open_page(browser, f"{url}/console/sign-in")
        browser.evaluate(f"document.querySelector('[name=token]').value = {token!r}")
        browser.evaluate("document.querySelector('#sign-in button').click()")
        browser.wait_for("document.querySelector('main h1').innerText === 'Overview'")
        assert text(browser, "#session .who").split() == ["client", "of", "submit", "and", "read", "read", "submit"]
        browser.evaluate("document.querySelector('a[href=\"/console/new\"]').click()")
        browser.wait_for("document.querySelectorAll('[name=modality]').length === 3")
        assert browser.evaluate("document.querySelector('[name=whose]:checked').value") == "person"
        browser.evaluate("document.querySelector('[name=modality][value=audio]').click()")
        browser.evaluate("document.querySelector('#new-request [type=submit]').click()")
        browser.wait_for("document.querySelector('#new-request [role=alert]').innerText.includes('id of the person')")
        browser.evaluate("document.querySelector('[name=whose][value=all]').click()")
        browser.evaluate("document.querySelector('[name=modality][value=audio]').click()")
        browser.evaluate("document.querySelector('[name=reason]').value = 'withdrawn consent'")
        browser.evaluate("document.querySelector('#new-request [type=submit]').click()")
        browser.wait_for("location.pathname.startsWith('/console/requests/')")
        identifier = browser.evaluate("location.pathname.split('/').pop()")
        assert wait_for_end(url, token, identifier)["state"] == "certified"
        browser.wait_for("document.querySelector('.lead')?.innerText.includes('Certified')")  # it follows by itself
        steps = browser.evaluate("Array.from(document.querySelectorAll('.timeline h3')).map((e) => e.innerText)")
        assert steps[:2] == ["Received", "Taken by a worker"] and "Certified" in steps
        assert browser.complaints() == []
        assert {urlsplit(one).netloc for one in browser.requests() if not one.startswith("data:")} == {
            urlsplit(url).netloc
        }
        digest = call(f"{url}/requests/{identifier}", token)["certificate"]
        browser.evaluate("document.querySelector('.actions button.primary').click()")
        browser.wait_for("location.pathname.endsWith('/page') && document.readyState === 'complete'")
        (tmp_path / "bundle").mkdir()
        files = fetch_bundle(url, digest, tmp_path / "bundle")
        browser.choose("#files", [*files, site.trust_file])
        found = shown(browser)
        assert found.kind == "genuine", found
        assert browser.complaints() == []
    log = (tmp_path / "serve.log").read_text()
    assert not [one for one in (token, str(tmp_path), "Traceback") if one in log]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Office]]:
    """A server with requests in every state and certificates of several kinds."""
    office = Office.make(tmp_path_factory.mktemp("busy"))
    with office.site.process() as (url, _):
        wait_until(lambda: answers(f"{url}/readyz"))
        yield url, office


def test_the_pictures_of_the_handbook_are_taken(browser: Browser, busy: tuple[str, Office], tmp_path: Path) -> None:
    url, office = busy
    for file in take(browser, office, url, tmp_path):
        assert file.read_bytes().startswith(b"\x89PNG")
        width = {"phone": 390, "desk": 1280}[file.stem.split("-")[2]]
        for picture in (file, console_pictures.PICTURES / file.name):
            assert int.from_bytes(picture.read_bytes()[16:20], "big") == width


@pytest.mark.parametrize(("width", "scheme"), PICTURES)
@pytest.mark.parametrize("page", PAGES)
def test_every_page_fits_the_window_and_follows_the_scheme(
    browser: Browser, busy: tuple[str, Office], page: str, width: int, scheme: Scheme
) -> None:
    url, office = busy
    browser.look(width, scheme)
    open_page(browser, f"{url}{office.address(page)}", office.token)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(244, 246, 248)", "dark": "rgb(20, 24, 28)"}[scheme]
    small = browser.evaluate(
        "Array.from(document.querySelectorAll('main p, main li, main td, main th, main label, main dd, main text'))"
        ".filter((e) => e.checkVisibility() && parseFloat(getComputedStyle(e).fontSize) < 12).length"
    )
    assert small == 0
    assert browser.evaluate(f"({CONTRAST})()") == []
    assert browser.complaints() == []


@pytest.mark.parametrize("page", PAGES)
def test_everything_has_a_name_and_the_keyboard_reaches_it(
    browser: Browser, busy: tuple[str, Office], page: str
) -> None:
    url, office = busy
    browser.look(1280, "light")
    open_page(browser, f"{url}{office.address(page)}", office.token)
    wanted = browser.evaluate(
        "Array.from(document.querySelectorAll('a[href], button, input, select'))"
        ".filter((e) => e.checkVisibility() && !e.disabled && !e.closest('.skip')).length"
    )
    browser.evaluate("window.reached = new Set(); document.activeElement.blur()")
    for _ in range(min(wanted, 60) + 5):
        browser.press("Tab")
        browser.evaluate("void reached.add(document.activeElement)")
        outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or browser.evaluate("document.activeElement === document.body")
    assert browser.evaluate("reached.size") >= min(wanted, 60) - 2  # of radio buttons the keyboard reaches one
    browser.call("Accessibility.enable")
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    for node in nodes:
        focusable = any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", []))
        if focusable and node["role"]["value"] not in ("RootWebArea", "main", "generic", "none", "pre"):
            assert node.get("name", {}).get("value"), node
    roles = {node["role"]["value"] for node in nodes}
    assert {"main", "navigation", "banner", "contentinfo", "status", "heading"} <= roles
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    assert browser.evaluate("new Set(Array.from(document.querySelectorAll('[id]'), (e) => e.id)).size") == (
        browser.evaluate("document.querySelectorAll('[id]').length")
    )


def test_a_page_tells_where_it_is_and_takes_the_focus(browser: Browser, busy: tuple[str, Office]) -> None:
    url, office = busy
    open_page(browser, url, office.token)
    browser.evaluate("document.querySelector('nav a[href=\"/console/models\"]').click()")
    browser.wait_for("document.querySelector('main h1').innerText === 'Models'")
    assert browser.evaluate("[document.title, document.activeElement.id]") == ["Models · Missing-by-Design", "main"]
    assert text(browser, "nav [aria-current]") == "Models"
    browser.evaluate("history.back()")
    browser.wait_for("document.querySelector('main h1').innerText === 'Overview'")


def test_requests_are_found_by_state_model_and_case_number(browser: Browser, busy: tuple[str, Office]) -> None:
    url, office = busy
    rows = "document.querySelectorAll('tbody tr').length"
    open_page(browser, f"{url}/console/requests?state=all", office.token)
    browser.wait_for(f"{rows} === 25")
    browser.evaluate("Array.from(document.querySelectorAll('button')).find((e) => e.innerText === 'Show more').click()")
    browser.wait_for(f"{rows} === 50")
    browser.evaluate("document.querySelector('[name=text]').focus()")
    for key in "CASE-70":
        browser.call("Input.insertText", text=key)
    browser.wait_for(f"{rows} === 1")
    assert text(browser, "tbody a") == "case-70"
    assert browser.evaluate("[document.activeElement.name, document.activeElement.value, location.search]") == [
        "text", "CASE-70", "?text=CASE-70&state=all",
    ]  # fmt: skip
    open_page(browser, f"{url}/console/requests?state=cancelled", office.token)
    browser.wait_for(f"{rows} === 1")
    assert browser.evaluate("document.querySelector('[name=state]').value") == "cancelled"


def test_models_are_shown_with_the_references_that_are_ready_or_missing(
    browser: Browser, busy: tuple[str, Office]
) -> None:
    url, _ = busy
    for one in json.loads(fetch(f"{url}/models"))["models"]:
        open_page(browser, f"{url}/console/models/{quote(one['name'])}")
        found = " ".join(text(browser, "main dl").split())
        references = one["references"]
        ready, missing = (
            sorted(m for m in references if (references[m] is not None) is there) for there in (True, False)
        )
        for word, names in (("ready", ready), ("missing", missing)):
            assert (f"{word} for {', '.join(names)}" in found) == bool(names)
        releases = browser.evaluate("document.querySelectorAll('.timeline li').length")
        assert releases >= one["certificates"]
    assert json.loads(fetch(f"{url}/models/intent"))["references"] == {"text": "1" * 64, "visual": None}


def test_a_certificate_leads_to_what_replaced_it(browser: Browser, busy: tuple[str, Office]) -> None:
    url, _ = busy
    replaced = next(c for c in json.loads(fetch(f"{url}/certificates"))["certificates"] if c["supersedes"])
    open_page(browser, f"{url}/console/certificates/{replaced['supersedes']}")
    assert "Replaced by a later certificate" in text(browser, ".timeline")
    browser.evaluate(f"document.querySelector('.timeline a[href$=\"{replaced['digest']}\"]').click()")
    browser.wait_for(f"document.querySelector('main h1').innerText.includes('{replaced['digest'][:12]}')")
    assert f"/store/certificates/{replaced['digest']} --trust" in text(browser, "main pre")


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_console_says_of_each_verdict_what_it_did(browser: Browser, verdict: Decision, tmp_path: Path) -> None:
    golden = golden_file(verdict, console_verdicts.ENDING)
    assert console_verdicts.say(browser, verdict, tmp_path) == golden.read_text(encoding="utf-8")


def test_hostile_texts_run_nothing_and_errors_are_for_people(browser: Browser, busy: tuple[str, Office]) -> None:
    url, office = busy
    open_page(browser, f"{url}/console/sign-in")
    browser.evaluate("document.querySelector('[name=token]').value = '<img src=x onerror=document.title=1>'")
    browser.evaluate("document.querySelector('#sign-in button').click()")
    browser.wait_for("document.querySelector('#sign-in [role=alert]').innerText.includes('not valid')")
    problems = [text(browser, "#sign-in [role=alert]")]
    for page, token in (
        ("/console/requests", ""),
        ("/console/requests", office.site.tokens["operate"]),
        ("/console/requests/0123456789abcdef", office.token),
        ("/console/models/%3Cimg%20src=x%20onerror=document.title=1%3E", ""),
        ("/console/nothing", ""),
    ):
        open_page(browser, f"{url}{page}", token)
        problems.append(text(browser, "main [role=alert]"))
        assert browser.evaluate("document.title").endswith("· Missing-by-Design")
        assert browser.evaluate("document.images.length") == 0
    assert len(set(problems)) == 6
    assert not [one for one in problems if not one or "Authorization" in one or "{" in one or "undefined" in one]


def test_somebody_who_is_not_signed_in_sees_models_and_certificates(browser: Browser, busy: tuple[str, Office]) -> None:
    url, office = busy
    open_page(browser, url)
    assert text(browser, "#session") == "Sign in"
    assert "to see requests" in text(browser, "main") and "case-" not in text(browser, "main")
    assert browser.evaluate("document.querySelectorAll('.cards .card').length") == 4
    open_page(browser, url, office.token)
    browser.evaluate("document.querySelector('#session button').click()")
    browser.wait_for("document.querySelector('#session').innerText === 'Sign in'")
    assert browser.evaluate("sessionStorage.getItem('mbd-token')") is None


def test_a_request_is_cancelled_and_lists_follow_by_themselves(browser: Browser, busy: tuple[str, Office]) -> None:
    url, office = busy
    token = office.token
    identifier = office.site.golden.request_store.submit("sentiment", ["audio"], due_days=90, requester="to cancel").id
    wait_until(lambda: call(f"{url}/requests?text=cancel", token)["requests"])
    open_page(browser, f"{url}/console/requests/{identifier}", token)
    browser.evaluate("window.confirm = () => true")
    browser.evaluate("document.querySelector('.actions button').click()")
    browser.wait_for("document.querySelector('.lead').innerText.includes('Cancelled')")
    open_page(browser, f"{url}/console/requests", token)
    store = office.site.golden.request_store
    store.submit("sentiment", ["audio"], due_days=0, requester="by another process")
    cases = "Array.from(document.querySelectorAll('tbody a'), (each) => each.innerText)"
    browser.wait_for(f"{cases}.includes('by another process')")


def test_the_description_of_the_interface_works_offline(browser: Browser, busy: tuple[str, Office]) -> None:
    url, office = busy
    for scheme in ("light", "dark"):
        browser.look(1280, scheme)
        browser.open(
            f"{url}/docs#/overview/show_overview_overview_get",
            before=f"if (location.protocol === 'http:') sessionStorage.setItem('mbd-token', {office.token!r})",
        )
        browser.wait_for("document.querySelector('.opblock.is-open .btn.try-out__btn') !== null")
        browser.wait_for("document.querySelector('.opblock.is-open').innerText.includes('requests.get')")
        assert "problem+json" in browser.evaluate("document.querySelector('.opblock.is-open').innerHTML")
        assert browser.complaints() == []
        hosts = {urlsplit(one).netloc for one in browser.requests() if one.startswith("http")}
        assert hosts == {urlsplit(url).netloc}
    browser.evaluate("document.querySelector('.opblock.is-open .btn.try-out__btn').click()")
    browser.wait_for("document.querySelector('.opblock.is-open .btn.execute') !== null")
    browser.evaluate("document.querySelector('.opblock.is-open .btn.execute').click()")
    browser.wait_for("document.querySelector('.opblock.is-open .live-responses-table') !== null")
    live = text(browser, ".opblock.is-open .live-responses-table")
    assert "200" in live and '"overdue"' in live, live
