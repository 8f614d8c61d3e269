"""Object stores behind one protocol: a local folder or S3. Start at :func:`open_store`."""

from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

from mbd.errors import MissingExtraError, UsageError
from mbd.params.operations import StoreSettings
from mbd.storage.folder import FolderStore
from mbd.storage.store import Lock, Store


def open_store(url: str, settings: StoreSettings | None = None) -> Store:
    """Return the store at `file://FOLDER` (relative or absolute) or `s3://BUCKET[/PREFIX]`.

    `settings` are the `store` section of the parameters; its own url has no say here. Nothing is asked or made yet.
    """
    if url.startswith("file://"):
        return FolderStore(folder_of(url))
    if url.startswith("s3://"):
        try:
            from mbd.storage.s3 import S3Store  # noqa: PLC0415 -- boto3 is an extra, and slow to load
        except ModuleNotFoundError as error:
            raise MissingExtraError("an S3 store", "data", "boto3") from error
        return S3Store(url, settings or StoreSettings())
    raise UsageError("a store is file://FOLDER or s3://BUCKET[/PREFIX]", key="store.url", value=url)


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
