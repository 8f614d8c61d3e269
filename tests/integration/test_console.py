"""The console in a real browser: a request is entered, carried out by the worker, certified, and verified."""

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from mbd.formats.files import CERTIFICATE, PROOF, WEIGHTS
from mbd.formats.layout import certificate_name, object_name, proof_name
from mbd.formats.registration import RegisteredReference
from mbd.formats.statement import DeletionStatement, parse_payload
from mbd.trust.envelope import Envelope
from tests.integration.servers.chromium import Browser, Scheme
from tests.integration.verification_panel import shown
from tests.serving.site import Site
from tests.serving.waiting import wait_until
from tests.serving.worker_site import WorkerSite, call, wait_for_end

pytestmark = pytest.mark.services

REGISTERED = "registered"
PICTURES: list[tuple[int, Scheme]] = [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")]


def sign_in(browser: Browser, token: str) -> None:
    browser.evaluate(f"token.value = {token!r}")
    browser.evaluate("document.querySelector('#sign-in button').click()")


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:
        content: bytes = response.read()
        return content


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
        browser.open(url)
        sign_in(browser, token)
        browser.wait_for("document.querySelectorAll('[name=modality]').length === 3")
        browser.evaluate("document.querySelector('[name=modality][value=audio]').click()")
        browser.evaluate("reason.value = 'withdrawn consent'")
        browser.evaluate("document.querySelector('#submit-form button').click()")
        browser.wait_for("message.textContent.includes('is entered')")
        browser.wait_for("document.querySelector('#request-rows code') !== null")
        identifier = browser.evaluate("document.querySelector('#request-rows code').textContent")
        assert wait_for_end(url, token, identifier)["state"] == "certified"
        browser.evaluate("document.querySelector('#request-state').value = ''")
        browser.evaluate("document.querySelector('#request-state').dispatchEvent(new Event('change'))")
        browser.wait_for("document.querySelector('#request-rows a') !== null")
        browser.wait_for("document.querySelector('#certificate-rows a') !== null")
        assert "audio" in browser.evaluate("document.querySelector('#model-rows').textContent")
        assert browser.complaints() == []
        assert {urlsplit(one).netloc for one in browser.requests() if not one.startswith("data:")} == {
            urlsplit(url).netloc
        }
        digest = call(f"{url}/requests/{identifier}", token)["certificate"]
        browser.open(f"{url}/certificates/{digest}/page")
        (tmp_path / "bundle").mkdir()
        files = fetch_bundle(url, digest, tmp_path / "bundle")
        browser.choose("#files", [*files, site.trust_file])
        found = shown(browser)
        assert found.decision == "authentic", found
        assert browser.complaints() == []
    log = (tmp_path / "serve.log").read_text()
    assert not [one for one in (token, str(tmp_path), "Traceback") if one in log]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Site]]:
    """A server with requests in every state and certificates of several kinds."""
    site = Site.make(tmp_path_factory.mktemp("busy"), "serving.poll_seconds=0.5")
    first = site.golden.certificate("exact")
    site.golden.certificate("certified", model="another model of a longer name")
    site.golden.certificate("surgery")
    site.golden.revoke(first)
    ready = RegisteredReference(without=("text",), weights="1" * 64, record="2" * 64)
    site.golden.registration("exact", model=REGISTERED, references=(ready,))
    store = site.golden.request_store
    for number in range(60):
        store.submit("sentiment", ["audio", "visual"][: 1 + number % 2], due_days=1 + number % 30)
    for request in list(store.all())[:5]:
        store.cancel(request.id)
    site.tokens["all"], _ = site.token_file.new("a person", ["submit", "read", "operate"])
    with site.process() as (url, _):
        yield url, site


