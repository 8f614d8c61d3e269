"""Certificates with their state, their pages, and models: what each takes, what is revoked for it."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from mbd.history.facts import CertificateFacts, RegistrationFacts
from mbd.history.state import CertificateState, Status
from mbd.names import problem_with
from mbd.serving.identity import readable
from mbd.serving.problems import ApiError
from mbd.serving.routes import Limit, Serving, problems
from mbd.urls import without_paths

router = APIRouter(tags=["certificates", "store"], dependencies=[readable("store")])
_HEX = r"^[0-9a-f]{64}$"
Digest = Annotated[str, Path(pattern=_HEX, description="SHA-256 of the certificate")]


class CertificateView(BaseModel):
    """A certificate and its state by the log."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    digest: str
    index: int
    """in the log"""
    model: str
    modalities: list[str]
    """what was deleted"""
    scope: str
    guarantee: Annotated[str, Field(validation_alias="kind")]
    epsilon: float | None
    inputs: list[str]
    """what its model takes"""
    weights: str
    issued: datetime
    state: CertificateState
    reason: str
    reaudit_by: datetime
    page: str
    """address of its page"""


class CertificatePage(BaseModel):
    """A page of certificates, the last logged first."""

    certificates: list[CertificateView]
    next: int | None


class RegistrationView(BaseModel):
    """A model that was registered after its training."""

    model_config = ConfigDict(use_attribute_docstrings=True, from_attributes=True)

    digest: str
    """SHA-256 of the signed statement"""
    index: int
    """in the log"""
    weights: str
    issued: datetime


class ModelView(BaseModel):
    """What the log says of a model name."""

    model_config = ConfigDict(use_attribute_docstrings=True)

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


class ModelList(BaseModel):
    """All models."""

    models: list[ModelView]


def certificate_view(facts: CertificateFacts, status: Status) -> CertificateView:
    """Return what clients see of a certificate."""
    now = {"state": status.state, "reason": without_paths(status.reason), "reaudit_by": status.reaudit_by}
    return CertificateView.model_validate(asdict(facts) | now | {"page": f"/certificates/{facts.digest}/page"})


@router.get("/certificates", responses=problems(401, 403))
def list_certificates(
    service: Serving,
    state: CertificateState | None = None,
    model: Annotated[str | None, Query(max_length=100)] = None,
    limit: Limit = 50,
    before: Annotated[int | None, Query(ge=0, le=2**53, description="`next` of the page before")] = None,
) -> CertificatePage:
    """List certificates, the last logged first, as of the last scan of the store."""
    page: list[CertificateView] = []
    for facts, status in service.certificates:
        if (before is None or facts.index < before) and model in (None, facts.model) and state in (None, status.state):
            if len(page) == limit:
                return CertificatePage(certificates=page, next=page[-1].index)
            page.append(certificate_view(facts, status))
    return CertificatePage(certificates=page, next=None)


@router.get("/certificates/{digest}", responses=problems(401, 403, 404))
def show_certificate(digest: Digest, service: Serving) -> CertificateView:
    """Return a certificate and its state. Do not rely on that: `mbd verify` needs only the store and a trust file."""
    return certificate_view(*service.certificate(digest))


@router.get("/certificates/{digest}/page", response_class=HTMLResponse, responses=problems(401, 403, 404))
def certificate_html(digest: Digest, service: Serving) -> str:
    """Return the page of a certificate, which verifies it in the browser."""
    from mbd.report.page.html import to_html  # noqa: PLC0415 -- only where a page is asked for

    return to_html(service.page(digest))


@router.get("/models", responses=problems(401, 403))
def list_models(service: Serving) -> ModelList:
    """List all models."""
    return ModelList(models=[_model(service, name) for name in service.models()])


@router.get("/models/{name}", responses=problems(401, 403, 404))
def show_model(name: Annotated[str, Path(max_length=100)], service: Serving) -> ModelView:
    """Return a model: its current release, what is revoked for it, its references."""
    if problem_with(name) or name not in service.models():
        raise ApiError(404, "there is no model of this name", known=service.models())
    return _model(service, name)


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
