"""The store in a local folder."""

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from mbd.errors import VerificationError
from mbd.files import sha256_file
from mbd.randomness import stream
from mbd.storage import folder as module
from mbd.storage import open_store
from mbd.storage.folder import FolderStore
from mbd.storage.store import ConflictError, Lock, NotThereError, Store, StoredObject, StoreError
from tests.refusals import refused
from tests.storage.behaviour import StoreBehaviour, digest, names
from tests.storage.model import machine_of


class TestFolder(StoreBehaviour):
    rounds = 50

    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> Store:
        return FolderStore(tmp_path_factory.mktemp("store") / "not" / "there")


@contextmanager
def empty_store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        yield FolderStore(Path(folder) / "store")


TestAgainstDictionary = machine_of(empty_store).TestCase
TestAgainstDictionary.settings = settings(deadline=None, max_examples=30, stateful_step_count=30)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_object_is_a_plain_file(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/store").create("models/m/weights", b"w")
    assert (tmp_path / "store/models/m/weights").read_bytes() == b"w"
    assert files(tmp_path) == {"store/models/m/weights"}


def test_reading_creates_no_files(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    assert names(store) == []
    assert store.stat("a") is None
    assert list(store.unfinished()) == []
    assert not (tmp_path / "store").exists()


def test_a_folder_has_no_object_lock(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    assert store.locks is False
    with pytest.raises(StoreError, match="has no Object Lock"):
        store.create("a", b"", lock=Lock("COMPLIANCE", datetime.now(UTC)))
    assert names(store) == []


def test_damage_on_the_disk_is_detected(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.create("a", b"one")
    (tmp_path / "a").write_bytes(b"One")
    with refused(VerificationError, key="a"):
        store.read("a", sha256=digest(b"one"))


def test_an_object_cannot_be_a_folder(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.create("a", b"")
    store.create("b/c", b"")
    for name in ("a/b", "b"):
        with pytest.raises(StoreError, match="in place of a folder"):
            store.create(name, b"")
    assert list(store.delete([StoredObject("b", 0, "")]).values()) == ["Is a directory"]
    assert names(store) == ["a", "b/c"]


@pytest.mark.parametrize("way", ["folder", "file", "dangling", "pipe"])
def test_planted_links_and_pipes_are_not_followed(tmp_path: Path, way: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store = FolderStore(tmp_path / "store")
    store.create("good/one", b"1")
    place = tmp_path / "store" / "good"
    name = "good/link"
    if way == "folder":
        (place / "link").symlink_to(outside)
        name = "good/link/secret"
    elif way == "file":
        (place / "link").symlink_to(outside / "secret")
    elif way == "dangling":
        (place / "link").symlink_to(outside / "new")
    else:
        os.mkfifo(place / "link")
    for use in (store.read, store.stat, lambda name: store.create(name, b"x")):
        with refused(StoreError, match="symbolic link"):
            use(name)
    with pytest.raises(StoreError):
        store.replace(name, b"x", expected=digest(b"secret"))
    with pytest.raises(StoreError):
        store.fetch(name, tmp_path / "out", sha256=digest(b"secret"))
    assert names(store) == ["good/one"]
    store.delete([StoredObject(name, 0, "")])
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"secret": b"secret"}


@pytest.mark.parametrize("hidden", [".lock", ".partial"])
def test_links_in_place_of_internal_files_are_refused(tmp_path: Path, hidden: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "store" / hidden).symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="symbolic link"):
        FolderStore(tmp_path / "store").replace("a", b"", expected=None)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_store_that_is_not_writable_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError) as caught:
        FolderStore(tmp_path / "file").create("a", b"")
    assert str(tmp_path / "file") in str(caught.value)


def test_temporary_files_of_active_writers_are_kept(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    with store._written(b"at work", 7, "x") as written:
        FolderStore(tmp_path).create("a", b"")
        assert [each.tag for each in store.unfinished()] == [written.name]
        assert names(store) == ["a"]
    assert list(store.unfinished()) == []


def _act(store: Store) -> None:
    store.create("objects/new", b"new" * 100_000)
    content, tag = store.read_tagged("latest")
    if content == b"1":
        store.replace("latest", b"2", expected=tag)
    store.delete([StoredObject("old/object", 0, "")])


def _die_at(call: int, folder: Path) -> None:
    """Run the function, and kill the process at the system call of this number."""
    calls = count(1)

    class Dying:
        def __getattr__(self, name: str) -> Any:
            known = getattr(os, name)

            def counted(*values: Any, **named: Any) -> Any:
                if next(calls) == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return known(*values, **named)

            return counted if callable(known) else known

    vars(module)["os"] = Dying()  # in this process, which ends with it
    _act(FolderStore(folder))


@pytest.mark.slow
def test_a_writer_killed_at_any_system_call_and_run_again_has_the_same_result(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    for call in count(1):
        folder = tmp_path / str(call)
        store = FolderStore(folder)
        store.create("old/object", b"old")
        store.replace("latest", b"1", expected=None)
        writer = fork.Process(target=_die_at, args=(call, folder))
        writer.start()
        writer.join()
        found = {each.name: store.read(each.name) for each in store.list()}
        assert found.pop("latest") in {b"1", b"2"}
        assert found.pop("old/object", b"old") == b"old"
        assert found.pop("objects/new", b"new" * 100_000) == b"new" * 100_000
        assert found == {}
        _act(FolderStore(folder))
        assert files(folder) == {".lock", "latest", "objects/new"}, call
        assert (folder / "latest").read_bytes() == b"2"
        if writer.exitcode == 0:
            break
        assert writer.exitcode == -signal.SIGKILL
    assert call > 40, "the calls were counted"


def _write_for_ever(folder: Path, seed: int) -> None:
    store = FolderStore(folder)
    random = stream(seed, "contents")
    (folder.parent / "started").touch()
    for _ in count():
        content = random.bytes(int(random.integers(1, 300_000)))
        store.create(f"objects/{digest(content)}", content)
        while True:
            try:
                known, tag = store.read_tagged("latest")
            except NotThereError:
                known, tag = b"0 ", None
            number = int(known.split()[0]) + 1
            try:
                store.replace("latest", f"{number} {digest(content)}".encode(), expected=tag)
                break
            except ConflictError:
                continue


@pytest.mark.slow
def test_killed_writers_leave_only_complete_objects(tmp_path: Path) -> None:
    """20 pairs of concurrent writers, all killed without warning."""
    folder = tmp_path / "store"
    fork = multiprocessing.get_context("fork")
    random = stream(0, "kills")
    reached = 0
    found: set[str] = set()
    for seed in range(20):
        (tmp_path / "started").unlink(missing_ok=True)
        writers = [fork.Process(target=_write_for_ever, args=(folder, 2 * seed + k)) for k in range(2)]
        for writer in writers:
            writer.start()
        while not (tmp_path / "started").exists():
            time.sleep(0.001)
        time.sleep(float(random.uniform(0, 0.1)))
        for writer in writers:
            assert writer.pid is not None
            os.kill(writer.pid, signal.SIGKILL)
            writer.join()
        store = FolderStore(folder)
        objects = set(names(store, "objects/"))
        assert objects >= found, "what was there stays"
        for name in objects - found:
            assert sha256_file(folder / name) == name.removeprefix("objects/")
        found = objects
        if store.stat("latest"):
            number, _, target = store.read("latest").decode().partition(" ")
            assert f"objects/{target}" in objects
            assert reached <= int(number)
            reached = int(number)
    assert reached > 0
    FolderStore(folder).create("after", b"")
    assert list((folder / ".partial").iterdir()) == []
