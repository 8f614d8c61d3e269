"""URLs as they may be shown: without the credentials that some carry (`https://user:password@host/…`)."""

import re

_USER_INFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<user>[^/?#\s]*)@", re.IGNORECASE)


def without_credentials(text: str) -> str:
    """Return `text`, a URL or a message with URLs in it, without user and password of any URL.

    A bare user is kept where it is no secret (`ssh://git@host`), but not in HTTP, where it is often a token.
    """
    return _USER_INFO.sub(_keep_plain_user, text)


def _keep_plain_user(match: re.Match[str]) -> str:
    scheme, user = match["scheme"], match["user"]
    return scheme if ":" in user or scheme.lower().startswith("http") else match[0]
