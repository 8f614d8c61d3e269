"""Texts as they may be shown: without the credentials that some URLs carry, and without paths of this machine."""

import re

_USER_INFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<user>[^/?#\s]*)@", re.IGNORECASE)

_PATH = re.compile(r"file://[^\s'\"`(),;]*|(?<![\w/:.<])~?/(?:[^\s/:'\"`(),;]+/)*[^\s/:'\"`(),;]+")


def without_paths(text: str) -> str:
    """Return a text with every absolute path and `file://` URL replaced by the word PATH."""
    return _PATH.sub("PATH", text)


def without_credentials(text: str) -> str:
    """Return `text`, a URL or a message with URLs in it, without user and password of any URL.

    A bare user is kept where it is no secret (`ssh://git@host`), but not in HTTP, where it is often a token.
    """
    return _USER_INFO.sub(_keep_plain_user, text)


def _keep_plain_user(match: re.Match[str]) -> str:
    scheme, user = match["scheme"], match["user"]
    return scheme if ":" in user or scheme.lower().startswith("http") else match[0]
