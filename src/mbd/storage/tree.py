"""Files below one folder, opened without following symbolic links, and written atomically.

A file is written below `.partial/`, where its writer holds a lock on it, and then linked or renamed to its name. The
lock ends with the process, so a temporary file that can be locked was abandoned by a killed writer.
"""

import errno
import fcntl
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mbd.storage.transfer import chunks_of, progress

Parts = tuple[str, ...]

_PARTIAL = ".partial"
_LOCK = ".lock"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_ATTEMPTS = 100


@dataclass(frozen=True)
class Written:
    """A temporary file, synced to disk."""

    folder: int
    name: str
    sha256: str


class Tree:
    """The files below `root`. Failures are OSErrors."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def folder(self, parts: Parts, *, make: bool = False) -> Iterator[int]:
        """Open a folder; with `make`, it and its parents are created."""
        if make:
            self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
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
    def within(self, folder: int, name: str) -> Iterator[int]:
        """Open a folder in an open one."""
        handle = os.open(name, _FOLDER, dir_fd=folder)
        try:
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def opened(self, parts: Parts) -> Iterator[io.BufferedReader]:
        """Open a file for reading."""
        with self.folder(parts[:-1]) as folder:
            handle = os.open(parts[-1], _FILE, dir_fd=folder)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EISDIR, "not a file")
            yield stream

    def digest(self, parts: Parts) -> str | None:
        """Return the SHA-256 of a file, or None if it does not exist."""
        try:
            with self.opened(parts) as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    @contextmanager
    def written(self, content: bytes | Path, size: int, shown: str) -> Iterator[Written]:
        """Within: a temporary file with this content, synced to disk."""
        with self.folder((_PARTIAL,), make=True) as folder:
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

    def link(self, written: Written, parts: Parts) -> bool:
        """Link a temporary file to its name; return whether the name was free."""
        for _ in range(_ATTEMPTS):
            # Another process may remove the empty folder between its creation and the link.
            with suppress(FileNotFoundError), self.folder(parts[:-1], make=True) as folder:
                try:
                    os.link(
                        written.name, parts[-1], src_dir_fd=written.folder, dst_dir_fd=folder, follow_symlinks=False
                    )
                except FileExistsError:
                    return False
                os.fsync(folder)
                return True
        raise OSError(errno.EBUSY, "its folder is removed again and again")

    def replace(self, written: Written, parts: Parts) -> None:
        """Replace a file by a temporary file."""
        with self.folder(parts[:-1]) as folder:
            os.replace(written.name, parts[-1], src_dir_fd=written.folder, dst_dir_fd=folder)
            os.fsync(folder)

    def unlink(self, parts: Parts) -> None:
        """Remove a file, and its parent folders that are then empty."""
        with self.folder(parts[:-1]) as folder:
            os.unlink(parts[-1], dir_fd=folder)
            os.fsync(folder)
        for length in range(len(parts) - 1, 0, -1):
            with self.folder(parts[: length - 1]) as folder:
                try:
                    os.rmdir(parts[length - 1], dir_fd=folder)
                except OSError:
                    return  # not empty

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Within: an exclusive lock among all processes."""
        with self.folder((), make=True) as root:
            handle = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644, dir_fd=root)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def temporaries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the temporary files, abandoned or not."""
        with suppress(FileNotFoundError), self.folder((_PARTIAL,)) as folder:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
            for name in names:
                with suppress(FileNotFoundError):
                    yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)

    def remove_abandoned(self, name: str) -> None:
        """Remove a temporary file unless its writer is alive."""
        with suppress(FileNotFoundError), self.folder((_PARTIAL,)) as folder:
            handle = os.open(name, _FILE, dir_fd=folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
            except BlockingIOError:
                pass
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
