"""The pages of a store: each certificate that verifies, what was said about it since, and the requests it answers."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mbd.errors import DataError, VerificationError
from mbd.formats.request import OPEN
from mbd.history.entries import InvalidCertificate, read_entries
from mbd.history.replay import read_history
from mbd.log.reader import Log
from mbd.monitoring.store_scanner import facts_of_request, proven
from mbd.outputs import step_run
from mbd.params import Params
from mbd.production.request_store import RequestStore
from mbd.records import now
from mbd.report.index import IndexRow, RequestRow, index_page, page_name
from mbd.steps.report import NAME, store_page, write_page
from mbd.storage import open_store
from mbd.trust.trust_file import read_trust, require_trust


@dataclass(frozen=True)
class StorePages:
    """Pages that were made of a store."""

    certificates: tuple[IndexRow, ...]
    invalid: tuple[InvalidCertificate, ...]
    """those that do not verify: they have no page"""
    page: Path
    """the index, to open first"""


def write_store_pages(
    params: Params, url: str, out: Path, *, trust: Path | None = None, clock: Callable[[], datetime] = now
) -> StorePages:
    """Write a page for each certificate of a store, and an index of them."""
    at, store = clock(), open_store(url, params.store)
    trusted = read_trust(require_trust(trust))
    request_store = RequestStore.open(params, url)
    stated = list(request_store.stated())  # before the log: what a request says has been logged by then
    history = read_history(store, trusted)
    log = Log(store, trusted, history.head)
    requests, answered = list[RequestRow](), defaultdict[str, list[str]](list)
    for request in stated:
        authentic = request_store.is_authentic(request)
        state = proven(facts_of_request(request), history).state if authentic else "not authentic"
        requests.append(RequestRow(request.id, request.model, request.modalities, state, state in OPEN, request.due))
        if state == "certified":
            answered[request.certificate or ""].append(request.id)
    rows: list[IndexRow] = []
    invalid: list[InvalidCertificate] = []
    with step_run(NAME, out, {"store": params.store}) as step:
        for entry in read_entries(store, trusted, at, history, max_age=params.certificate.checkpoint_age):
            if isinstance(entry, InvalidCertificate):
                invalid.append(entry)
                continue
            try:
                page = store_page(log, store.url, entry, at, tuple(answered[entry.digest]))
            except (VerificationError, DataError) as error:
                invalid.append(InvalidCertificate(entry.digest, error.problem))
                continue
            write_page(step.folder / page_name(entry.digest), page)
            rows.append(IndexRow.of(entry))
        write_page(step.folder / "index", index_page(store.url, rows, invalid, requests, at))
        step.look_at = "index.html"
    return StorePages(tuple(rows), tuple(invalid), out / "index.html")
