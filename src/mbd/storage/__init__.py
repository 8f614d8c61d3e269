"""Object stores behind one protocol: a folder, S3, HTTPS to read, or what a package adds. See :func:`open_store`."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mbd.errors import UsageError
from mbd.registry import STORES, lazy, scheme_of
from mbd.storage.store import Lock, Store, StoreScheme

if TYPE_CHECKING:
    from mbd.params.operations import StoreSettings


def open_store(url: str, settings: "StoreSettings | None" = None) -> Store:
    """Return the store at a URL: `file://`, `s3://`, `https://` (to read), or of a scheme that a package adds.

    Nothing is asked or made yet. The `url` of the settings is not used here.
    """
    scheme = STORES.get(scheme_of(url))
    if settings is None:
        from mbd.params.operations import StoreSettings  # noqa: PLC0415 -- those who verify a folder need none

        settings = StoreSettings()
    return scheme.open(url, settings)


def open_existing(url: str, settings: "StoreSettings | None" = None, *, key: str = "--store") -> Store:
    """Return the store at a URL, to read from it.

    Raises:
        UsageError: There is no such store; `key` is the option or parameter that names it.
    """
    if url.startswith("file://") and not folder_of(url).is_dir():
        raise UsageError(
            "there is no store at this address",
            key=key,
            value=url,
            hint="check the address; `mbd publish` and `mbd request submit` create a store",
        )
    return open_store(url, settings)


def open_private(url: str, settings: "StoreSettings") -> Store:
    """Return the private part of the store at a URL: requests, leases, working files and tombstones.

    It is `store.private`, or `private/` in the store. Those who may read what is published must not be able to read it.
    """
    return open_store(private_url(url, settings), settings)


def private_url(url: str, settings: "StoreSettings") -> str:
    """Return the URL of the private part of the store at a URL."""
    return settings.private or f"{url.rstrip('/')}/private"


def folder_of(url: str) -> Path:
    """Return the folder that a `file://` URL names."""
    path = unquote(url.removeprefix("file://"))
    if not path or "\0" in path:
        raise UsageError("the URL names no folder", key="store.url", value=url, hint="write file://FOLDER")
    return Path(path)


def lock_for(store: Store, settings: "StoreSettings", now: datetime) -> Lock | None:
    """Return the lock that a certificate gets: none where the store has no Object Lock or none is wanted."""
    if settings.lock_mode is None or not store.locks:
        return None
    return Lock(settings.lock_mode, now + timedelta(days=settings.lock_days))


HTTP = StoreScheme(lazy("mbd.storage.http:HttpStore"))
FILE = StoreScheme(lambda url, _: lazy("mbd.storage.folder:FolderStore")(folder_of(url)))
S3 = StoreScheme(lazy("mbd.storage.s3:S3Store"))
