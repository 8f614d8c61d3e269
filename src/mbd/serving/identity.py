"""Who makes a request, and what they may do.

    submit     enter a request, and look at one by its id
    operate    cancel requests, and send events to webhooks again
    read       list requests, certificates and models, follow events, read metrics

A token has one or several roles, and none includes another. A bearer token is one of `mbd serve token`, or, with
`serving.oidc`, a JWT of an OpenID provider: signed by a key of its JWKS with an asymmetric algorithm, for this
audience, by this issuer, not expired.
"""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from mbd.errors import MbdError, UsageError
from mbd.formats.access import ROLES, Role
from mbd.params.platform import OidcSettings, Public
from mbd.records import now
from mbd.serving.problems import ApiError
from mbd.serving.tokens import TokenFile

if TYPE_CHECKING:
    import jwt

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""asymmetric ones only: with a symmetric one a public key could serve as the secret"""
_KEYS_SECONDS = 300
_AGAIN_SECONDS = 30
_LONGEST_TOKEN = 8192


@dataclass(frozen=True)
class Identity:
    """Who makes a request."""

    name: str
    """stays the same when a token is rotated; it is not logged"""
    roles: frozenset[Role]


class OpenId:
    """Verifies JWTs of an OpenID provider."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._keys: jwt.PyJWKSet | None = None
        self._read_at = float("-inf")
        self._lock = threading.Lock()
        if settings.jwks and "://" not in settings.jwks and not Path(settings.jwks).is_file():
            raise UsageError("there is no such file", key="serving.oidc.jwks", value=settings.jwks)

    def identity(self, token: str) -> Identity | None:
        """Return the holder of a valid token; None for any other."""
        import jwt  # noqa: PLC0415 -- only where an OpenID provider is configured

        try:
            wanted = jwt.get_unverified_header(token).get("kid")
            key = self._key(wanted)
            if key is None:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[name for name in _ALGORITHMS if key.algorithm_name in (None, name)],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        listed = claims.get(self._settings.claim, ())
        listed = listed.split() if isinstance(listed, str) else listed
        roles = frozenset(role for role in ROLES if isinstance(listed, list | tuple) and role in listed)
        return Identity(f"oidc:{claims['sub']}", roles)

    def _key(self, wanted: str | None) -> "jwt.PyJWK | None":
        """Return a key of the provider by its id; an unknown id makes the keys be read again, not too often."""
        for fresh in (False, True):
            keys = self._read(fresh=fresh)
            matching = [key for key in keys.keys if wanted in (None, key.key_id)] if keys else []
            if len(matching) == 1:
                return matching[0]
        return None

    def _read(self, *, fresh: bool) -> "jwt.PyJWKSet | None":
        import jwt  # noqa: PLC0415

        with self._lock:
            if time.monotonic() - self._read_at > (_AGAIN_SECONDS if fresh else _KEYS_SECONDS):
                self._read_at = time.monotonic()
                # If that fails, the keys that were read before serve on; without any, every token is refused.
                with suppress(OSError, ValueError, jwt.PyJWTError, MbdError):
                    self._keys = jwt.PyJWKSet.from_json(self._content())
            return self._keys

    def _content(self) -> str:
        where = str(self._settings.jwks)
        if "://" not in where:
            return Path(where).read_text(encoding="utf-8")
        from mbd.storage.http import HttpStore  # noqa: PLC0415 -- its reader follows redirects on one host only

        place, _, name = where.rpartition("/")
        return HttpStore(place).read(name).decode()


class Gatekeeper:
    """Decides who makes a request, and whether they may."""

    def __init__(self, tokens: TokenFile, oidc: OidcSettings, public: tuple[Public, ...]) -> None:
        self._tokens, self._public = tokens, public
        self._open_id = OpenId(oidc) if oidc.issuer else None

    def identity(self, token: str) -> Identity | None:
        """Return the holder of a bearer token; None if it is not valid."""
        if len(token) > _LONGEST_TOKEN:
            return None
        if entry := self._tokens.find(token, now()):
            return Identity(entry.name, frozenset(entry.roles))
        return self._open_id.identity(token) if self._open_id and token.count(".") == 2 else None

    def is_public(self, what: Public) -> bool:
        """Whether something can be read without a token."""
        return what in self._public


_bearer = HTTPBearer(auto_error=False, description="a token of `mbd serve token new`, or of the OpenID provider")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def readable(what: Public) -> Any:  # noqa: ANN401 -- FastAPI's
    """Return the dependency of a route that needs the role `read` unless `what` is public."""
    return role("read", unless=what)


def role(*allowed: Role, unless: Public | None = None) -> Any:  # noqa: ANN401 -- FastAPI's
    """Return the dependency of a route that needs one of these roles, unless something is public."""

    async def check(request: Request, bearer: Bearer) -> Identity | None:
        gatekeeper: Gatekeeper = request.app.state.gatekeeper
        if unless and gatekeeper.is_public(unless):
            return None
        identity: Identity | None = request.scope["state"].get("identity")
        if identity is None:
            raise ApiError(
                401,
                "the request has no token, or one that is not valid",
                hint="send the header `Authorization: Bearer TOKEN`; `mbd serve token new` makes tokens",
                headers={"WWW-Authenticate": 'Bearer realm="mbd"'},
            )
        if not identity.roles & set(allowed):
            raise ApiError(403, f"this needs the role {' or '.join(allowed)}", hint="ask the operator for such a token")
        return identity

    return Depends(check)
