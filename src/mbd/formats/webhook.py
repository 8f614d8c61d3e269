"""What is kept of a webhook: up to where it has received the events of requests."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from mbd.records import Record

EventId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}-[0-9]{1,6}$")]


class WebhookState(Record):
    """The contents of `webhooks/ID.json` in the private part of a store."""

    format: Literal["urn:missing-by-design:webhook:v1"] = "urn:missing-by-design:webhook:v1"
    since: AwareDatetime
    """earlier events are done with"""
    delivered: tuple[EventId, ...] = ()
    """events from `since` on that it has received or refused"""
