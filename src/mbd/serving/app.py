"""The application: routes, errors, limits and logs around one :class:`~mbd.serving.service.Service`.

    service = Service.open(params, store, trust_file)
    app = create_app(service)             # everything
    app = exporter_app(service)           # health and metrics alone

The OpenAPI document is at `/openapi.json`, and readable at `/docs`: errors as they are sent, no token where none is
needed, and an example of each operation.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from mbd import __version__
from mbd.monitoring.samples import Samples
from mbd.params.platform import PUBLIC, OidcSettings
from mbd.serving import problems
from mbd.serving.identity import Gatekeeper, readable
from mbd.serving.middleware import RequestContext
from mbd.serving.routes import console, events, health, log, overview, requests, store
from mbd.serving.service import Service
from mbd.serving.tokens import TokenFile

_DESCRIPTION = "Requests to delete a modality from a model, their certificates, and the store they are published in."
_PROBLEM = {"$ref": f"#/components/schemas/{problems.Problem.__name__}"}


def create_app(service: Service) -> FastAPI:
    """Return the application of a service, which is started and stopped with it."""
    settings = service.params.serving
    gatekeeper = Gatekeeper(TokenFile(Path(settings.tokens)), settings.oidc, settings.public)
    # Every router of the application is included here, and nowhere else.
    parts = (requests, log, overview, events, health, console, store)
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
    app.openapi = lambda: _openapi_document(app)  # type: ignore[method-assign]
    return app


def _openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application, which is made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        gatekeeper: Gatekeeper = app.state.gatekeeper
        schemas = document["components"]["schemas"]
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                _complete(operation, gatekeeper)
                schema = (
                    operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
                )
                body = schemas.get(schema.get("$ref", "").rpartition("/")[2], {}).get("examples", [None])[0]
                operation["description"] += _example(method, path, body, token="security" in operation)
        app.openapi_schema = document
    return app.openapi_schema


def _complete(operation: dict[str, Any], gatekeeper: Gatekeeper) -> None:
    """Describe the errors of an operation, its access, and in one sentence what it does."""
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            answer = problems.answer(
                {"state": {"request_id": "0f1e2d3c4b5a6978"}}, int(status), response["description"]
            )
            example = json.loads(bytes(answer.body))
            response["content"] = {problems.MEDIA_TYPE: {"schema": _PROBLEM, "example": example}}
    tags = operation.get("tags", [])
    if any(gatekeeper.is_public(what) for what in PUBLIC if what in tags):
        operation["security"] = [{}, *operation.get("security", ())]
    operation["tags"] = tags[:1]  # the others only say what is public
    operation.setdefault("description", operation["summary"])
    operation["summary"] = re.split(r"[.:;](?:\s|$)", operation["description"], maxsplit=1)[0]


def _example(method: str, path: str, body: object, *, token: bool) -> str:
    """Return an example of an operation in curl and in Python, as Markdown; `token`: one may be needed."""
    place = re.sub(r"\{(\w+)[^}]*\}", lambda name: name[1].upper(), path)
    curl = ["curl", *(['-H "Authorization: Bearer $MBD_TOKEN"'] if token else [])]
    python = [f'URL + "{place}"', *(['headers={"Authorization": f"Bearer {TOKEN}"}'] if token else [])]
    if method == "post":
        curl.append("-X POST" if body is None else f"--json '{json.dumps(body)}'")
        python += [] if body is None else [f"json={body!r}"]
    curl.append(f'"$MBD_URL{place}"')
    call = f"requests.{method}({', '.join(python)}, timeout=30)"
    return f"\n\n```sh\n{' '.join(curl)}\n```\n\n```python\n{call}\n```"
