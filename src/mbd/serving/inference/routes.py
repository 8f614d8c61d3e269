"""The model server, and the endpoints of the Open Inference Protocol.

    GET  /v2                                    the server and its extensions
    GET  /v2/health/live, /v2/health/ready      200 while the threads run; 200 once a model can answer
    GET  /v2/models/NAME[/versions/V]           inputs and outputs of the release that is served
    GET  /v2/models/NAME[/versions/V]/ready     200 if it can answer
    POST /v2/models/NAME[/versions/V]/infer     inference

A version is the SHA-256 of the signed statement that released the model. An error is a problem (RFC 9457) that also has
the member `error`, which clients of the protocol read.
"""

import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mbd import __version__
from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.params import Params
from mbd.serving.inference.batching import Batcher
from mbd.serving.inference.protocol import (
    HEADER,
    AnswerDocument,
    InferenceError,
    RequestDocument,
    RequestParser,
    render_answer,
)
from mbd.serving.inference.releases import Poller, ReleaseLog
from mbd.serving.inference.served import ServedModels, Unavailable
from mbd.serving.problems import Problem
from mbd.shredding.private_folder import private_folder
from mbd.storage.store import Store

_SHOWN_FROM_THE_START = (
    metrics.INFERENCE_READY,
    metrics.INFERENCE_SWAPS,
    metrics.INFERENCE_LOADS_FAILED,
    metrics.INFERENCE_SECONDS,
    metrics.INFERENCE_ROWS,
)
"""what has not happened yet is 0, not absent"""
_MEANINGS = {
    400: "The request does not follow the protocol",
    404: "There is no such model or version here",
    413: "The request has too many bytes or rows",
    422: "The model does not take this input, or the modality was revoked",
    500: "The model failed",
    503: "No release of the model is served, or too many requests wait",
}
_FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": meaning} for status, meaning in _MEANINGS.items()
}
_BINARY = "application/octet-stream"
_BYTES = {_BINARY: {"schema": {"type": "string", "format": "binary"}}}


