"""What the HTTP interface keeps: access tokens as hashes (each is shown once), and what webhooks have received."""

from typing import Annotated, Literal, get_args

from pydantic import AwareDatetime, Field

from mbd.records import Digest, Name, Record, Time

Role = Literal["submit", "operate", "read"]
ROLES: tuple[Role, ...] = get_args(Role)


class AccessToken(Record):
    """One token."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    """public part of the token: it finds the entry, and gives no access"""
    name: Name
    """who holds it; a rotated token keeps the name"""
    roles: Annotated[tuple[Role, ...], Field(min_length=1)]
    sha256: Digest
    """of the whole token, which holds 256 random bits"""
    created: Time
    expires: Time | None = None


class AccessTokens(Record):
    """The contents of `tokens.json`."""

    format: Literal["urn:missing-by-design:access-tokens:v1"] = "urn:missing-by-design:access-tokens:v1"
    tokens: tuple[AccessToken, ...] = ()


EventId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}-[0-9]{1,6}$")]


class WebhookState(Record):
    """The contents of `webhooks/ID.json` in the private part of a store."""

    format: Literal["urn:missing-by-design:webhook:v1"] = "urn:missing-by-design:webhook:v1"
    since: AwareDatetime
    """earlier events are done with"""
    delivered: tuple[EventId, ...] = ()
    """events from `since` on that it has received or refused"""
    replays: int = 0
    """how often `since` was moved back: an event that was under way meanwhile is sent again"""
