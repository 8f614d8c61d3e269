"""Step `report`: from a bundle, or from all certificates of a store, to pages that people look at.

    mbd report BUNDLE --out FILE.html|.md|.json      one page in one format
    mbd report BUNDLE --out DIR                      report.html, report.md, report.json
    mbd report --store URL --out DIR                 index.* and certificates/SHA256.*, in all three formats

A bundle is shown as it is: nothing is verified, and the page says so until its reader checks it. From a store only what
verifies gets a page, together with what has been said about it since; the rest is listed as invalid. Pages are no part
of a certificate. The same bundle, or the same content of a store, gives the same bytes; the index is of a day.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mbd.certificate.bundle import Bundle
from mbd.certificate.history import History
from mbd.certificate.layout import CERTIFICATES
from mbd.certificate.log.inclusion import Inclusion
from mbd.certificate.log.reader import Log
from mbd.certificate.replay import read_history
from mbd.certificate.state import CertificateEntry, InvalidCertificate, entries
from mbd.certificate.trust import read_trust, require_trust
from mbd.errors import DataError, UsageError, VerificationError
from mbd.files import write_file
from mbd.formats.request import OPEN, DeletionRequest
from mbd.formats.statement import CERTIFICATE, PROOF, DeletionStatement
from mbd.params import Params
from mbd.records import now
from mbd.report.index import IndexRow, RequestRow, index_page, page_name
from mbd.report.page.certificate import PageContext, certificate_page
from mbd.report.page.content import Link, Page
from mbd.report.page.html import to_html
from mbd.report.page.markdown import to_markdown
from mbd.requests.request_store import RequestStore
from mbd.steps.step import step_run
from mbd.storage import open_private, open_store

NAME = "report"
FORMATS: dict[str, Callable[[Page], str]] = {
    ".html": to_html,
    ".md": to_markdown,
    ".json": lambda page: page.to_json(),
}


@dataclass(frozen=True)
class StorePages:
    """Pages that were made of a store."""

    certificates: tuple[IndexRow, ...]
    invalid: tuple[InvalidCertificate, ...]
    """those that do not verify: they have no page"""
    page: Path
    """the index, to open first"""


def of_bundle(bundle: Path, out: Path) -> Path:
    """Write the page of a bundle to a file, or in all formats to a folder; return what to open."""
    if bundle.name == CERTIFICATE:
        bundle = bundle.parent
    page = bundle_page(Bundle(bundle))
    if out.suffix in FORMATS and not out.is_dir():
        write_file(out, FORMATS[out.suffix](page))
        return out
    if out.suffix and not out.is_dir():
        raise UsageError("unknown format of a page", key="--out", value=out, hint="end it with .html, .md or .json")
    with step_run(NAME, out, {}, bundle=bundle) as step:
        _write(step.folder / "report", page)
        step.look_at = "report.html"
    return out / "report.html"


def of_store(
    params: Params, url: str, out: Path, *, trust: Path | None = None, clock: Callable[[], datetime] = now
) -> StorePages:
    """Write a page for each certificate of a store, and an index of them."""
    at, store = clock(), open_store(url, params.store)
    trusted = read_trust(require_trust(trust))
    requests = list(RequestStore(open_private(url, params.store)).all())
    history = read_history(store, trusted)
    log = Log(store, trusted, history.head)
    answered = defaultdict[str, list[str]](list)
    for request in requests:
        if _is_answered(request, history):
            answered[request.certificate or ""].append(request.id)
    rows: list[IndexRow] = []
    invalid: list[InvalidCertificate] = []
    with step_run(NAME, out, {"store": params.store}) as step:
        for found in entries(store, trusted, at, history, max_age=params.certificate.checkpoint_age):
            if isinstance(found, InvalidCertificate):
                invalid.append(found)
                continue
            try:
                page = store_page(log, store.url, found, tuple(answered[found.digest]))
            except (VerificationError, DataError) as error:
                invalid.append(InvalidCertificate(found.digest, error.problem))
                continue
            _write(step.folder / page_name(found.digest), page)
            rows.append(IndexRow.of(found))
        _write(
            step.folder / "index",
            index_page(store.url, rows, invalid, [_request_row(request, history) for request in requests], at),
        )
        step.look_at = "index.html"
    return StorePages(tuple(rows), tuple(invalid), out / "index.html")


def bundle_page(bundle: Bundle) -> Page:
    """Return the page of a bundle; nothing is verified."""
    statement = bundle.statement
    if not isinstance(statement, DeletionStatement):
        raise DataError("this is not a certificate, but a statement about one", file=bundle.file(CERTIFICATE))
    file = bundle.file(PROOF)
    inclusion = _inclusion(file.read_bytes(), str(file)) if file.is_file() else None
    return certificate_page(statement, PageContext(bundle.digest, inclusion))


def store_page(
    log: Log, url: str, entry: CertificateEntry, answered: tuple[str, ...] = (), *, back: str = "../index.html"
) -> Page:
    """Return the page of a verified certificate.

    Args:
        log: The log that it was read from; its proof of inclusion is made from it, not taken from the store.
        url: The store's URL, as readers of the page know it.
        entry: The certificate.
        answered: Ids of the requests that it answers.
        back: Address of the list of certificates.

    Raises:
        VerificationError: The log no longer has what the proof of inclusion needs.

    """
    known = PageContext(
        digest=entry.digest,
        inclusion=log.inclusion(entry.facts.index, bytes.fromhex(entry.digest)),
        about=entry.about,
        status=entry.undated,
        answered=answered,
        url=f"{url}/{CERTIFICATES}/{entry.digest}",
        back=Link(text="All certificates", href=back),
    )
    return certificate_page(entry.statement, known)


def _inclusion(proof: bytes, name: str) -> Inclusion:
    hint = "get the bundle again from where it was published"
    return Inclusion.from_bytes(proof, "proof of inclusion", file=name, hint=hint)


def _is_answered(request: DeletionRequest, history: History) -> bool:
    """Return whether the log shows what a request, which no key has signed, says about its certificate."""
    return request.state == "certified" and history.shows(
        request.certificate, request.model, request.modalities, person=request.of_person
    )


def _request_row(request: DeletionRequest, history: History) -> RequestRow:
    unproven = request.state == "certified" and not _is_answered(request, history)
    state = "failed" if unproven else request.state  # the next worker carries it out
    return RequestRow(request.id, request.model, request.modalities, state, state in OPEN, request.due)


def _write(place: Path, page: Page) -> None:
    """Write a page in all formats; `place` lacks the ending."""
    for ending, show in FORMATS.items():
        write_file(place.with_name(place.name + ending), show(page))