class InferenceService:
    """Serves the models that `serving.inference.models` names, out of one store.

    Args:
        params: Parameters; `serving.inference`, and `certificate.checkpoint_days`.
        store: Where the models are published.
        trust: The trust file; it is read again with each look at the log.

    """

    def __init__(self, params: Params, store: Store, trust: Path) -> None:
        self.settings = params.serving.inference
        self.models = ServedModels(self.settings.models, self.settings.log_seconds)
        self.samples = Samples()
        for metric in _SHOWN_FROM_THE_START:
            for model in self.settings.models:
                self.samples.child(metric, model=model)
        self.batcher = Batcher(self.models, self.settings, self.samples)
        self._releases = ReleaseLog(store, trust, params.certificate.checkpoint_age)
        self._poller: Poller | None = None
        self._parser = RequestParser()

    @property
    def alive(self) -> bool:
        """Whether both background threads are running."""
        return self.batcher.alive and self._poller is not None and self._poller.alive

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within: models are loaded and answer. Fetched files are removed at the end, also those of a killed server."""
        with private_folder(self.settings.folder or tempfile.gettempdir(), "serving.inference.folder") as folder:
            self._poller = Poller(self._releases, self.models, folder, self.settings.poll_seconds, self.samples)
            self.batcher.start()
            self._poller.start()
            try:
                yield
            finally:
                self._poller.stop()
                self.batcher.stop()
                self._parser.stop()

    async def infer(self, request: Request, name: str, version: str | None) -> Response:
        """Answer an inference request."""
        serving = self.models.serving(name, version)
        if request.headers.get("content-encoding", "identity") != "identity":
            raise InferenceError("malformed", "compressed requests are not supported", key="Content-Encoding")
        body = await _read(request, self.settings.request_bytes)
        start = time.perf_counter()
        parsed = await self._parser.parse(body, request.headers.get(HEADER))
        rows = serving.check(parsed.inputs)
        if rows > self.settings.request_rows:
            raise InferenceError("too_large", f"a request has at most {self.settings.request_rows} rows", value=rows)
        answer = await self.batcher.submit(serving, parsed.inputs, rows)
        answer.serving.require(version)  # another one may have taken its place meanwhile
        content, length = render_answer(parsed, name, answer.serving.release.statement, answer.outputs)
        self.samples.observe(metrics.INFERENCE_SECONDS, time.perf_counter() - start, model=name)
        if length is None:
            return Response(content, media_type="application/json")
        return Response(content, media_type=_BINARY, headers={HEADER: str(length)})


def router(service: InferenceService) -> APIRouter:
    """Return the endpoints; the service runs as long as the application that includes them."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with service.running():
            yield

    made = APIRouter(prefix="/v2", lifespan=lifespan, tags=["inference"], responses=_FAILURES)
    model, of_version = "/models/{name}", "/models/{name}/versions/{version}"

    @made.get("", description="The server and its extensions")
    async def server() -> dict[str, Any]:
        return {"name": "missing-by-design", "version": __version__, "extensions": ["binary_tensor_data"]}

    @made.get("/health/live", description="Whether it runs")
    async def live() -> dict[str, bool]:
        if not service.alive:
            raise InferenceError("unavailable", "a thread of the server has ended")
        return {"live": True}

    @made.get("/health/ready", description="Whether a model can answer")
    async def ready() -> dict[str, bool]:
        models = service.models
        reasons = {m.name: m.state.reason for m in models if isinstance(m.state, Unavailable)}
        if models.stale or len(reasons) == len(list(models)):
            raise InferenceError("unavailable", models.stale or "no model can answer", value=reasons)
        return {"ready": True}

    @made.get(of_version, description="Inputs and outputs of a model")
    @made.get(model, description="Inputs and outputs of a model")
    async def metadata(name: str, version: str | None = None) -> dict[str, Any]:
        serving = service.models.serving(name, version)
        inputs = serving.signature.inputs.items()
        return {
            "name": name,
            "versions": [serving.release.statement],
            "platform": "missing-by-design",
            "inputs": [spec.to_plain(each) for each, spec in inputs if spec.modality not in serving.revoked],
            "outputs": serving.signature.outputs_to_plain(),
            "parameters": {"revoked": dict(serving.revoked)},
        }

    @made.get(f"{of_version}/ready", description="Whether it answers")
    @made.get(f"{model}/ready", description="Whether it answers")
    async def model_ready(name: str, version: str | None = None) -> dict[str, Any]:
        service.models.serving(name, version)
        return {"name": name, "ready": True}

    answers: dict[int | str, dict[str, Any]] = {
        200: {"model": AnswerDocument, "description": "The outputs", "content": _BYTES}
    }
    schema = _inline(RequestDocument.model_json_schema())
    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}, **_BYTES}}}

    @made.post(f"{of_version}/infer", description="Inference", responses=answers, openapi_extra=body)
    @made.post(f"{model}/infer", description="Inference", responses=answers, openapi_extra=body)
    async def infer(request: Request, name: str, version: str | None = None) -> Response:
        try:
            return await service.infer(request, name, version)
        except InferenceError as error:
            known = name if name in service.settings.models else ""  # a label must not hold what clients make up
            service.samples.count(metrics.INFERENCE_REFUSED, model=known, reason=error.reason)
            raise

    return made


def _inline(schema: Any, definitions: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 -- a part of a JSON schema
    """Return a JSON schema with its definitions where they are used, as a part of a larger document needs it."""
    if isinstance(schema, list):
        return [_inline(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = definitions or schema.get("$defs", {})
    if "$ref" in schema:
        return _inline(known[schema["$ref"].rpartition("/")[2]], known)
    return {key: _inline(value, known) for key, value in schema.items() if key != "$defs"}


async def _read(request: Request, most: int) -> bytes:
    """Return the body of a request, whose size is limited where it is received (:mod:`mbd.serving.connections`)."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise HTTPException(400) from error
    except HTTPException as error:
        if error.status_code != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise
        problem = f"the body of a request has at most {most} bytes"
        raise InferenceError("too_large", problem, hint="send fewer rows") from error
