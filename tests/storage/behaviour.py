"""Tests for every store: subclass them with a fixture `store`."""

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from mbd.errors import DataError, MbdError, VerificationError
from mbd.randomness import stream
from mbd.storage.store import (
    LONGEST_NAME,
    LONGEST_PART,
    ConflictError,
    NotThereError,
    OtherContentError,
    Store,
    StoredObject,
)
from tests.refusals import refused

WRITERS = 8


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def names(store: Store, prefix: str = "") -> list[str]:
    return [each.name for each in store.list(prefix)]


def outcomes(actions: list[Callable[[], StoredObject]]) -> list[StoredObject | MbdError]:
    """Run these functions concurrently; return their outcomes."""
    start = threading.Barrier(len(actions))

    def act(action: Callable[[], StoredObject]) -> StoredObject | MbdError:
        start.wait()
        try:
            return action()
        except MbdError as error:
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(act, actions))


class StoreBehaviour:
    """Examples of the interface of a store."""

    rounds = 25
    """repetitions of each race"""

    def test_an_object_exists_after_its_creation_and_not_before(self, store: Store) -> None:
        assert store.stat("a/b.json") is None
        with refused(NotThereError, value="a/b.json"):
            store.read("a/b.json")
        made = store.create("a/b.json", b"one")
        assert store.read("a/b.json") == b"one"
        assert store.read("a/b.json", sha256=digest(b"one")) == b"one"
        found = store.stat("a/b.json")
        assert found is not None
        assert (found.name, found.size, found.tag, found.version) == ("a/b.json", 3, made.tag, made.version)
        assert found.lock is None

    def test_the_same_content_again_is_fine_and_other_content_is_refused(self, store: Store) -> None:
        made = store.create("x", b"one")
        assert store.create("x", b"one").tag == made.tag
        for other in (b"two", b"three", b""):
            with refused(OtherContentError):
                store.create("x", other)
        assert store.read("x") == b"one"

    def test_empty_objects_and_objects_from_files(self, store: Store, tmp_path: Path) -> None:
        store.create("empty", b"")
        assert store.read("empty", sha256=digest(b"")) == b""
        content = stream(0, "file").bytes(3_000_001)
        (tmp_path / "file").write_bytes(content)
        store.create("big/file", tmp_path / "file")
        store.create("big/file", tmp_path / "file")
        store.fetch("big/file", tmp_path / "deep" / "back", sha256=digest(content))
        assert (tmp_path / "deep" / "back").read_bytes() == content
        with refused(DataError, match="does not exist", file=tmp_path / "missing"):
            store.create("other", tmp_path / "missing")
        with pytest.raises(OtherContentError):
            store.create("big/file", b"short")

    def test_content_without_the_expected_digest_is_refused(self, store: Store, tmp_path: Path) -> None:
        store.create("x", b"one")
        with refused(VerificationError, key="x", value=f"SHA-256 {digest(b'one')}, expected {digest(b'two')}"):
            store.read("x", sha256=digest(b"two"))
        (tmp_path / "out").write_bytes(b"before")
        with pytest.raises(VerificationError):
            store.fetch("x", tmp_path / "out", sha256=digest(b"two"))
        with pytest.raises(NotThereError):
            store.fetch("y", tmp_path / "out", sha256=digest(b"two"))
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out", b"before")]

    def test_an_object_that_is_too_large_is_not_read_into_memory(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = bytes((1 << 20) + 1)
        store.create("large", content)
        monkeypatch.setattr("mbd.storage.store.LARGEST_IN_MEMORY", 1 << 20)
        for expected in (None, digest(content)):
            with refused(DataError, value="large"):
                store.read("large", sha256=expected)
        store.fetch("large", tmp_path / "file", sha256=digest(content))
        assert (tmp_path / "file").read_bytes() == content

    def test_a_pointer_is_replaced_only_if_it_is_unchanged(self, store: Store) -> None:
        with pytest.raises(ConflictError):
            store.replace("latest", b"1", expected=digest(b"never there"))
        first = store.replace("latest", b"1", expected=None)
        assert store.read_tagged("latest") == (b"1", first.tag)
        with pytest.raises(ConflictError):
            store.replace("latest", b"2", expected=None)
        second = store.replace("latest", b"2", expected=first.tag)
        with refused(ConflictError, value="latest"):
            store.replace("latest", b"3", expected=first.tag)
        assert store.read_tagged("latest") == (b"2", second.tag)
        store.replace("latest", b"3", expected=second.tag)
        assert store.read("latest") == b"3"
        assert store.stat("latest") is not None
        assert names(store) == ["latest"]

    def test_names_are_listed_in_order_of_their_bytes(self, store: Store) -> None:
        made = ["a-b", "a/b", "a/c/d", "a/é", "a0", "b/x y+z%20", "b/ü", "ab", "a/b.c", "c/ﬀ", "c/😀"]
        for name in made:
            store.create(name, name.encode())
        expected = sorted(made, key=str.encode)
        assert names(store) == expected
        assert [(each.name, each.size) for each in store.list("a/")] == [
            (name, len(name.encode())) for name in expected if name.startswith("a/")
        ]
        for prefix in ("a", "a/c", "a/c/", "b/x", "nothing", "a/b/", "a//", "../", "."):
            assert names(store, prefix) == [name for name in expected if name.startswith(prefix)], prefix

    @pytest.mark.parametrize(
        "name",
        [
            *["", "/", "/a", "a/", "a//b", "..", "a/../b", "./a", ".a", "a/.b", "a\\b", "a\nb", "a\0b", "\ud800"],
            *["a" * (LONGEST_PART + 1), "/".join(["a" * 99] * 9)],
        ],
        ids=repr,
    )
    def test_unsafe_names_are_refused(self, store: Store, name: str) -> None:
        create, replace = partial(store.create, content=b""), partial(store.replace, content=b"", expected=None)
        for use in (store.stat, store.read, store.read_tagged, create, replace):
            with refused(DataError, value=repr(name)):
                use(name)

    def test_the_longest_names_work(self, store: Store) -> None:
        name = "/".join(["é" * (LONGEST_PART // 2)] * 3 + ["a" * (LONGEST_NAME - 3 * (LONGEST_PART + 1))])
        store.create(name, b"x")
        assert names(store) == [name]
        assert store.read(name) == b"x"

    def test_a_deleted_object_is_gone_and_its_name_is_free(self, store: Store) -> None:
        for name in ("a/1", "a/2", "b"):
            store.create(name, name.encode())
        assert store.delete(store.list("a/")) == {}
        assert names(store) == ["b"]
        assert store.stat("a/1") is None
        with pytest.raises(NotThereError):
            store.read("a/1")
        with pytest.raises(NotThereError):
            store.read("a/1", sha256=digest(b"a/1"))
        assert store.delete([StoredObject("a/1", 0, ""), StoredObject("never", 0, "")]) == {}
        store.create("a/1", b"other")
        assert store.read("a/1") == b"other"
        with pytest.raises(OtherContentError):
            store.create("a/1", b"a/1")
        tag = store.replace("p", b"1", expected=None).tag
        store.delete([StoredObject("p", 0, "")])
        with pytest.raises(ConflictError):
            store.replace("p", b"2", expected=tag)
        store.replace("p", b"3", expected=None)
        assert store.read("p") == b"3"

    def test_every_version_is_listed_and_can_be_removed_permanently(self, store: Store) -> None:
        tag = store.replace("v/p", b"1", expected=None).tag
        store.replace("v/p", b"2", expected=tag)
        store.create("v/o", b"o")
        store.delete([StoredObject("v/o", 0, "")])
        assert {each.name for each in store.versions("v/")} >= {"v/p"}
        assert store.delete(store.versions("v/")) == {}
        assert list(store.versions("v/")) == []
        assert names(store, "v/") == []

    def test_every_version_can_be_read(self, store: Store) -> None:
        written = {}
        for content in (b"one", b"two", b"three"):
            state = store.stat("old")
            stored = store.replace("old", content, expected=state.tag if state else None)
            written[stored.version] = content
        found = [each for each in store.versions("old") if each.name == "old"]
        assert {each.version: b"".join(store.pieces(each)) for each in found} == written
        with pytest.raises(NotThereError):
            list(store.pieces(StoredObject("never", 0, "")))

    def test_one_of_concurrent_creators_wins(self, store: Store) -> None:
        for turn in range(self.rounds):
            contents = [f"{turn} {writer}".encode() for writer in range(WRITERS)]
            name = f"race/{turn}"
            ends = outcomes([partial(store.create, name, content) for content in contents])
            winners = [content for content, end in zip(contents, ends, strict=True) if isinstance(end, StoredObject)]
            assert len(winners) == 1, ends
            assert store.read(name) == winners[0]
            assert all(isinstance(end, StoredObject | OtherContentError) for end in ends), ends
        assert len(list(store.versions("race/"))) == self.rounds

    def test_concurrent_creators_of_the_same_content_all_succeed(self, store: Store) -> None:
        for turn in range(self.rounds // 5):
            ends = outcomes([partial(store.create, f"same/{turn}", b"same")] * WRITERS)
            assert len({end.tag for end in ends if isinstance(end, StoredObject)}) == 1, ends
            assert all(isinstance(end, StoredObject) for end in ends), ends
        assert len(list(store.versions("same/"))) == self.rounds // 5

    def test_one_of_concurrent_replacements_wins(self, store: Store) -> None:
        tag = store.replace("pointer", b"start", expected=None).tag
        for turn in range(self.rounds):
            contents = [f"{turn} {writer}".encode() for writer in range(WRITERS)]
            ends = outcomes([partial(store.replace, "pointer", content, expected=tag) for content in contents])
            winners = [
                (content, end) for content, end in zip(contents, ends, strict=True) if isinstance(end, StoredObject)
            ]
            assert len(winners) == 1, ends
            assert all(isinstance(end, StoredObject | ConflictError) for end in ends), ends
            content, tag = store.read_tagged("pointer")
            assert (content, tag) == (winners[0][0], winners[0][1].tag)

    def test_no_increment_is_lost_among_concurrent_writers(self, store: Store) -> None:
        """Every writer increments by compare-and-swap until it succeeds."""
        store.replace("counter", b"0", expected=None)
        each = max(2, self.rounds // 5)

        def count() -> StoredObject:
            for _ in range(each):
                while True:
                    content, tag = store.read_tagged("counter")
                    try:
                        last = store.replace("counter", str(int(content) + 1).encode(), expected=tag)
                        break
                    except ConflictError:
                        continue
            return last

        ends = outcomes([count] * WRITERS)
        assert all(isinstance(end, StoredObject) for end in ends), ends
        assert store.read("counter") == str(WRITERS * each).encode()
