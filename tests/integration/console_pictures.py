"""The pictures of the console in docs/pictures: `python -m tests.integration.console_pictures`.

They show a store that was in use for 90 days: requests of persons and of modalities, models, certificates and audits.
"""

import random
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from mbd.formats.predicate import Issuer
from mbd.formats.registration import RegisteredReference
from mbd.formats.request import STATES, DeletionRequest, State
from mbd.production.request_store import RequestStore
from mbd.records import now
from tests.integration.servers.chromium import Browser, Scheme, chromium
from tests.serving.site import Site

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
_PHONE, _DESK, _PHONE_HEIGHT = 390, 1280, 844


@dataclass(frozen=True)
class Picture:
    """One page at one width."""

    page: str
    width: int
    scheme: Scheme

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"console-{self.page}-{'phone' if self.width == _PHONE else 'desk'}-{self.scheme}.png"


SHOWN = (
    Picture("overview", _DESK, "light"),
    Picture("request", _DESK, "dark"),
    Picture("model", _DESK, "light"),
    Picture("certificate", _DESK, "light"),
    Picture("overview", _PHONE, "dark"),
    Picture("new", _PHONE, "light"),
)


@dataclass(frozen=True)
class Office:
    """A site that was in use, and what its pages are about."""

    site: Site
    token: str
    request: str
    certificate: str
    replaced: str

    @classmethod
    def make(cls, folder: Path) -> "Office":
        """Fill a new store: 70 requests of 90 days in every state, four models, certificates of every kind."""
        site = Site.make(folder, "serving.poll_seconds=0.5", "serving.rate_per_minute=0")
        golden = site.golden
        ready = RegisteredReference(without=("text",), weights="1" * 64, record="2" * 64)
        ago = [now() - timedelta(days=days) for days in (94, 61, 33, 12)]
        golden.registration("exact", model="intent", references=(ready,), issued=ago[0])
        golden.registration("exact", issued=ago[0])
        replaced = golden.certificate("exact", issued=ago[1])
        golden.certificate("certified", model="emotion of team 2", issued=ago[2])
        issuer = Issuer(name="Example Ltd", contact="privacy@example.org")
        current = golden.certificate("surgery", supersedes=replaced, issued=ago[3], issuer=issuer)
        golden.audit(current)
        golden.purge(current, "a" * 64)
        golden.revoke(golden.certificate("exact", model="pilot", issued=ago[2]))
        requests = [_carried_out(golden.request_store, number, current) for number in range(70)]
        token, _ = site.token_file.new("privacy office", ["submit", "read", "operate"])
        return cls(site, token, next(each for each in reversed(requests) if each), current, replaced)

    def address(self, page: str) -> str:
        """Return the address of a page; of a request, a model or a certificate that of one."""
        ends = {
            "overview": "",
            "request": f"requests/{self.request}",
            "model": "models/sentiment",
            "certificate": f"certificates/{self.certificate}",
        }
        return f"/console/{ends.get(page, page)}"


def _carried_out(store: RequestStore, number: int, certificate: str) -> str | None:
    """Enter a request some time ago, and carry it out as far as it came; return its id if it was certified, for all."""
    draw = random.Random(number)
    received = now() - timedelta(days=95 - 1.35 * number)
    clock = [received.replace(microsecond=0)]
    before = RequestStore(store.store, store.key, clock=lambda: clock[0])
    person = "0" * 64 if number % 4 else None
    made = before.submit("sentiment", ["audio"], due_days=30, subject=person, requester=f"case-{number + 1}")
    last: State = "failed" if number in (40, 66) else "refused" if number % 17 == 5 else "certified"
    if number == 68:
        before.cancel(made.id)
    if number > 66 or number == 30:
        return None
    for step in ("running", "deleted", "evaluated", *(() if person else ("attacked",)), last):
        hours = draw.uniform(5, 100) if step == "running" else draw.uniform(0.02, 0.4)
        clock[0] = (clock[0] + timedelta(hours=hours)).replace(microsecond=0)
        if clock[0] > now():
            return None
        before.change(made.id, partial(_moved, step=step, at=clock[0], certificate=certificate))
    return made.id if last == "certified" and not person else None


def _moved(request: DeletionRequest, step: str, at: datetime, certificate: str) -> DeletionRequest:
    if step in ("deleted", "evaluated", "attacked"):
        return request.noted(step, "worker", at)
    notes = {"refused": "the gate refused: reattach.label is above its limit", "failed": "the store was away"}
    state: State = next(each for each in STATES if each == step)
    more = {"certificate": certificate} if state == "certified" else {}
    return request.moved(state, "worker", at, notes.get(state, ""), **more)


def open_page(browser: Browser, url: str, token: str = "") -> None:
    """Open a page of the console as somebody who is signed in, or is not."""
    browser.open(url, before=f"if (location.protocol === 'http:') sessionStorage.setItem('mbd-token', {token!r})")
    browser.wait_for("document.querySelector('main h1') !== null")


def take(browser: Browser, office: Office, url: str, folder: Path) -> list[Path]:
    """Take all pictures; of a page on a phone what its window shows."""
    files = []
    for picture in SHOWN:
        browser.look(picture.width, picture.scheme)
        open_page(browser, url + office.address(picture.page), office.token)
        browser.wait_for("document.querySelector('#health').innerText.includes('works')")
        browser.wait_for("[...document.querySelectorAll('.chart')].every((each) => each.firstChild)")
        files.append(folder / picture.name)
        browser.screenshot(files[-1], _PHONE_HEIGHT if picture.width == _PHONE else None)
    return files


def main(folder: Path) -> None:
    """Make the site, start server and browser, and take the pictures."""
    with tempfile.TemporaryDirectory() as place:
        office = Office.make(Path(place))
        with office.site.process() as (url, _), chromium(Path(place) / "chromium") as browser:
            for file in take(browser, office, url, folder):
                print(f"written: {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
