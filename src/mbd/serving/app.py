"""The application: routes, errors, limits and logs around one :class:`~mbd.serving.service.Service`.

    service = Service.open(params, store, trust_file)
    app = create_app(service)             # everything
    app = exporter_app(service)           # health and metrics alone

The OpenAPI document is at `/openapi.json`.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from mbd import __version__
from mbd.monitoring.samples import Samples
from mbd.params.serving import PUBLIC, OidcSettings
from mbd.serving import problems
from mbd.serving.identity import Gatekeeper, readable
from mbd.serving.middleware import RequestContext
from mbd.serving.routes import certificates, events, health, requests, store
from mbd.serving.service import Service
from mbd.serving.tokens import TokenFile

_PROBLEM = {"$ref": f"#/components/schemas/{problems.Problem.__name__}"}
_DESCRIPTION = "Requests to delete a modality from a model, their certificates, and the store they are published in."


def create_app(service: Service) -> FastAPI:
    """Return the application of a service, which is started and stopped with it."""
    settings = service.params.serving
    gatekeeper = Gatekeeper(TokenFile(Path(settings.tokens)), settings.oidc, settings.public)
    # Every router of the application is included here, and nowhere else.
    routers = [requests.router, certificates.router, store.router, events.router, health.router, health.console]
    if not settings.inference.models:
        return _app(service, gatekeeper, routers)
    from mbd.serving.inference import InferenceService, router  # noqa: PLC0415 -- loads torch

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
    app.state.metrics = (service.metrics, samples.text, *metrics)
    app.add_middleware(RequestContext, settings=service.params.serving, gatekeeper=gatekeeper, samples=samples)
    problems.install(app)
    for router in routers:
        app.include_router(router)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document: errors as they are sent, and no token where none is needed."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        gatekeeper: Gatekeeper = app.state.gatekeeper
        for path in document["paths"].values():
            for operation in path.values():
                for status, response in operation["responses"].items():
                    if int(status) >= 400:
                        response["content"] = {problems.MEDIA_TYPE: {"schema": _PROBLEM}}
                if any(gatekeeper.is_public(what) for what in PUBLIC if what in operation.get("tags", ())):
                    operation["security"] = [{}, *operation.get("security", ())]
        app.openapi_schema = document
    return app.openapi_schema
