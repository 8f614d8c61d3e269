"""The routes, by what they are about: each module has a `router`. Here is what they share."""

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from pydantic import AfterValidator

from mbd.serving.problems import TITLES, Problem
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
    described = (*statuses, 408, 413, 422, 429, 503)
    return {status: {"model": Problem, "description": TITLES[status][1]} for status in described}
