"""An S3 store that takes no new objects: the error names the store and what to do, and what is stored stays."""

from collections.abc import Iterator

import boto3  # noqa: F401 -- without it this module is left out
import pytest

from mbd.params.operations import StoreSettings
from mbd.storage import open_store
from mbd.storage.store import NotWritableError, Store, StoreError
from tests.refusals import refused
from tests.storage.s3_server import BUCKET, CREDENTIALS, Refusal, S3Server, s3_server

URL = f"s3://{BUCKET}/mbd"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with s3_server() as server:
        yield server


@pytest.fixture
def store(server: S3Server) -> Store:
    return open_store(URL, StoreSettings(endpoint=server.url, retries=0))


FULL = [
    Refusal(507, "XMinioStorageFull"),
    Refusal(400, "XMinioAdminBucketQuotaExceeded"),
    Refusal(403, "QuotaExceeded"),
    Refusal(507, "InsufficientStorage"),
    Refusal(507, "OfAnotherServer"),
    Refusal(507, None),
]


@pytest.mark.parametrize("full", FULL, ids=str)
def test_a_full_store_is_named_with_a_hint_and_keeps_what_it_has(server: S3Server, store: Store, full: Refusal) -> None:
    store.create("certificates/a", b"first")
    tag = store.replace("head", b"old", expected=None).tag
    server.full = full
    with refused(NotWritableError, value=f"{URL}/certificates/b", hint="quota"):
        store.create("certificates/b", b"second")
    with pytest.raises(NotWritableError):
        store.replace("head", b"new", expected=tag)
    assert server.refused == 2, "a full store is not asked again and again"
    assert store.create("certificates/a", b"first").size == 5, "nothing had to be written"
    assert (store.read("head"), [one.name for one in store.list()]) == (b"old", ["certificates/a", "head"])
    server.full = None
    store.create("certificates/b", b"second")
    store.replace("head", b"new", expected=tag)
    assert store.read("head") == b"new"


@pytest.mark.parametrize("refusal", [Refusal(403, "AccessDenied"), Refusal(400, "InvalidRequest")], ids=str)
def test_another_refusal_is_not_taken_for_a_full_store(server: S3Server, store: Store, refusal: Refusal) -> None:
    server.full = refusal
    with pytest.raises(StoreError) as raised:
        store.create("a", b"x")
    assert not isinstance(raised.value, NotWritableError)
