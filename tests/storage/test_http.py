"""A store read over HTTPS: by names, whole or not at all, and without being led elsewhere."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mbd.errors import DataError, UsageError, VerificationError
from mbd.params.operations import StoreSettings
from mbd.storage import http, open_store
from mbd.storage import store as store_module
from mbd.storage.store import NotThereError, StoredObject, StoreError
from tests.refusals import refused
from tests.storage.web_server import Server, self_signed, serving

QUICK = StoreSettings(retries=1, timeout_seconds=5)


def refused_as_failing(why: str, name: str, **named: object) -> "pytest.RaisesExc[StoreError]":
    """Return what expects that an object cannot be read from its server, and why."""
    return refused(StoreError, match=f"the store cannot be read: .*{why}", value=name, **named)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Server]]:
    store = open_store(f"file://{tmp_path}/store")
    store.create("a/object", b"content")
    store.create("a/with a blank é", b"other")
    with serving(tmp_path / "store") as place:
        yield place


def test_objects_are_read_by_name(served: tuple[str, Server], tmp_path: Path) -> None:
    store = open_store(f"{served[0]}/", QUICK)
    digest = hashlib.sha256(b"content").hexdigest()
    assert store.url == served[0]
    assert store.read("a/object", sha256=digest) == b"content"
    assert store.read("a/with a blank é") == b"other"
    assert store.read_tagged("a/object") == (b"content", digest)
    store.fetch("a/object", tmp_path / "to" / "object", sha256=digest)
    assert (tmp_path / "to" / "object").read_bytes() == b"content"
    found = store.stat("a/object")
    assert found
    assert (found.name, found.size) == ("a/object", 7)
    assert b"".join(store.pieces(found)) == b"content"
    assert store.read("a/moved") == b"content"


def test_what_is_not_there_or_has_another_digest_is_an_error(served: tuple[str, Server], tmp_path: Path) -> None:
    store = open_store(served[0], QUICK)
    assert store.stat("a/none") is None
    with pytest.raises(NotThereError):
        store.read("a/none")
    for read in (
        lambda: store.read("a/object", sha256="0" * 64),
        lambda: store.fetch("a/object", tmp_path / "to", sha256="0" * 64),
    ):
        with refused(VerificationError, key="a/object"):
            read()
    assert not (tmp_path / "to").exists()


def test_nothing_is_listed_or_written(served: tuple[str, Server]) -> None:
    store, some = open_store(served[0], QUICK), StoredObject("a/object", 7, "")
    for act in (
        lambda: list(store.list("a/")),
        lambda: list(store.versions()),
        lambda: list(store.unfinished()),
        lambda: store.create("a/new", b""),
        lambda: store.replace("a/new", b"", expected=None),
        lambda: store.delete([some]),
        lambda: store.abort(some),
    ):
        with pytest.raises(StoreError, match="cannot be"):
            act()


def test_a_redirect_to_another_host_is_not_followed(served: tuple[str, Server]) -> None:
    with refused_as_failing("redirects to another host", "a/elsewhere"):
        open_store(served[0], QUICK).read("a/elsewhere")
    assert served[1].asked == ["/a/elsewhere"]


def test_a_server_that_sends_byte_by_byte_is_given_up(
    served: tuple[str, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_SLOW_SECONDS", 0.2)
    store = open_store(served[0], QUICK)
    for read in (lambda: store.read("a/slow"), lambda: store.fetch("a/slow", tmp_path / "to", sha256="0" * 64)):
        with pytest.raises(StoreError, match="too slowly"):
            read()
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("where", ["head", "before-the-head", "chunk", "end"])
def test_a_server_that_sends_no_byte_of_a_body_slowly_is_given_up_as_well(
    served: tuple[str, Server], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(http, "_SLOW_SECONDS", 0.3)
    with pytest.raises(StoreError, match="too slowly"):
        open_store(served[0], QUICK).read(f"a/slow-{where}")


def test_a_failing_server_is_asked_again_and_then_named(served: tuple[str, Server]) -> None:
    with refused_as_failing("answers 503", "a/failing"):
        open_store(served[0], QUICK).read("a/failing")
    assert served[1].asked == ["/a/failing"] * 2


def test_an_answer_without_end_is_cut_off(
    served: tuple[str, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "LARGEST_IN_MEMORY", 1 << 20)
    monkeypatch.setattr(store_module, "LARGEST_IN_MEMORY", 1 << 20)
    with refused(DataError, value="a/endless"):
        open_store(served[0], QUICK).read("a/endless")
    with refused(StoreError, value="a/endless, None bytes"):
        open_store(served[0], QUICK).fetch("a/endless", tmp_path / "to", sha256="0" * 64)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _):
        pass
    with refused_as_failing("", "a", file=url):
        open_store(url, StoreSettings(retries=0)).read("a")


def test_the_certificate_of_the_server_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(f"file://{tmp_path}/store").create("a", b"content")
    pem = self_signed(tmp_path / "server.pem")
    with serving(tmp_path / "store", pem) as (url, _):
        with refused_as_failing("CERTIFICATE_VERIFY_FAILED", "a"):
            open_store(url, StoreSettings(retries=0)).read("a")
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert open_store(url, QUICK).read("a") == b"content"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/x",
        "https://user:secret@host/x",
        "https://",
        "https://host/x?y",
        "https://host:x/",
        "https://[/",
    ],
)
def test_other_urls_are_refused_without_repeating_credentials(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