@pytest.mark.parametrize(("width", "scheme"), PICTURES)
def test_the_console_fits_the_window_and_follows_the_scheme(
    browser: Browser, busy: tuple[str, Site], tmp_path: Path, width: int, scheme: Scheme
) -> None:
    url, site = busy
    browser.look(width, scheme)
    browser.open(url)
    sign_in(browser, site.tokens["all"])
    browser.wait_for("document.querySelectorAll('#request-rows tr').length === 20")
    browser.wait_for("document.querySelectorAll('#certificate-rows tr').length === 3")
    browser.evaluate("document.querySelector('#more-requests').click()")
    browser.wait_for("document.querySelectorAll('#request-rows tr').length === 40")
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]
    small = browser.evaluate(
        "Array.from(document.querySelectorAll('main p, main li, main td, main th, main label'))"
        ".filter((e) => e.checkVisibility() && parseFloat(getComputedStyle(e).fontSize) < 12).length"
    )
    assert small == 0
    folder = Path(os.environ.get("MBD_PICTURES", tmp_path))
    browser.screenshot(folder / f"console-{width}-{scheme}.png")
    assert browser.complaints() == []


def test_models_are_shown_with_the_references_that_are_ready_or_missing(
    browser: Browser, busy: tuple[str, Site]
) -> None:
    url, _ = busy
    browser.open(url)
    browser.wait_for("document.querySelectorAll('#model-rows tr').length === 3")
    rows = "Array.from(document.querySelectorAll('#model-rows tr'))"
    found = dict(browser.evaluate(f"{rows}.map((row) => [row.cells[0].innerText, row.cells[4].innerText])"))
    references = {one: json.loads(fetch(f"{url}/models/{quote(one)}"))["references"] for one in found}
    assert references[REGISTERED] == {"text": "1" * 64, "visual": None}
    assert found[REGISTERED] == "ready for text; missing for visual"
    others = {one: f"missing for {', '.join(sorted(known))}" for one, known in references.items() if one != REGISTERED}
    assert {one: found[one] for one in others} == others
    assert not any(weights for one in others for weights in references[one].values())


def test_the_keyboard_reaches_everything_and_everything_has_a_name(browser: Browser, busy: tuple[str, Site]) -> None:
    url, site = busy
    browser.look(1280, "light")
    browser.open(url)
    sign_in(browser, site.tokens["all"])
    browser.wait_for("document.querySelectorAll('#request-rows tr').length === 20")
    browser.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(40):
        browser.press("Tab")
        reached.add(browser.evaluate("document.activeElement.id || document.activeElement.localName"))
        outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or browser.evaluate("document.activeElement === document.body")
    assert {"token", "model", "modality-0", "reason", "requester", "request-state", "button", "a"} <= reached
    browser.call("Accessibility.enable")
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    for node in nodes:
        focusable = any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", []))
        if focusable and node["role"]["value"] not in ("RootWebArea", "main", "generic", "none"):
            assert node.get("name", {}).get("value"), node
    roles = {node["role"]["value"] for node in nodes}
    assert {"main", "navigation", "banner", "status", "region", "table", "columnheader"} <= roles


def test_hostile_texts_run_nothing_and_a_wrong_token_is_explained(browser: Browser, busy: tuple[str, Site]) -> None:
    url, _ = busy
    browser.open(url)
    sign_in(browser, "<img src=x onerror=document.title='gone'>")
    browser.wait_for("message.textContent.includes('not valid')")
    assert browser.evaluate("document.title") == "Missing-by-Design: console"


def test_a_request_is_cancelled_and_the_list_follows_by_itself(browser: Browser, busy: tuple[str, Site]) -> None:
    url, site = busy
    browser.open(url)
    sign_in(browser, site.tokens["all"])
    browser.wait_for("document.querySelectorAll('#request-rows button').length > 0")
    first = browser.evaluate("document.querySelector('#request-rows code').textContent")
    browser.evaluate("document.querySelector('#request-rows button').click()")
    browser.wait_for(f"message.textContent === 'Request {first} is cancelled.'")
    browser.wait_for(f"!document.querySelector('#request-rows').textContent.includes('{first}')")
    soon = site.golden.request_store.submit("sentiment", ["audio"], due_days=1)  # by another process
    browser.evaluate("document.querySelector('#request-state').value = ''")
    wait_until(lambda: call(f"{url}/requests/{soon.id}", site.tokens["all"])["state"] == "received")
    browser.wait_for(f"document.querySelector('#request-rows').textContent.includes('{soon.id}')")
