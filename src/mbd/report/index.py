"""The index page of a store: every certificate with the verdict on it, what cannot be verified, and open requests.

Whether an audit or a request is overdue depends on the date, so an index is valid for the day on which it was made.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from mbd.formats.verdict import DECISIONS, Decision
from mbd.history.entries import CertificateEntry, InvalidCertificate
from mbd.report.page.content import ABSENT, Block, Cell, Fact, Items, Link, Page, PageSection, PageTable, Text
from mbd.report.page.origin import day


@dataclass(frozen=True)
class IndexRow:
    """A certificate in the index; small, since there can be many."""

    digest: str
    model: str
    deleted: str
    method: str
    guarantee: str
    issued: datetime
    reaudit_by: datetime
    verdict: Decision
    """by the log: its files were not compared"""
    reason: str

    @classmethod
    def of(cls, entry: CertificateEntry) -> "IndexRow":
        """Return the row of a certificate."""
        predicate, status = entry.statement.predicate, entry.status
        guarantee = predicate.guarantee
        limit = f", ε = {guarantee.epsilon:g}" if guarantee.kind == "certified" else ""
        return cls(
            digest=entry.digest,
            model=predicate.model,
            deleted=predicate.deleted.words,
            method=predicate.method.name,
            guarantee=guarantee.kind + limit,
            issued=predicate.issued,
            reaudit_by=status.reaudit_by,
            verdict=status.decision,
            reason=status.reason,
        )


@dataclass(frozen=True)
class RequestRow:
    """A request in the index, without its requester."""

    id: str
    model: str
    modalities: tuple[str, ...]
    state: str
    open: bool
    due: datetime


def page_name(digest: str) -> str:
    """Return the path of a certificate's page relative to the index, without its suffix."""
    return f"certificates/{digest}"


def index_page(
    store: str,
    rows: Sequence[IndexRow],
    invalid: Sequence[InvalidCertificate],
    requests: Sequence[RequestRow],
    at: datetime,
) -> Page:
    """Return the index of a store at a time; `store` is its URL without credentials."""
    return Page(
        kind="Modality Deletion Certificates",
        title=f"Certificates in {store}",
        summary=tuple(_summary(rows, invalid, requests, at)),
        glance=(
            Fact(name="as of", value=day(at)),
            *(Fact(name=verdict, value=str(count)) for verdict, count in _count(rows).items()),
        ),
        sections=(_certificates(rows), *_invalid(invalid), *_requests(requests, at)),
    )


def _count(rows: Sequence[IndexRow]) -> dict[str, int]:
    counts = Counter(row.verdict for row in rows)
    return {verdict: counts[verdict] for verdict in DECISIONS if counts[verdict]}


def _summary(
    rows: Sequence[IndexRow], invalid: Sequence[InvalidCertificate], requests: Sequence[RequestRow], at: datetime
) -> Iterator[str]:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in _count(rows).items())
    yield f"{_number(len(rows), 'certificate')} in this store" + (f": {counts}." if counts else ".")
    yield (
        "Their signatures and log entries were verified when this page was made. Do not rely on that: verify each "
        "certificate yourself on its own page."
    )
    if invalid:
        yield f"{_number(len(invalid), 'object')} cannot be verified and should not be relied on."
    open_requests = [request for request in requests if request.open]
    if open_requests:
        late = sum(request.due < at for request in open_requests)
        yield f"{_number(len(open_requests), 'open request')}, {late} past the deadline."


def _certificates(rows: Sequence[IndexRow]) -> PageSection:
    header = ("certificate", "verdict", "model", "deleted", "method", "guarantee", "issued", "next audit by", "reason")
    blocks: tuple[Block, ...] = (Text(text="No certificate has been published here."),)
    if rows:
        ordered = sorted(rows, key=lambda row: (row.issued, row.digest), reverse=True)
        blocks = (PageTable(caption="Newest first", header=header, rows=tuple(map(_row, ordered))),)
    return PageSection(id="certificates", title="Certificates", blocks=blocks)


def _row(row: IndexRow) -> tuple[Cell, ...]:
    link = Link(text=row.digest[:12], href=f"{page_name(row.digest)}.html")
    dates = day(row.issued), day(row.reaudit_by)
    reason = ABSENT if row.verdict == "verified" else row.reason
    return (link, row.verdict.upper(), row.model, row.deleted, row.method, row.guarantee, *dates, reason)


def _invalid(found: Sequence[InvalidCertificate]) -> Iterator[PageSection]:
    if found:
        items = tuple(f"{entry.digest}: {entry.reason}" for entry in found)
        yield PageSection(id="invalid", title="Objects that cannot be verified", blocks=(Items(items=items),))


def _requests(requests: Sequence[RequestRow], at: datetime) -> Iterator[PageSection]:
    if not requests:
        return
    counts = Counter(request.state for request in requests)
    blocks: list[Block] = [
        PageTable(
            caption="All requests",
            header=("state", "requests"),
            rows=tuple((state, str(count)) for state, count in sorted(counts.items())),
        )
    ]
    if open_requests := sorted((r for r in requests if r.open), key=lambda request: (request.due, request.id)):
        rows = tuple(
            (r.id, r.model, ", ".join(r.modalities) or ABSENT, r.state, _due(r.due, at)) for r in open_requests
        )
        header = ("request", "model", "to delete", "state", "due")
        blocks.append(PageTable(caption="Open requests, nearest deadline first", header=header, rows=rows))
    yield PageSection(id="requests", title="Requests", blocks=tuple(blocks))


def _due(due: datetime, at: datetime) -> str:
    return f"{day(due)}, {abs((due - at).days)} days {'late' if due < at else 'left'}"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
