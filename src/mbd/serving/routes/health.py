"""About the server itself: health and metrics.

/metrics    the result of the last scan, metrics about the scan itself, durations of HTTP requests, inference
/healthz    200 while the store monitor is running
/readyz     200 once the first scan has ended; a store that is unreachable shows as `mbd_store_up 0`
"""

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from mbd.serving.identity import readable
from mbd.serving.problems import ApiError
from mbd.serving.routes import Serving, problems

router = APIRouter(tags=["health"])


class MetricsResponse(PlainTextResponse):
    """The text format of Prometheus."""

    media_type = CONTENT_TYPE_PLAIN_0_0_4


@router.get("/healthz", response_class=PlainTextResponse, responses=problems())
async def healthz(service: Serving) -> str:
    """Whether the server works: its store monitor is running."""
    if not service.monitor.alive:
        raise ApiError(503, "the store monitor is not running", hint="restart the server")
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse, responses=problems())
async def readyz(service: Serving) -> str:
    """Whether the server is ready: a first scan of the store has ended."""
    if not service.monitor.scanned.is_set():
        raise ApiError(503, "the first scan of the store has not ended", headers={"Retry-After": "1"})
    return "ok\n"


@router.get(
    "/metrics",
    tags=["metrics"],
    response_class=MetricsResponse,
    responses=problems(401, 403),
    dependencies=[readable("metrics")],
)
async def metrics(request: Request) -> str:
    """Metrics in the text format of Prometheus."""
    state = request.app.state
    return await to_thread.run_sync(lambda: "".join(text() for text in state.metrics), limiter=state.metrics_thread)
