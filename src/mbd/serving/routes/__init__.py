"""The routes, by what they are about: each module has a `router`. Here is what they share."""

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from pydantic import AfterValidator

from mbd.serving.problems import Problem
from mbd.serving.service import Service
from mbd.urls import without_paths

LARGEST_PAGE = 1000


async def service_of(request: Request) -> Service:
    """Return the service of an application."""
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(service_of)]
Words = Annotated[str, AfterValidator(without_paths)]
"""a reason or note as it was recorded; paths of the machine that recorded it are left out"""
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="largest number of entries in a page")]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of the errors of a route: these, and those that any route can answer with."""
    words = {
        400: "the body cannot be read",
        401: "there is no valid token",
        403: "the token does not have the role",
        404: "there is no such thing",
        408: "the body did not come in time",
        409: "its state does not allow this",
        413: "the body is too large",
        422: "the request is not valid; what there is instead is in `known`",
        429: "too many requests",
        503: "the store cannot be reached",
        507: "the store can be read, but not be written",
    }
    return {status: {"model": Problem, "description": words[status]} for status in (*statuses, 408, 413, 422, 429, 503)}
