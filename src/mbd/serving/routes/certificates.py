"""Certificates with their state, what was said about each since, and their pages."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse

from mbd.formats.predicate import Issuer
from mbd.formats.verdict import Decision
from mbd.history.facts import CertificateFacts, Effect, Kind, StatementFacts
from mbd.history.state import CertificateState, Status, last_erasure
from mbd.serving.identity import readable
from mbd.serving.problems import View
from mbd.serving.routes import Limit, Serving, Words, problems
from mbd.verifier.verdict import COPIES

router = APIRouter(tags=["certificates", "store"], dependencies=[readable("store")])
_HEX = r"^[0-9a-f]{64}$"
Digest = Annotated[str, Path(pattern=_HEX, description="SHA-256 of the certificate")]


class SuccessorView(View):
    """The release that has taken the place of a certified model."""

    kind: Literal["certificate", "registration"]
    digest: str
    """SHA-256 of its signed statement"""
    current: bool
    """whether it is the current release of the name; if not, it was withdrawn as well, and there is none"""
    releases: int
    """how many releases of the name came after the certified one, up to this one"""


class CertificateView(View):
    """A certificate and its state by the log."""

    digest: str
    index: int
    """in the log"""
    model: str
    modalities: list[str]
    """what was deleted"""
    scope: str
    persons: int
    """how many persons' recordings were deleted; 0: those of all"""
    guarantee: str
    epsilon: float | None
    inputs: list[str]
    """what its model takes"""
    weights: str
    issued: datetime
    state: CertificateState
    verdict: Decision
    """by the log alone: signatures count, files were not compared"""
    reason: Words
    reaudit_by: datetime
    supersedes: str | None
    """the certificate that it replaced"""
    successor: SuccessorView | None
    """of a replaced certificate: the release that has taken the place of its model, and keeps what was deleted"""
    page: str
    """address of its page"""


class StatementView(View):
    """A statement in the log about a certificate."""

    digest: str
    """SHA-256 of the signed statement; of a supersession the certificate that came later"""
    index: int
    """in the log"""
    kind: Kind
    about: str
    """SHA-256 of the certificate"""
    effect: Effect
    reason: Words
    issued: datetime
    reaudit_by: datetime | None
    """of an audit: by when the next one is due"""
    modalities: list[str]
    """of a reinstatement: what may be taken again"""


class CertificateDetail(CertificateView):
    """A certificate with its state, and what was said about it since."""

    issuer: Issuer
    copies: str
    """what is claimed of copies of the old weights"""
    statements: list[StatementView]


class CertificatePage(View):
    """A page of certificates, the last logged first."""

    certificates: list[CertificateView]
    next: int | None


def certificate_view(facts: CertificateFacts, status: Status) -> CertificateView:
    """Return what clients see of a certificate."""
    more = {"verdict": status.decision, "guarantee": facts.kind, "persons": len(facts.subjects)}
    page = {"page": f"/certificates/{facts.digest}/page"}
    return CertificateView.model_validate(asdict(facts) | status.model_dump() | more | page)


def statement_views(statements: Iterable[StatementFacts]) -> list[StatementView]:
    """Return what clients see of statements about certificates."""
    return [StatementView.model_validate(facts) for facts in statements]


@router.get("/certificates", responses=problems(401, 403))
def list_certificates(
    service: Serving,
    state: CertificateState | None = None,
    verdict: Decision | None = None,
    model: Annotated[str | None, Query(max_length=100)] = None,
    text: Annotated[str, Query(max_length=64, description="what its digest begins with")] = "",
    limit: Limit = 50,
    before: Annotated[int | None, Query(ge=0, le=2**53, description="`next` of the page before")] = None,
) -> CertificatePage:
    """List certificates, the last logged first, as of the last scan of the store."""
    page: list[CertificateView] = []
    for facts, status in service.certificates:
        listed = (before is None or facts.index < before) and facts.digest.startswith(text)
        wanted = state in (None, status.state) and verdict in (None, status.decision)
        if listed and wanted and model in (None, facts.model):
            if len(page) == limit:
                return CertificatePage(certificates=page, next=page[-1].index)
            page.append(certificate_view(facts, status))
    return CertificatePage(certificates=page, next=None)


@router.get("/certificates/{digest}", responses=problems(401, 403, 404, 409))
def show_certificate(digest: Digest, service: Serving) -> CertificateDetail:
    """Return a certificate and its state. Do not rely on that: `mbd verify` needs only the store and a trust file."""
    view, history = certificate_view(*service.certificate(digest)), service.history
    predicate = history.certificate(digest).predicate
    return CertificateDetail(
        **view.model_dump(),
        issuer=predicate.issuer,
        copies=COPIES[(last_erasure(history, digest) or predicate.erasure).claim],
        statements=statement_views(history.about(digest)),
    )


@router.get("/certificates/{digest}/page", response_class=HTMLResponse, responses=problems(401, 403, 404, 409))
def certificate_html(digest: Digest, service: Serving) -> str:
    """Return the page of a certificate, which verifies it in the browser."""
    from mbd.report.page.html import to_html  # noqa: PLC0415 -- only where a page is asked for

    return to_html(service.page(digest))
