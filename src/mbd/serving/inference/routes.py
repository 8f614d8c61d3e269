"""The endpoints of the Open Inference Protocol.

    GET  /v2                                    the server and its extensions
    GET  /v2/health/live, /v2/health/ready      200 while the threads run; 200 once a model can answer
    GET  /v2/models/NAME[/versions/V]           inputs and outputs of the release that is served
    GET  /v2/models/NAME[/versions/V]/ready     200 if it can answer
    POST /v2/models/NAME[/versions/V]/infer     inference

A version is the SHA-256 of the signed statement that released the model. An error is a problem (RFC 9457) that also has
the member `error`, which clients of the protocol read.
"""

import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from mbd import __version__
from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.serving.inference.errors import MEDIA_TYPE, InferenceError
from mbd.serving.inference.protocol import HEADER, parse_request, render_answer
from mbd.serving.inference.schemas import ANSWERS, FAILURES, REQUEST_BODY
from mbd.serving.inference.served import Serving, Unavailable
from mbd.serving.inference.service import InferenceService

_BINARY = "application/octet-stream"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def router(service: InferenceService) -> APIRouter:
    """Return the endpoints; the service runs as long as the application that includes them."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with service.running():
            yield

    class Route(_ProtocolRoute):
        samples = service.samples
        names = frozenset(service.settings.models)

    made = APIRouter(prefix="/v2", lifespan=lifespan, route_class=Route, tags=["inference"])
    endpoints = _Endpoints(service)
    made.add_api_route("", endpoints.server, summary="The server and its extensions")
    made.add_api_route("/health/live", endpoints.live, summary="Whether it runs", responses=FAILURES)
    made.add_api_route("/health/ready", endpoints.ready, summary="Whether a model can answer", responses=FAILURES)
    for prefix in ("/models/{name}", "/models/{name}/versions/{version}"):
        made.add_api_route(prefix, endpoints.metadata, summary="Inputs and outputs of a model", responses=FAILURES)
        made.add_api_route(f"{prefix}/ready", endpoints.model_ready, summary="Whether it answers", responses=FAILURES)
        made.add_api_route(
            f"{prefix}/infer",
            endpoints.infer,
            methods=["POST"],
            summary="Inference",
            response_class=Response,
            responses=ANSWERS | FAILURES,
            openapi_extra=REQUEST_BODY,
        )
    return made


class _ProtocolRoute(APIRoute):
    """Answers a refused request as the protocol says, and counts it."""

    samples: Samples
    names: frozenset[str]

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except InferenceError as error:
                if request.method == "POST":
                    name = request.path_params.get("name", "")
                    known = name if name in self.names else ""  # a label must not hold what clients make up
                    self.samples.count(metrics.INFERENCE_REFUSED, model=known, reason=error.reason)
                headers = {"Retry-After": "1"} if error.reason in ("overloaded", "unavailable") else None
                problem = error.to_plain() | {"request_id": getattr(request.state, "request_id", "")}
                return JSONResponse(problem, error.status, headers, MEDIA_TYPE)
            except ClientDisconnect:
                return Response(status_code=400)

        return answer


class _Endpoints:
    """What each endpoint does."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service

    async def server(self) -> dict[str, Any]:
        return {"name": "missing-by-design", "version": __version__, "extensions": ["binary_tensor_data"]}

    async def live(self) -> dict[str, bool]:
        if not self._service.alive:
            raise InferenceError("unavailable", "a thread of the server has ended")
        return {"live": True}

    async def ready(self) -> dict[str, bool]:
        models = self._service.models
        reasons = {m.name: m.state.reason for m in models if isinstance(m.state, Unavailable)}
        if models.stale or len(reasons) == len(list(models)):
            raise InferenceError("unavailable", models.stale or "no model can answer", value=reasons)
        return {"ready": True}

    async def metadata(self, name: str, version: str | None = None) -> dict[str, Any]:
        serving = self._service.models.serving(name, version)
        signature = serving.signature
        return {
            "name": name,
            "versions": [serving.release.statement],
            "platform": "missing-by-design",
            "inputs": [
                spec.to_plain(each) for each, spec in signature.inputs.items() if spec.modality not in serving.revoked
            ],
            "outputs": signature.outputs_to_plain(),
            "parameters": {"revoked": dict(serving.revoked)},
        }

    async def model_ready(self, name: str, version: str | None = None) -> dict[str, Any]:
        self._service.models.serving(name, version)
        return {"name": name, "ready": True}

    async def infer(self, request: Request, name: str, version: str | None = None) -> Response:
        settings = self._service.settings
        serving = self._service.models.serving(name, version)
        if request.headers.get("content-encoding", "identity") != "identity":
            raise InferenceError("malformed", "compressed requests are not supported", key="Content-Encoding")
        body = await _read(request, settings.request_bytes)
        start = time.perf_counter()
        parsed = parse_request(body, request.headers.get(HEADER))
        rows = serving.check(parsed.inputs)
        if rows > settings.request_rows:
            raise InferenceError("too_large", f"a request has at most {settings.request_rows} rows", value=rows)
        answer = await self._service.batcher.submit(serving, parsed.inputs, rows)
        version = _version_for(answer.serving, version)
        content, length = render_answer(parsed, name, version, answer.outputs)
        self._service.samples.observe(metrics.INFERENCE_SECONDS, time.perf_counter() - start, model=name)
        if length is None:
            return Response(content, media_type="application/json")
        return Response(content, media_type=_BINARY, headers={HEADER: str(length)})


def _version_for(serving: Serving, asked: str | None) -> str:
    """Return the version that has answered; refuse if another one was asked for, which was replaced meanwhile."""
    if asked not in (None, serving.release.statement):
        raise InferenceError("unknown_model", "this version is no longer served", hint=serving.release.statement)
    return serving.release.statement


async def _read(request: Request, most: int) -> bytes:
    """Return the body of a request; an InferenceError as soon as it is too large."""
    refusal = InferenceError("too_large", f"the body of a request has at most {most} bytes", hint="send fewer rows")
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length[:20]) > most:
        raise refusal
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise refusal
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
