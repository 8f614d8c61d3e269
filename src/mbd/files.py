"""Files that appear whole or not at all, files with secrets, JSON, and digests.

A file is written under a temporary name beside its target, synced to disk, and renamed.
"""

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import rfc8785

from mbd.errors import UsageError

STEP_FILE = "step.json"
_KEY_BYTES = 32


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical_digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON (RFC 8785) of `value`."""
    return hashlib.sha256(rfc8785.dumps(value)).hexdigest()  # type: ignore[arg-type]


def file_digests(folder: Path, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the SHA-256 of every file below `folder` except its `step.json`, by relative path.

    Digests in `known` are not computed again.
    """
    known = known or {}
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    names = [name for name in names if name != STEP_FILE]
    with ThreadPoolExecutor() as pool:
        digests = pool.map(lambda name: known.get(name) or sha256_file(folder / name), names)
        return dict(zip(names, digests, strict=True))


def write_file(path: Path, data: bytes | str, *, mode: int = 0o644, new: bool = False) -> None:
    """Write `data` to `path` as :func:`whole_file` does."""
    with whole_file(path, mode=mode, new=new) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def whole_file(path: Path, *, mode: int = 0o644, new: bool = False) -> Iterator[BinaryIO]:
    """Within: a file that becomes `path` on success and is removed on failure; until then only its owner can read it.

    With `new` an existing file is never replaced: then it raises FileExistsError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.partial.")
    temporary = Path(name)
    try:
        with errors_naming(path), os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(mode)
        if new:
            os.link(temporary, path)
            temporary.unlink()
        else:
            temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise
    sync(path.parent)


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Within: an error of the disk that names no file, or one of a temporary folder, names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno and (error.filename is None or ".partial." in str(error.filename)):
            error.filename = str(path)
        raise


def read_secret(file: Path, what: str, hint: str) -> bytes:
    """Return the content of a file with a secret; a UsageError if it cannot be read, or if other users can read it.

    A secret in a container is mounted read-only, with a mode that its owner may not be able to change.
    """
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            mounted = os.fstatvfs(stream.fileno()).f_flag & os.ST_RDONLY
            secret = stream.read()
    except OSError as error:
        raise UsageError(f"the {what} cannot be read: {error.strerror}", file=file, hint=hint) from error
    if mode & 0o077 and not mounted:
        raise UsageError(f"other users can read the {what}", file=file, hint=f"chmod 600 {file}")
    return secret


def read_key(file: Path, what: str, hint: str) -> bytes:
    """Return the 32 bytes that a file with a secret holds in hexadecimal; a UsageError if it does not."""
    try:
        key = bytes.fromhex(read_secret(file, what, hint).decode())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise UsageError(f"this is not a {what}", file=file, hint=hint)
    return key


def to_json(value: object) -> str:
    """Return `value` as indented JSON, keys in their order, with a newline at the end."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> Any:  # noqa: ANN401 -- the caller checks the content
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def find_bundled(name: str) -> Path:
    """Return a file that belongs to this package: bundled with an installed one, or at the top of a clone."""
    package = Path(__file__).parent
    for folder in (package / "bundled", package.parents[1]):
        if (folder / name).is_file():
            return folder / name
    hint = "install the wheel of missing-by-design, or its repository with `pip install --editable`"
    raise UsageError("this installation lacks a file", file=package / "bundled" / name, hint=hint)


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold an exclusive lock on a file or folder; without `wait`, raise BlockingIOError if another process holds it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Sync a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
