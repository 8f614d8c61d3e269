"""A store in a local folder: each object is a file.

Objects are created by a hard link, so that exactly one of concurrent writers wins. Pointers are replaced under a lock
that ends with its process. A writer that is killed leaves at most a hidden temporary file, which the next writer
removes. There are no versions and no Object Lock.

Files are opened without following symbolic links. A file is written below `.partial/`, where its writer holds a lock on
it, and then linked or renamed to its name. The lock ends with the process, so a temporary file that can be locked was
abandoned by a killed writer.
"""

import errno
import fcntl
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from mbd.storage.store import (
    LARGEST_IN_MEMORY,
    Lock,
    NotThereError,
    NotWritableError,
    StoredObject,
    StoreError,
    check_digest,
    check_name,
    check_size,
    chunks,
    chunks_of,
    conflict,
    no_locks,
    not_there,
    other_content,
    progress,
    sha256_of,
    size_of,
    write_verified,
)

Parts = tuple[str, ...]

_PARTIAL = ".partial"
_LOCK = ".lock"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_LOCKED = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
_ATTEMPTS = 100
_NOT_WRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class Written(NamedTuple):
    """A temporary file, synced to disk."""

    folder: int
    name: str
    sha256: str


class FolderStore:
    """A store in the folder `root`, which is created with the first object."""

    locks = False

    def __init__(self, root: Path) -> None:
        self.url = f"file://{root}"
        self._root = root.absolute()
        self._swept = False

    def create(self, name: str, content: bytes | Path, *, lock: Lock | None = None) -> StoredObject:
        """See :meth:`mbd.storage.store.Store.create`."""
        parts = check_name(name)
        if lock:
            raise no_locks(self.url)
        size = size_of(content)
        with self._store_errors(name):
            self._sweep()
            for _ in range(_ATTEMPTS):
                if existing := self.stat(name):
                    if existing.tag != sha256_of(content):
                        raise other_content(self.url, name)
                    return existing
                with self._written(content, size, parts[-1]) as written:
                    if self._link(written, parts):
                        return StoredObject(name, size, written.sha256)
        raise StoreError(f"other writers keep creating and removing this object in {self.url}", value=name)

    def replace(self, name: str, content: bytes, *, expected: str | None) -> StoredObject:
        """See :meth:`mbd.storage.store.Store.replace`."""
        parts = check_name(name)
        with self._store_errors(name):
            self._sweep()
            with self._written(content, len(content), parts[-1]) as written, self._exclusive():
                existing = self.stat(name)
                if (existing.tag if existing else None) != expected:
                    raise conflict(self.url, name)
                if existing is None:
                    if not self._link(written, parts):
                        raise conflict(self.url, name)
                else:
                    with self._folder(parts[:-1]) as folder:
                        os.replace(written.name, parts[-1], src_dir_fd=written.folder, dst_dir_fd=folder)
                        os.fsync(folder)
                return StoredObject(name, len(content), written.sha256)

    def read(self, name: str, *, sha256: str | None = None) -> bytes:
        """See :meth:`mbd.storage.store.Store.read`."""
        content, tag = self.read_tagged(name)
        check_digest(tag, sha256, name, self.url)
        return content

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """See :meth:`mbd.storage.store.Store.read_tagged`."""
        with self._opened(name) as stream:
            check_size(os.fstat(stream.fileno()).st_size, self.url, name)
            content = stream.read(LARGEST_IN_MEMORY)
        return content, hashlib.sha256(content).hexdigest()

    def fetch(self, name: str, to: Path, *, sha256: str) -> None:
        """See :meth:`mbd.storage.store.Store.fetch`."""
        with self._opened(name) as stream:
            size = os.fstat(stream.fileno()).st_size
            write_verified(chunks(stream), to, sha256=sha256, size=size, name=name, url=self.url)

    def pieces(self, stored: StoredObject) -> Iterator[bytes]:
        """See :meth:`mbd.storage.store.Store.pieces`."""
        with self._opened(stored.name) as stream:
            yield from chunks(stream)

    def stat(self, name: str) -> StoredObject | None:
        """See :meth:`mbd.storage.store.Store.stat`."""
        try:
            with self._opened(name) as stream:
                facts = os.fstat(stream.fileno())
                return _stored(name, facts, hashlib.file_digest(stream, "sha256").hexdigest())
        except NotThereError:
            return None

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """See :meth:`mbd.storage.store.Store.list`."""
        base = prefix[: prefix.rfind("/") + 1]
        parts = tuple(base.split("/")[:-1])
        if all(map(_may_be_part, parts)):
            with (
                self._store_errors(base),
                suppress(FileNotFoundError, NotADirectoryError),
                self._folder(parts) as folder,
            ):
                yield from self._below(folder, base, prefix)

    def versions(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects: a folder has no versions."""
        return self.list(prefix)

    def delete(self, objects: Iterable[StoredObject]) -> dict[StoredObject, str]:
        """See :meth:`mbd.storage.store.Store.delete`."""
        failed = {}
        for each in objects:
            parts = check_name(each.name)
            try:
                with self._exclusive(), suppress(FileNotFoundError):
                    self._unlink(parts)
            except OSError as error:
                failed[each] = error.strerror or str(error)
        return failed

    def unfinished(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the temporary files; their names are empty, because the name of the object is not known."""
        with (
            self._store_errors("temporary files"),
            suppress(FileNotFoundError),
            self._folder((_PARTIAL,)) as folder,
        ):
            for name in sorted(os.listdir(folder)):  # noqa: PTH208 -- of a descriptor
                with suppress(FileNotFoundError):
                    yield _stored("", os.stat(name, dir_fd=folder, follow_symlinks=False), name)

    def abort(self, unfinished: StoredObject) -> None:
        """See :meth:`mbd.storage.store.Store.abort`; files of active writers are kept."""
        with (
            self._store_errors("temporary files"),
            suppress(FileNotFoundError),
            self._folder((_PARTIAL,)) as folder,
            _descriptor(unfinished.tag, _FILE, folder) as handle,
            suppress(BlockingIOError),
        ):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(unfinished.tag, dir_fd=folder)

    def _sweep(self) -> None:
        """Remove the leftovers of killed writers, once for each opened store."""
        if not self._swept:
            self._swept = True
            for left in self.unfinished():
                self.abort(left)

    @contextmanager
    def _folder(self, parts: Parts, *, make: bool = False) -> Iterator[int]:
        """Open a folder; with `make`, it and its parents are created."""
        if make:
            self._root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=handle)
                        os.fsync(handle)
                below = os.open(part, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def _opened(self, name: str) -> Iterator[io.BufferedReader]:
        """Open an object for reading."""
        parts = check_name(name)
        with self._store_errors(name):
            with self._folder(parts[:-1]) as folder:
                handle = os.open(parts[-1], _FILE, dir_fd=folder)
            with os.fdopen(handle, "rb") as stream:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError(errno.EISDIR, "not a file")
                yield stream

    @contextmanager
    def _written(self, content: bytes | Path, size: int, shown: str) -> Iterator[Written]:
        """Within: a temporary file with this content, synced to disk."""
        with self._folder((_PARTIAL,), make=True) as folder:
            name, handle = _new_file(folder)
            digest = hashlib.sha256()
            try:
                with os.fdopen(handle, "wb") as stream, progress(f"storing {shown}", size) as moved:
                    for chunk in chunks_of(content):
                        digest.update(chunk)
                        stream.write(chunk)
                        moved(len(chunk))
                    stream.flush()
                    os.fsync(handle)
                    yield Written(folder, name, digest.hexdigest())
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)

    def _link(self, written: Written, parts: Parts) -> bool:
        """Link a temporary file to its name; return whether the name was free."""
        for _ in range(_ATTEMPTS):
            # Another process may remove the empty folder between its creation and the link.
            with suppress(FileNotFoundError), self._folder(parts[:-1], make=True) as folder:
                try:
                    os.link(
                        written.name, parts[-1], src_dir_fd=written.folder, dst_dir_fd=folder, follow_symlinks=False
                    )
                except FileExistsError:
                    return False
                os.fsync(folder)
                return True
        raise OSError(errno.EBUSY, "its folder is removed again and again")

    def _unlink(self, parts: Parts) -> None:
        """Remove a file, and its parent folders that are then empty."""
        with self._folder(parts[:-1]) as folder:
            os.unlink(parts[-1], dir_fd=folder)
            os.fsync(folder)
        for length in range(len(parts) - 1, 0, -1):
            with self._folder(parts[: length - 1]) as folder:
                try:
                    os.rmdir(parts[length - 1], dir_fd=folder)
                except OSError:
                    return  # not empty

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Within: an exclusive lock among all processes."""
        with self._folder((), make=True) as root, _descriptor(_LOCK, _LOCKED, root) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _below(self, folder: int, base: str, prefix: str) -> Iterator[StoredObject]:
        # A folder sorts like the prefix of its objects: `a-b` < `a/b` < `a0`.
        with os.scandir(folder) as entries:
            listed = [entry for entry in entries if _may_be_part(entry.name)]
        names = [entry.name for entry in listed if entry.is_file(follow_symlinks=False)]
        names += [f"{entry.name}/" for entry in listed if entry.is_dir(follow_symlinks=False)]
        for name in sorted(names):
            whole = base + name
            try:
                if not name.endswith("/"):
                    if whole.startswith(prefix):
                        yield _stored(whole, os.stat(name, dir_fd=folder, follow_symlinks=False), "")
                elif whole.startswith(prefix[: len(whole)]):
                    with _descriptor(name[:-1], _FOLDER, folder) as below:
                        yield from self._below(below, whole, prefix)
            except (FileNotFoundError, NotADirectoryError):
                continue  # it was removed in the meantime

    @contextmanager
    def _store_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise not_there(self.url, name) from error
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EISDIR}:
                problem = "a part of the name is a symbolic link, or a file in place of a folder, or the reverse"
                raise StoreError(f"{problem} (in {self.url})", value=name, hint="inspect the folder") from error
            kind = NotWritableError if error.errno in _NOT_WRITABLE else StoreError
            raise kind(
                f"the store in a folder failed: {error.strerror}",
                file=self._root,
                value=name,
                hint="check that the folder is writable and that there is space on the disk",
            ) from error


@contextmanager
def _descriptor(name: str, flags: int, folder: int) -> Iterator[int]:
    """Within: the descriptor of a file or folder in an open folder."""
    handle = os.open(name, flags, 0o644, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)


def _new_file(folder: int) -> tuple[str, int]:
    while True:
        name = secrets.token_hex(16)
        handle = os.open(name, _NEW, 0o644, dir_fd=folder)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return name, handle
        os.close(handle)  # another process took it for abandoned before it was locked


def _may_be_part(name: str) -> bool:
    return bool(name) and not name.startswith(".") and name.isprintable()


def _stored(name: str, facts: os.stat_result, tag: str) -> StoredObject:
    return StoredObject(name, facts.st_size, tag, modified=datetime.fromtimestamp(facts.st_mtime, UTC))
