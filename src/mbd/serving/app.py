"""The application: routes, errors, limits and logs around one :class:`~mbd.serving.service.Service`.

    service = Service.open(params, store, trust_file)
    app = create_app(service)             # everything
    app = exporter_app(service)           # health and metrics alone

The OpenAPI document is at `/openapi.json`, and readable at `/docs`.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import CapacityLimiter
from fastapi import APIRouter, FastAPI

from mbd import __version__
from mbd.monitoring.samples import Samples
from mbd.params.serving import OidcSettings
from mbd.serving import problems
from mbd.serving.identity import Gatekeeper, readable
from mbd.serving.middleware import RequestContext
from mbd.serving.openapi import openapi_document
from mbd.serving.routes import certificates, console, events, health, models, overview, requests, store
from mbd.serving.service import Service
from mbd.serving.tokens import TokenFile

_DESCRIPTION = "Requests to delete a modality from a model, their certificates, and the store they are published in."


def create_app(service: Service) -> FastAPI:
    """Return the application of a service, which is started and stopped with it."""
    settings = service.params.serving
    gatekeeper = Gatekeeper(TokenFile(Path(settings.tokens)), settings.oidc, settings.public)
    # Every router of the application is included here, and nowhere else.
    parts = (requests, certificates, models, overview, store, events, health, console)
    routers = [part.router for part in parts]
    if not settings.inference.models:
        return _app(service, gatekeeper, routers)
    from mbd.serving.inference.routes import InferenceService, router  # noqa: PLC0415 -- loads torch

    inference, guarded = InferenceService(service.params, service.store, service.trust_file), APIRouter()
    guarded.include_router(router(inference), dependencies=[readable("inference")])
    return _app(service, gatekeeper, [*routers, guarded], inference.samples.text)


def exporter_app(service: Service) -> FastAPI:
    """Return an application with health and metrics alone, without tokens."""
    nothing = Gatekeeper(TokenFile(Path(service.params.serving.tokens)), OidcSettings(), ("metrics",))
    return _app(service, nothing, (health.router,))


def _app(
    service: Service, gatekeeper: Gatekeeper, routers: Sequence[APIRouter], *metrics: Callable[[], str]
) -> FastAPI:
    """Return the application with these routers; `metrics`: further metrics in the text format of Prometheus."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    app = FastAPI(
        title="Missing-by-Design",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # its script would come from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    samples = Samples()
    app.state.service, app.state.gatekeeper = service, gatekeeper
    app.state.metrics_thread = CapacityLimiter(1)  # a place among the threads that other requests cannot take
    app.state.metrics = (service.metrics, samples.text, *metrics)
    app.add_middleware(RequestContext, settings=service.params.serving, gatekeeper=gatekeeper, samples=samples)
    problems.install(app)
    for router in routers:
        app.include_router(router)
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign]
    return app
