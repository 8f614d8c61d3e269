"""A store in a local folder: each object is a file.

Objects are created by a hard link, so that exactly one of concurrent writers wins. Pointers are replaced under a lock
that ends with its process. A writer that is killed leaves at most a hidden temporary file, which the next writer
removes. There are no versions and no Object Lock.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from mbd.storage.store import (
    LARGEST_IN_MEMORY,
    Lock,
    NotWritableError,
    StoredObject,
    StoreError,
    check_name,
    check_size,
    conflict,
    no_locks,
    not_there,
    other_content,
)
from mbd.storage.transfer import check_digest, chunks, sha256_of, size_of, write_verified
from mbd.storage.tree import Tree

_ATTEMPTS = 10
_NOT_WRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class FolderStore:
    """A store in the folder `root`, which is created with the first object."""

    def __init__(self, root: Path) -> None:
        self.url = f"file://{root}"
        self.locks = False
        self._tree = Tree(root.absolute())
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
                if (existing := self._tree.digest(parts)) is not None:
                    if existing != sha256_of(content):
                        raise other_content(self.url, name)
                    return StoredObject(name, size, existing)
                with self._tree.written(content, size, parts[-1]) as written:
                    if self._tree.link(written, parts):
                        return StoredObject(name, size, written.sha256)
        raise StoreError(f"other writers keep creating and removing this object in {self.url}", value=name)

    def replace(self, name: str, content: bytes, *, expected: str | None) -> StoredObject:
        """See :meth:`mbd.storage.store.Store.replace`."""
        parts = check_name(name)
        with self._store_errors(name):
            self._sweep()
            with self._tree.written(content, len(content), parts[-1]) as written, self._tree.exclusive():
                if self._tree.digest(parts) != expected:
                    raise conflict(self.url, name)
                if expected is not None:
                    self._tree.replace(written, parts)
                elif not self._tree.link(written, parts):
                    raise conflict(self.url, name)
                return StoredObject(name, len(content), written.sha256)

    def read(self, name: str, *, sha256: str | None = None) -> bytes:
        """See :meth:`mbd.storage.store.Store.read`."""
        content, tag = self.read_tagged(name)
        check_digest(tag, sha256, name, self.url)
        return content

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """See :meth:`mbd.storage.store.Store.read_tagged`."""
        parts = check_name(name)
        with self._store_errors(name), self._tree.opened(parts) as stream:
            check_size(os.fstat(stream.fileno()).st_size, self.url, name)
            content = stream.read(LARGEST_IN_MEMORY)
        return content, hashlib.sha256(content).hexdigest()

    def fetch(self, name: str, to: Path, *, sha256: str) -> None:
        """See :meth:`mbd.storage.store.Store.fetch`."""
        parts = check_name(name)
        with self._store_errors(name), self._tree.opened(parts) as stream:
            size = os.fstat(stream.fileno()).st_size
            write_verified(chunks(stream), to, sha256=sha256, size=size, name=name, url=self.url)

    def pieces(self, stored: StoredObject) -> Iterator[bytes]:
        """See :meth:`mbd.storage.store.Store.pieces`."""
        with self._store_errors(stored.name), self._tree.opened(check_name(stored.name)) as stream:
            yield from chunks(stream)

    def stat(self, name: str) -> StoredObject | None:
        """See :meth:`mbd.storage.store.Store.stat`."""
        parts = check_name(name)
        with self._store_errors(name):
            try:
                with self._tree.opened(parts) as stream:
                    facts = os.fstat(stream.fileno())
                    return _stored(name, facts, hashlib.file_digest(stream, "sha256").hexdigest())
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[StoredObject]:
        """See :meth:`mbd.storage.store.Store.list`."""
        base = prefix[: prefix.rfind("/") + 1]
        parts = tuple(base.split("/")[:-1])
        if all(_may_be_part(part) for part in parts):
            with (
                self._store_errors(base),
                suppress(FileNotFoundError, NotADirectoryError),
                self._tree.folder(parts) as folder,
            ):
                yield from self._below(folder, base, prefix, after)

    def versions(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects: a folder has no versions."""
        return self.list(prefix)

    def delete(self, objects: Iterable[StoredObject]) -> dict[StoredObject, str]:
        """See :meth:`mbd.storage.store.Store.delete`."""
        failed = {}
        for each in objects:
            parts = check_name(each.name)
            try:
                with self._tree.exclusive(), suppress(FileNotFoundError):
                    self._tree.unlink(parts)
            except OSError as error:
                failed[each] = error.strerror or str(error)
        return failed

    def unfinished(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the temporary files; their names are empty, because the name of the object is not known."""
        with self._store_errors("temporary files"):
            for name, facts in self._tree.temporaries():
                yield _stored("", facts, name)

    def abort(self, unfinished: StoredObject) -> None:
        """See :meth:`mbd.storage.store.Store.abort`; files of active writers are kept."""
        with self._store_errors("temporary files"):
            self._tree.remove_abandoned(unfinished.tag)

    def _sweep(self) -> None:
        """Remove the leftovers of killed writers, once for each opened store."""
        if not self._swept:
            self._swept = True
            for left in self.unfinished():
                self.abort(left)

    def _below(self, folder: int, base: str, prefix: str, after: str) -> Iterator[StoredObject]:
        # A folder sorts like the prefix of its objects: `a-b` < `a/b` < `a0`.
        with os.scandir(folder) as entries:
            found = [one for one in entries if _may_be_part(one.name)]
        names = [one.name for one in found if one.is_file(follow_symlinks=False)]
        names += [f"{one.name}/" for one in found if one.is_dir(follow_symlinks=False)]
        for name in sorted(names):
            whole = base + name
            try:
                if not name.endswith("/"):
                    if whole.startswith(prefix) and whole > after:
                        yield _stored(whole, os.stat(name, dir_fd=folder, follow_symlinks=False), "")
                elif whole.startswith(prefix[: len(whole)]) and (whole > after or after.startswith(whole)):
                    with self._tree.within(folder, name[:-1]) as below:
                        yield from self._below(below, whole, prefix, after)
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
                file=self._tree.root,
                value=name,
                hint="check that the folder is writable and that there is space on the disk",
            ) from error


def _may_be_part(name: str) -> bool:
    return bool(name) and not name.startswith(".") and name.isprintable()


def _stored(name: str, facts: os.stat_result, tag: str) -> StoredObject:
    return StoredObject(name, facts.st_size, tag, modified=datetime.fromtimestamp(facts.st_mtime, UTC))
