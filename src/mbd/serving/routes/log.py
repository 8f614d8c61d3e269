"""What the log says: certificates with their state, their pages and what was said about each since, and models.

A model is what it takes, what is revoked for it, and its releases in the order of the log.
"""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse

from mbd.formats.predicate import Issuer
from mbd.formats.verdict import Decision
from mbd.history.facts import CertificateFacts, Effect, Kind, RegistrationFacts, Release, StatementFacts
from mbd.history.state import CertificateState, Status, last_erasure
from mbd.records import problem_with
from mbd.serving.identity import readable
from mbd.serving.problems import ApiError, View
from mbd.serving.routes import Limit, Serving, Words, problems
from mbd.serving.service import Service

router = APIRouter(dependencies=[readable("store")])
_certificates, _models = APIRouter(tags=["certificates", "store"]), APIRouter(tags=["models", "store"])
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
    guarantee_words: str
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


@_certificates.get("/certificates", responses=problems(401, 403))
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


@_certificates.get("/certificates/{digest}", responses=problems(401, 403, 404, 409))
def show_certificate(digest: Digest, service: Serving) -> CertificateDetail:
    """Return a certificate and its state. Do not rely on that: `mbd verify` needs only the store and a trust file."""
    view, history = certificate_view(*service.certificate(digest)), service.history
    predicate = history.certificate(digest).predicate
    return CertificateDetail(
        **view.model_dump(),
        issuer=predicate.issuer,
        guarantee_words=predicate.guarantee.words,
        copies=(last_erasure(history, digest) or predicate.erasure).words,
        statements=statement_views(history.about(digest)),
    )


@_certificates.get("/certificates/{digest}/page", response_class=HTMLResponse, responses=problems(401, 403, 404, 409))
def certificate_html(digest: Digest, service: Serving) -> str:
    """Return the page of a certificate, which verifies it in the browser."""
    from mbd.report.page.html import to_html  # noqa: PLC0415 -- only where a page is asked for

    return to_html(service.page(digest))


class RegistrationView(View):
    """A model that was registered after its training."""

    digest: str
    """SHA-256 of the signed statement"""
    index: int
    """in the log"""
    weights: str
    issued: datetime


class ModelView(View):
    """What the log says of a model name."""

    name: str
    takes: list[str]
    """modalities that its current release takes, or the trained model before any release"""
    revoked: list[str]
    """modalities that no release of this name may take"""
    current: CertificateView | None
    """certificate of the current release; null: it has none"""
    registered: RegistrationView | None
    """registration of the current release; null: it is certified, or there is none"""
    references: dict[str, str | None]
    """for each modality that it takes, SHA-256 of the weights of a registered model that never saw it; null: none is"""
    certificates: int


class ModelList(View):
    """All models."""

    models: list[ModelView]


class ReleaseView(View):
    """A model that was published under a name: registered, or certified after a deletion."""

    digest: str
    """SHA-256 of the signed statement"""
    index: int
    """in the log"""
    issued: datetime
    takes: list[str]
    weights: str
    current: bool
    promoted: bool
    """whether it could become the current release"""
    certificate: CertificateView | None
    """null: it was registered, not certified"""


class ModelDetail(ModelView):
    """What the log says of a model name, with all its releases and what was said about their certificates."""

    releases: list[ReleaseView]
    """in the log's order"""
    statements: list[StatementView]
    """in the log's order"""


@_models.get("/models", responses=problems(401, 403))
def list_models(service: Serving) -> ModelList:
    """List all models."""
    return ModelList(models=[_model(service, name) for name in service.models()])


@_models.get("/models/{name}", responses=problems(401, 403, 404))
def show_model(name: Annotated[str, Path(max_length=100)], service: Serving) -> ModelDetail:
    """Return a model: its releases, what is revoked for it, its references."""
    if problem_with(name) or name not in service.models():
        raise ApiError(404, "there is no model of this name", known=service.models())
    known = service.history.model(name)
    about = (facts for certificate in known.certificates for facts in service.history.about(certificate.digest))
    return ModelDetail(
        **_model(service, name).model_dump(),
        releases=[_release(service, release, current=release == known.current) for release in known.releases],
        statements=statement_views(sorted(about, key=lambda facts: facts.index)),
    )


def _model(service: Serving, name: str) -> ModelView:
    known = service.history.model(name)
    current, certificate, registration = known.current, None, None
    if isinstance(current, RegistrationFacts):
        registration = RegistrationView.model_validate(current)
    elif current is not None:
        certificate = certificate_view(*service.certificate(current.digest))
    return ModelView(
        name=name,
        takes=list(current.inputs if current else service.base.get(name, ())),
        revoked=sorted(known.revoked),
        current=certificate,
        registered=registration,
        references={modality: found.weights if found else None for modality, found in known.references.items()},
        certificates=len(known.certificates),
    )


def _release(service: Service, release: Release, *, current: bool) -> ReleaseView:
    promoted, certificate = True, None
    if isinstance(release, RegistrationFacts):
        promoted = release.promoted
    else:
        certificate = certificate_view(*service.certificate(release.digest))
    more = {"takes": release.inputs, "current": current, "promoted": promoted, "certificate": certificate}
    return ReleaseView.model_validate(asdict(release) | more)


router.include_router(_certificates)
router.include_router(_models)
