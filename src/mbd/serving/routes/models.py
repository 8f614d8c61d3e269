"""Models: what each takes, what is revoked for it, and its releases in the order of the log."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path

from mbd.history.facts import CertificateFacts, RegistrationFacts, Release
from mbd.names import problem_with
from mbd.serving.identity import readable
from mbd.serving.problems import ApiError, View
from mbd.serving.routes import Serving, problems
from mbd.serving.routes.certificates import CertificateView, StatementView, certificate_view, statement_views
from mbd.serving.service import Service

router = APIRouter(tags=["models", "store"], dependencies=[readable("store")])


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


@router.get("/models", responses=problems(401, 403))
def list_models(service: Serving) -> ModelList:
    """List all models."""
    return ModelList(models=[_model(service, name) for name in service.models()])


@router.get("/models/{name}", responses=problems(401, 403, 404))
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
    certified = isinstance(release, CertificateFacts)
    return ReleaseView(
        digest=release.digest,
        index=release.index,
        issued=release.issued,
        takes=list(release.inputs),
        weights=release.weights,
        current=current,
        promoted=isinstance(release, CertificateFacts) or release.promoted,
        certificate=certificate_view(*service.certificate(release.digest)) if certified else None,
    )
