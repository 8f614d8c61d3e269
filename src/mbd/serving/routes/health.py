"""About the server itself: health, metrics, and the console, one page for people that fetches nothing from elsewhere.

/metrics    the result of the last scan, metrics about the scan itself, durations of HTTP requests, inference
/healthz    200 while the store monitor is running
/readyz     200 once the first scan has ended; a store that is unreachable shows as `mbd_store_up 0`
"""

from importlib.resources import files

from fastapi import APIRouter, Request, Response
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
def healthz(service: Serving) -> str:
    """Whether the server works: its store monitor is running."""
    if not service.monitor.alive:
        raise ApiError(503, "the store monitor is not running", hint="restart the server")
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse, responses=problems())
def readyz(service: Serving) -> str:
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
def metrics(request: Request) -> str:
    """Metrics in the text format of Prometheus."""
    return "".join(text() for text in request.app.state.metrics)


console = APIRouter(include_in_schema=False)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


def _serve_file(path: str, name: str, media_type: str) -> None:
    content = files("mbd.serving").joinpath("console", name).read_bytes()
    headers = {"Cache-Control": "no-cache", "Content-Security-Policy": _POLICY}

    @console.get(path)
    def read() -> Response:
        return Response(content, media_type=f"{media_type}; charset=utf-8", headers=headers)


_serve_file("/", "console.html", "text/html")
_serve_file("/console.css", "console.css", "text/css")
_serve_file("/console.js", "console.js", "text/javascript")
