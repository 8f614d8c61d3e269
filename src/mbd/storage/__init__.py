"""Object stores behind one protocol: a local folder, S3, or what a package adds. Start at :func:`open_store`."""

from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

from mbd.errors import UsageError
from mbd.params.operations import StoreSettings, scheme_of
from mbd.registry import STORES, lazy
from mbd.storage.folder import FolderStore
from mbd.storage.store import Lock, Store, StoreScheme


def open_store(url: str, settings: StoreSettings | None = None) -> Store:
    """Return the store at a URL: `file://FOLDER`, `s3://BUCKET[/PREFIX]`, or of a scheme that a package adds.

    Args:
        url: Where the store is.
        settings: The section `store` of the parameters; its own url is not used here. Nothing is asked or made yet.

    """
    return STORES.get(scheme_of(url)).open(url, settings or StoreSettings())


def folder_of(url: str) -> Path:
    """Return the folder that a `file://` URL names."""
    path = unquote(url.removeprefix("file://"))
    if not path or "\0" in path:
        raise UsageError("the URL names no folder", key="store.url", value=url, hint="write file://FOLDER")
    return Path(path)


def lock_for(store: Store, settings: StoreSettings, now: datetime) -> Lock | None:
    """Return the lock that a certificate gets: none where the store has no Object Lock or none is wanted."""
    if settings.lock_mode is None or not store.locks:
        return None
    return Lock(settings.lock_mode, now + timedelta(days=settings.lock_days))


FILE = StoreScheme(lambda url, _: FolderStore(folder_of(url)))
S3 = StoreScheme(lazy("mbd.storage.s3:S3Store", "an S3 store", "data"))
