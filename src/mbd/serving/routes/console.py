"""The console, pages for people, and the description of the interface at /docs. Nothing is fetched from elsewhere.

The console is one HTML file with a template for each page; its script fills them with what the HTTP interface answers.
The description is Swagger UI out of the package `fastapi-offline`, of which nothing else is used.
"""

import re
from dataclasses import asdict
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from mbd.formats.verdict import VERDICTS
from mbd.serving.problems import ApiError

router = APIRouter(include_in_schema=False)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_OWN, _SWAGGER = "mbd.serving.console", "fastapi_offline.static"
_ASSETS = {
    **dict.fromkeys(("console.css", "console.js", "dom.js", "chart.js", "pages.js", "docs.css", "docs.js"), _OWN),
    **dict.fromkeys(("swagger-ui.css", "swagger-ui-bundle.js"), _SWAGGER),
}
_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript"}


@router.get("/")
@router.get("/console/{page:path}")
def read_console() -> Response:
    """Return the console, which finds the page in its address."""
    return _read(_OWN, "console.html")


@router.get("/store/certificates/{digest}")
def redirect_to_page(digest: str) -> RedirectResponse:
    """Lead who opens the address of a certificate, as it is printed on it, to its page."""
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise ApiError(404, "there is nothing at this address")
    return RedirectResponse(f"/console/certificates/{digest}")


@router.get("/docs")
def read_docs() -> Response:
    """Return the description of the interface."""
    return _read(_OWN, "docs.html")


@router.get("/assets/verdicts.json")
def read_verdicts() -> dict[str, dict[str, str | int | bool]]:
    """Return the table of verdicts."""
    return {word: asdict(rules) for word, rules in VERDICTS.items()}


@router.get("/assets/{name}")
def read_asset(name: str) -> Response:
    """Return a script or a style sheet of these pages."""
    if name not in _ASSETS:
        raise ApiError(404, "there is nothing at this address")
    return _read(_ASSETS[name], name)


@cache
def _read(package: str, name: str) -> Response:
    media_type = f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
    headers = {"Cache-Control": "no-cache", "Content-Security-Policy": _POLICY}
    return Response(files(package).joinpath(name).read_bytes(), media_type=media_type, headers=headers)
