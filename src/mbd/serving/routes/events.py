"""Changes of requests as server-sent events, and webhooks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import AwareDatetime, BeforeValidator, ConfigDict

from mbd.serving.identity import role
from mbd.serving.problems import View
from mbd.serving.request_index import RequestEvent
from mbd.serving.routes import Serving, problems

router = APIRouter(tags=["events"])
_LOOK_SECONDS = 0.5
_MOST_WAITING = 1000


class WebhookView(View):
    """A webhook; not its URL, which can hold a secret."""

    id: str
    pending: int
    """events that it has not accepted yet"""
    failures: int
    """posts that failed since the server was started"""


class WebhookList(View):
    """All webhooks."""

    webhooks: list[WebhookView]


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("a time is written as 2026-01-31T12:00:00Z")
    return value


class Replay(View):
    """From when on events are sent again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"since": "2026-01-31T12:00:00Z"}]})

    since: Annotated[AwareDatetime, BeforeValidator(_text)]


class Replayed(View):
    """How many events are sent again."""

    events: int
    since: datetime


@router.get("/events", response_class=EventSourceResponse, responses=problems(401, 403), dependencies=[role("read")])
async def events(
    service: Serving, last_event_id: Annotated[str | None, Header(max_length=64)] = None
) -> AsyncIterator[ServerSentEvent]:
    """Follow the changes of requests as server-sent events; `Last-Event-ID` continues an earlier stream."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[RequestEvent](_MOST_WAITING)
    slow = asyncio.Event()  # a client that does not read is given up

    def put(fresh: list[RequestEvent]) -> None:
        for event in fresh:
            if queue.full():
                slow.set()
            else:
                queue.put_nowait(event)

    end = service.index.subscribe(lambda fresh: loop.call_soon_threadsafe(put, fresh))
    try:
        for event in service.index.missed(last_event_id) if last_event_id else ():
            yield _sent(event)
        yield ServerSentEvent(comment="connected")
        while not service.stopping.is_set() and not slow.is_set():
            with suppress(TimeoutError):
                yield _sent(await asyncio.wait_for(queue.get(), _LOOK_SECONDS))
    finally:
        end()


def _sent(event: RequestEvent) -> ServerSentEvent:
    return ServerSentEvent(id=event.id, event=f"request.{event.state}", data=event.document())


@router.get("/webhooks", responses=problems(401, 403), dependencies=[role("operate")])
def list_webhooks(service: Serving) -> WebhookList:
    """List the webhooks, and what each has not accepted yet."""
    views = [WebhookView(id=w.id, pending=len(w.pending()), failures=w.failures) for w in service.webhooks]
    return WebhookList(webhooks=views)


@router.post("/webhooks/replay", status_code=202, responses=problems(400, 401, 403), dependencies=[role("operate")])
def replay(wanted: Replay, service: Serving) -> Replayed:
    """Send all events from a time on to every webhook again."""
    since = wanted.since.replace(microsecond=0)
    return Replayed(events=sum(webhook.replay(since) for webhook in service.webhooks), since=since)
