"""Access tokens: made, rotated and revoked here, and compared in constant time.

A token is `mbd_ID_SECRET` with 256 random bits in SECRET. The file holds the SHA-256 of it: of that many random bits no
one can find a preimage, so no slow hash is needed, and a thief of the file gains nothing. A rotated token stays valid
for a while beside the new one, so that its holder can change over without a failed request.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

from mbd.errors import DataError, UsageError
from mbd.files import locked, write_file
from mbd.formats.access import AccessToken, AccessTokens, Role
from mbd.records import now, valid_name

_PREFIX = "mbd"
Entries = tuple[AccessToken, ...]


class TokenFile:
    """The tokens in a file; changes of the file are noticed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read_at: tuple[int, int, int] | None = None
        self._tokens = AccessTokens()

    @property
    def tokens(self) -> tuple[AccessToken, ...]:
        """Every token; none without a file."""
        try:
            facts = self.file.stat()
        except FileNotFoundError:
            return ()
        seen = facts.st_mtime_ns, facts.st_size, facts.st_ino
        if seen != self._read_at:
            self._tokens = AccessTokens.read(self.file, "file of access tokens", "make it again: `mbd serve token new`")
            self._read_at = seen
        return self._tokens.tokens

    def find(self, token: str, at: datetime) -> AccessToken | None:
        """Return the entry of a token that is valid at a time; None if there is none."""
        prefix, _, rest = token.partition("_")
        identifier = rest.partition("_")[0]
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        entry = next((each for each in self.tokens if prefix == _PREFIX and each.id == identifier), None)
        # An unknown id takes the same comparison as a known one.
        same = hmac.compare_digest(digest, entry.sha256 if entry else "0" * 64)
        return entry if same and entry and (entry.expires is None or at < entry.expires) else None

    def new(self, name: str, roles: Iterable[Role], days: int | None = None) -> tuple[str, AccessToken]:
        """Make a token; return it, once, and its entry."""
        try:
            valid_name(name)
        except ValueError as error:
            raise UsageError(str(error), key="--name") from error
        at = now()
        token, entry = _made(name, tuple(dict.fromkeys(roles)), at, at + timedelta(days=days) if days else None)
        self._change(lambda kept: (*kept, entry))
        return token, entry

    def rotate(self, chosen: str, overlap: timedelta) -> tuple[str, AccessToken]:
        """Make another token with the name, roles and lifetime of one; the old one stays valid for `overlap`."""
        old, at = self._chosen(chosen), now()
        lifetime = old.expires - old.created if old.expires else None
        token, entry = _made(old.name, old.roles, at, at + lifetime if lifetime else None)
        ends = min(at + overlap, old.expires or datetime.max.replace(tzinfo=at.tzinfo))
        ended = old.model_copy(update={"expires": ends})
        self._change(lambda kept: (*(ended if each.id == old.id else each for each in kept), entry))
        return token, entry

    def revoke(self, chosen: str) -> AccessToken:
        """Remove a token: it is refused from now on."""
        gone = self._chosen(chosen)
        self._change(lambda kept: tuple(each for each in kept if each.id != gone.id))
        return gone

    def _chosen(self, chosen: str) -> AccessToken:
        """Return the token with this id, or the newest with this name."""
        matching = [each for each in self.tokens if chosen in (each.id, each.name)]
        if not matching:
            raise UsageError(
                "there is no such token", key="TOKEN", value=chosen, hint="`mbd serve token list` shows them"
            )
        return matching[-1]

    def _change(self, change: Callable[[Entries], Entries]) -> None:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with locked(self.file.parent, wait=True):
                changed = AccessTokens(tokens=change(self.tokens))
                write_file(self.file, changed.to_bytes(), mode=0o600)
        except OSError as error:
            raise DataError(f"the file of access tokens cannot be written: {error.strerror}", file=self.file) from error


def _made(name: str, roles: tuple[Role, ...], at: datetime, expires: datetime | None) -> tuple[str, AccessToken]:
    identifier = secrets.token_hex(6)
    token = f"{_PREFIX}_{identifier}_{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(token.encode()).hexdigest()
    return token, AccessToken(id=identifier, name=name, roles=roles, sha256=digest, created=at, expires=expires)
