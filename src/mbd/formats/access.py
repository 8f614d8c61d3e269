"""The file of access tokens: who may do what over HTTP. It holds hashes; a token itself is shown once."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from mbd.names import Name
from mbd.records import Digest, Record, Time

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
