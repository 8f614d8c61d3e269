"""The published part of the store, read-only, under the names that it has there: `mbd verify URL/store/…` reads it.

Only names of the published layout are served (:mod:`mbd.formats.layout`), so nothing private is reachable. What can
never change under its name is cached for good: objects and envelopes, which are named by their digest, and full tiles.
All else is checked with the server each time. Weights are served only if `serving.weights` says so; an object counts as
weights if it is a safetensors file with a tensor of numbers that are not whole.
"""

import hashlib
import json
import re
import struct
from collections.abc import Iterator
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse

from mbd.errors import DataError
from mbd.formats.layout import object_name
from mbd.serving.identity import readable
from mbd.serving.problems import ApiError
from mbd.serving.routes import Serving, problems
from mbd.serving.service import Service
from mbd.storage.store import NotThereError, StoredObject, check_name

router = APIRouter(tags=["store"], dependencies=[readable("store")])
FOREVER = "public, max-age=31536000, immutable"
CHECKED = "no-cache"
_HEX = "[0-9a-f]{64}"
_OBJECT = re.compile(object_name(f"({_HEX})"))
_ENVELOPE = re.compile(f"certificates/{_HEX}/certificate\\.json")
_FULL_TILE = re.compile(r"log/tile/(?:[0-9]+|entries)/(?:x[0-9]{3}/)*[0-9]{3}")
_OTHER = re.compile(rf"certificates/{_HEX}/proof\.json|log/[A-Za-z0-9._/-]+|latest/[^/]+/[^/]+")
_WHOLE = {"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "BOOL"}
_LARGEST_HEADER = 1 << 20


@router.get(
    "/store/{name:path}",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {}}, "description": "the object"},
        304: {"description": "the client has it already"},
        **problems(401, 403, 404),
    },
)
@router.head("/store/{name:path}", include_in_schema=False)
def read(name: Annotated[str, Path(max_length=800)], request: Request, service: Serving) -> Response:
    """Return an object of the published part of the store."""
    try:
        check_name(name)
        if of_digest := _OBJECT.fullmatch(name):
            return _object(service, name, of_digest[1], request)
        if not any(pattern.fullmatch(name) for pattern in (_ENVELOPE, _FULL_TILE, _OTHER)):
            raise _absent()
        content = service.store.read(name)
    except (NotThereError, DataError) as error:  # it is not there, or not a name of an object
        raise _absent() from error
    forever = _ENVELOPE.fullmatch(name) or _FULL_TILE.fullmatch(name)
    headers = _headers(hashlib.sha256(content).hexdigest(), FOREVER if forever else CHECKED)
    if _unchanged(request, headers):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_media_type(name), headers=headers)


def _object(service: Service, name: str, digest: str, request: Request) -> Response:
    """Return an object by its digest, in pieces: it may be large."""
    stored = service.store.stat(name)
    if stored is None or (not service.params.serving.weights and _is_weights(service, stored)):
        raise _absent()
    headers = _headers(digest, FOREVER)
    if _unchanged(request, headers):
        return Response(status_code=304, headers=headers)
    headers["Content-Length"] = str(stored.size)
    if request.method == "HEAD":
        return Response(headers=headers, media_type=_media_type(name))
    pieces = service.store.pieces(stored)
    first = next(pieces, b"")  # an error comes before the answer has begun
    return StreamingResponse(chain((first,), pieces), headers=headers, media_type=_media_type(name))


def _headers(digest: str, cache: str) -> dict[str, str]:
    return {"ETag": f'"{digest}"', "Cache-Control": cache, "Content-Security-Policy": "default-src 'none'; sandbox"}


def _unchanged(request: Request, headers: dict[str, str]) -> bool:
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    return headers["ETag"] in known


def _media_type(name: str) -> str:
    return "application/json" if name.endswith(".json") else "application/octet-stream"


def _absent() -> ApiError:
    return ApiError(404, "the published part of the store has no such object")


def _is_weights(service: Service, stored: StoredObject) -> bool:
    """Whether an object holds weights, by its content: its digest names it, so the answer never changes."""
    if stored.name not in service.weights:
        service.weights[stored.name] = _has_numbers(service.store.pieces(stored), stored.size)
    return service.weights[stored.name]


def _has_numbers(pieces: Iterator[bytes], size: int) -> bool:
    """Whether a file is in the format safetensors and has tensors of other than whole numbers."""
    start = b""
    while len(start) < 8 + _LARGEST_HEADER and (piece := next(pieces, b"")):
        start += piece
    if len(start) < 9 or start[8:9] != b"{":
        return False
    (length,) = struct.unpack("<Q", start[:8])
    if length > size - 8:
        return False
    try:
        header = json.loads(start[8 : 8 + length])
        kinds = {tensor["dtype"] for key, tensor in header.items() if key != "__metadata__"}
    except (ValueError, TypeError, KeyError, AttributeError):
        return True  # it looks like one and cannot be read: better not
    return not kinds <= _WHOLE
