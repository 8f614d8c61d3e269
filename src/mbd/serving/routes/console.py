"""The console: one page for people, with its style and script; nothing is fetched from elsewhere."""

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


@cache
def _file(name: str) -> bytes:
    return files("mbd.serving").joinpath("console", name).read_bytes()


def _answer(name: str) -> Response:
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(
        _file(name),
        media_type=f"{kind}; charset=utf-8",
        headers={"Cache-Control": "no-cache", "Content-Security-Policy": _POLICY},
    )


@router.get("/")
def page() -> Response:
    """Return the page."""
    return _answer("console.html")


@router.get("/console.css")
def style() -> Response:
    """Return its style."""
    return _answer("console.css")


@router.get("/console.js")
def script() -> Response:
    """Return its script."""
    return _answer("console.js")
