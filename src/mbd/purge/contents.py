"""The files to purge, and what of them lies inside of other files, whatever format these have.

Files are known by SHA-256, and by the MD5 under which DVC stores the same content. Archives are opened, and tensors are
compared by their bytes.

Opened are zip, tar, gzip, bzip2 and xz, within each other up to `DEPTH` levels, and never more than `LARGEST` bytes of
one file. Tensors are recognised in safetensors, npz, npy and the zip files of torch, where their bytes lie as they are:
the SHA-256 of these bytes is looked up, and a tensor that was saved as float16, bfloat16 or float64 has another one. An
archive that cannot be opened is an obstacle. A file of a format that holds data and is not opened is listed.
"""

import bz2
import gzip
import hashlib
import json
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from mbd.errors import MbdError
from mbd.formats.purge import Obstacle, Target
from mbd.storage.store import CHUNK, sha256_pieces
from mbd.tensors import Array, is_float, open_tensors, round_mantissa

DEPTH = 4
LARGEST = 1 << 36
"""bytes that one file may have when it is inflated"""
_LARGEST_LIST = 1 << 26
"""bytes of the list of a zip file's members, or of the header of a safetensors file"""
_SMALLEST = 32
"""elements of a tensor that is compared: smaller ones may be equal by chance"""
_HEAD = 512
_BLOCK = 1 << 20
_STREAMS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open}
_STREAMS |= dict.fromkeys((b"\xfd7zXZ\0", b"]\0\0"), lzma.open)
_CLOSED = {b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!\x1a\x07": "rar", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
_CLOSED |= {b"\x1f\x9d": "compress", b"LZIP": "lzip", b"07070": "cpio"}
_DATA = {b"\x89HDF\r\n\x1a\n": "HDF5", b"ARROW1": "Arrow", b"PAR1": "parquet", b"SQLite format 3": "SQLite"}
_DATA |= {b"GGUF": "GGUF", b"!<arch>\n": "ar"}
_DATA |= {bytes((0x80, protocol)): "pickle" for protocol in range(2, 6)}
ENDINGS = (
    *(".zip", ".npz", ".pt", ".pth", ".whl", ".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".npy", ".ckpt"),
    *(".safetensors", ".bin", ".7z", ".rar", ".zst", ".lz4", ".h5", ".hdf5", ".arrow", ".parquet", ".pkl", ".pickle"),
)
"""endings of the names of what is opened where a look into every object would cost a request each"""

_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, ValueError, KeyError, TypeError)
_FAILED = (*_DAMAGED, NotImplementedError, RuntimeError, OverflowError, MemoryError, AttributeError, RecursionError)

ReportObstacle = Callable[[Obstacle], None]


class Targets:
    """A set of files to purge, with lookup by digest, by size, and by the digests of their tensors."""

    def __init__(self, targets: Iterable[Target] = (), released: Iterable[str] = ()) -> None:
        self.released = frozenset(released)
        """SHA-256 of files of current releases, which stay, whatever tensors they have"""
        self._by_sha256: dict[str, Target] = {}
        for target in targets:
            self.add(target)

    def __iter__(self) -> Iterator[Target]:
        return iter(self._by_sha256.values())

    def __len__(self) -> int:
        return len(self._by_sha256)

    def add(self, target: Target) -> None:
        """Add a file, or what is missing of a known one: its MD5, its size, its tensors."""
        known = self._by_sha256.get(target.sha256, target)
        size = target.size if known.size is None else known.size
        more = {"md5": known.md5 or target.md5, "size": size, "tensors": known.tensors or target.tensors}
        self._put(known.model_copy(update=more))

    def forget_tensors(self, target: Target, digests: Container[str]) -> None:
        """Take tensors off a file: it is not recognised by them."""
        left = {digest: size for digest, size in target.tensors.items() if digest not in digests}
        self._put(target.model_copy(update={"tensors": left}))

    def without(self, sha256: Iterable[str]) -> "Targets":
        """Return the targets except these."""
        left_out = set(sha256)
        return Targets((target for target in self if target.sha256 not in left_out), self.released)

    def by_sha256(self, digest: str) -> Target | None:
        """Return the target with this SHA-256, or None."""
        return self._by_sha256.get(digest)

    def by_md5(self, digest: str) -> Target | None:
        """Return the target with this MD5, or None."""
        return self._lookup.by_md5.get(digest)

    def by_tensor(self, digest: str) -> Target | None:
        """Return the target with a tensor of this SHA-256, or None."""
        return self._lookup.by_tensor.get(digest)

    def has_tensor_of(self, size: int) -> bool:
        """Return whether a tensor of a target has this many bytes."""
        return size in self._lookup.tensor_sizes

    def may_be(self, size: int) -> bool:
        """Return whether a file of this size can be a target."""
        sizes = self._lookup.sizes
        return size in sizes or None in sizes

    @property
    def without_md5(self) -> "Targets":
        """The targets that cannot be found by the names that DVC gives."""
        return Targets(target for target in self if target.md5 is None)

    @property
    def counts(self) -> dict[str, int]:
        """The number of targets of each kind."""
        return dict(sorted(Counter(target.what for target in self).items()))

    def _put(self, target: Target) -> None:
        self._by_sha256[target.sha256] = target
        self.__dict__.pop("_lookup", None)

    @cached_property
    def _lookup(self) -> "_Lookup":
        return _Lookup(
            by_md5={t.md5: t for t in self if t.md5},
            sizes={t.size for t in self},
            by_tensor={digest: t for t in self for digest in t.tensors},
            tensor_sizes={size for t in self for size in t.tensors.values()},
        )


class _Lookup(NamedTuple):
    by_md5: dict[str, Target]
    sizes: set[int | None]
    by_tensor: dict[str, Target]
    tensor_sizes: set[int]


@dataclass(frozen=True)
class Held:
    """A purged file, or tensors of it, inside of a file."""

    target: Target
    inside: str | None
    """where in it; None: the file is a copy as a whole, compressed or saved in another format"""


class _UnopenedError(Exception):
    """Something was not opened."""


def tensor_digests(file: Path, sees: Collection[str] | None = None) -> dict[str, int]:
    """Return the SHA-256 and the size of the bytes of each tensor of a file, as it may be saved.

    Args:
        file: A tensor file.
        sees: Names of the tensors that count; None: all.

    """
    digests = dict[str, int]()
    try:
        tensors: Mapping[str, Array] = open_tensors(file)
    except MbdError:
        return digests
    for name, tensor in tensors.items():
        if (sees is None or name in sees) and is_float(tensor) and tensor.size >= _SMALLEST:
            digests |= _digests(tensor.reshape(-1))
    return digests


def _digests(values: Array) -> dict[str, int]:
    widths = {"f2": 2, "bf2": 2, "f4": 4, "f8": 8}
    hashes, constant = {name: hashlib.sha256() for name in widths}, dict.fromkeys(widths, True)
    for start in range(0, values.size, _BLOCK):
        for name, part in _as_saved(values[start : start + _BLOCK]).items():
            hashes[name].update(part.tobytes())
            constant[name] &= bool((part == part[0]).all())
    return {hashes[name].hexdigest(): values.size * width for name, width in widths.items() if not constant[name]}


def _as_saved(values: Array) -> dict[str, Array]:
    with np.errstate(over="ignore"):
        single = values.astype("<f4")
        brain = (round_mantissa(single, 7).view("<u4") >> 16).astype("<u2")
        return {"f2": values.astype("<f2"), "bf2": brain, "f4": single, "f8": values.astype("<f8")}


def held_in(
    stream: BinaryIO, where: str, targets: Targets, report_obstacle: ReportObstacle, *, largest: int = LARGEST
) -> Held | None:
    """Look into a file.

    Args:
        stream: The file; it can seek.
        where: Its path or name, for obstacles.
        targets: What is looked for.
        report_obstacle: Called for what could not be looked into.
        largest: Bytes that it may have when it is inflated.

    Returns:
        What it holds.

    """
    search, problem = _Search(targets, largest), ""
    try:
        search.open(stream, "", 0)
    except _UnopenedError as error:
        problem = str(error)
    except _FAILED as error:
        problem = f"it is damaged: {error}"
    except OSError as error:
        problem = f"it cannot be read: {error}"
    if problem:
        hint = "open it by other means; remove it, or move it out of the places that are searched"
        report_obstacle(Obstacle(reason="an archive could not be opened", detail=f"{where}: {problem}", hint=hint))
    elif search.unread:
        reason = "files of other formats were compared by their digests only"
        detail = f"{where}: {', '.join(sorted(search.unread))}"
        hint = "look into it by other means; list its SHA-256 in purge.also if it must go"
        report_obstacle(Obstacle(reason=reason, detail=detail, hint=hint, blocking=False))
    return search.held()


class _Search:
    """A search through one file."""

    def __init__(self, targets: Targets, left: int) -> None:
        self._targets, self._left = targets, left
        self._tensors = dict[str, set[str]]()
        """digests of the tensors that were met, by the SHA-256 of the target"""
        self._files = dict[str, str]()
        """where a target was met as a whole, by its SHA-256"""
        self._mixed = False
        """whether an archive was opened that may hold more than one model"""
        self.unread = set[str]()

    def held(self) -> Held | None:
        """Return what was met."""
        for sha256, inside in self._files.items():
            if target := self._targets.by_sha256(sha256):
                return Held(target, inside if self._mixed else None)
        for sha256, digests in self._tensors.items():
            if target := self._targets.by_sha256(sha256):
                # A tensor has up to four digests; a file has it in one form.
                whole = not self._mixed and 8 * len(digests) >= len(target.tensors)
                return Held(target, None if whole else f"{len(digests)} tensors")
        return None

    def open(self, stream: BinaryIO, inside: str, depth: int, size: int | None = None) -> None:
        """Look into a file, whose size is known or not."""
        head = _peek(stream)
        if closed := _kind(head, _CLOSED):
            raise _UnopenedError(f"{closed} is a format that is not opened")
        if depth > DEPTH:
            raise _UnopenedError(f"archives lie more than {DEPTH} deep within each other")
        if _is_tar(head):
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                self._tar(tar, inside, depth)
        elif opener := next((opener for magic, opener in _STREAMS.items() if head.startswith(magic)), None):
            with opener(stream, "rb") as inflated:
                self.open(cast(BinaryIO, _Inflated(inflated, self._spend)), inside, depth + 1)
        elif head[:4] in (b"PK\3\4", b"PK\5\6") or head[8:9] == b"{":
            with nullcontext(stream) if depth == 0 else self._spooled(stream) as seekable:
                self._zip(seekable, inside, depth) if head[:2] == b"PK" else self._safetensors(seekable, inside)
        elif head.startswith(b"\x93NUMPY"):
            self._leaf(stream, inside, size, skip=_header_size(head))
        elif depth == 0 and _ends_as_zip(stream):
            self._zip(stream, inside, depth)
        else:
            if (kind := _kind(head, _DATA)) and not inside.endswith("/data.pkl"):
                self.unread.add(kind)
            if depth:
                self._leaf(stream, inside, size)

    def _tar(self, tar: tarfile.TarFile, inside: str, depth: int) -> None:
        for member in tar:
            self._spend(_HEAD)
            if member.isreg() and (content := tar.extractfile(member)):
                self._mixed = True
                self.open(cast(BinaryIO, content), f"{inside}/{member.name}", depth + 1, member.size)
            elif not (member.isdir() or member.islnk() or member.issym() or member.isreg()):
                raise _UnopenedError(f"{member.name!r:.80} is not a plain file")

    def _zip(self, stream: BinaryIO, inside: str, depth: int) -> None:
        if int.from_bytes(_end_of_list(stream)[12:16], "little") > _LARGEST_LIST:
            raise _UnopenedError("it lists too many members")
        with zipfile.ZipFile(stream) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            names = [info.filename for info in members]
            tensors = all(name.endswith(".npy") for name in names) or any(name.endswith("/data.pkl") for name in names)
            self._mixed |= not tensors
            for info in members:
                self._spend(_HEAD)
                if info.flag_bits & 1:
                    raise _UnopenedError("it is encrypted")
                with archive.open(info) as content:
                    inflated = _Inflated(content, self._spend)
                    self.open(cast(BinaryIO, inflated), f"{inside}/{info.filename}", depth + 1, info.file_size)

    def _safetensors(self, stream: BinaryIO, inside: str) -> None:
        """Look up every tensor of a safetensors file; one that is not well formed has none."""
        start = 8 + int.from_bytes(stream.read(8), "little")
        if start > _LARGEST_LIST:
            return
        try:
            spans = [
                entry["data_offsets"] for name, entry in json.loads(stream.read(start - 8)).items() if name[:2] != "__"
            ]
            spans = [(int(begin), int(end)) for begin, end in spans]
        except _FAILED:
            return
        met = set[str]()
        for begin, end in spans:
            if self._targets.has_tensor_of(end - begin) and begin >= 0:
                stream.seek(start + begin)
                met.add(sha256_pieces(_pieces(stream, end - begin)))
        if any(map(self._targets.by_tensor, met)):
            stream.seek(0)
            if (whole := sha256_pieces(_pieces(stream))) not in self._targets.released:
                self._meet(whole, inside)
                for digest in met:
                    self._meet(digest, inside)

    def _leaf(self, stream: BinaryIO, inside: str, size: int | None, skip: int = 0) -> None:
        """Look up a file of an archive, and the bytes after its header."""
        if size is not None and not (self._targets.may_be(size) or self._targets.has_tensor_of(size - skip)):
            return
        whole, rest, read = hashlib.sha256(), hashlib.sha256(), 0
        for piece in _pieces(stream):
            whole.update(piece)
            rest.update(piece[max(skip - read, 0) :])
            read += len(piece)
        self._meet(whole.hexdigest(), inside)
        self._meet(rest.hexdigest(), inside)

    def _meet(self, digest: str, inside: str) -> None:
        if self._targets.by_sha256(digest):
            self._files.setdefault(digest, inside)
        if target := self._targets.by_tensor(digest):
            self._tensors.setdefault(target.sha256, set()).add(digest)

    @contextmanager
    def _spooled(self, stream: BinaryIO) -> Iterator[BinaryIO]:
        """Yield a member as a file without a name, which can seek."""
        with tempfile.TemporaryFile() as spooled:
            spooled.writelines(_pieces(stream))
            spooled.seek(0)
            yield cast(BinaryIO, spooled)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _UnopenedError("it is too large to be inflated")


class _Inflated:
    """What is read out of a compressed file is counted, whether it is looked at or passed over."""

    def __init__(self, stream: Any, spend: Callable[[int], None]) -> None:  # noqa: ANN401 -- of gzip, zipfile …
        self._stream, self._spend, self.peek = stream, spend, stream.peek

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        content: bytes = self._stream.read(size)
        self._spend(len(content))
        return content


def _pieces(stream: BinaryIO, size: int | None = None) -> Iterator[bytes]:
    while piece := stream.read(CHUNK if size is None else min(CHUNK, size)):
        size = None if size is None else size - len(piece)
        yield piece


def _peek(stream: BinaryIO) -> bytes:
    if peek := getattr(stream, "peek", None):
        return bytes(peek(_HEAD)[:_HEAD])
    head = stream.read(_HEAD)
    stream.seek(0)
    return head


def _is_tar(head: bytes) -> bool:
    """Return whether this is the head of a tar file, also of one from before the format had a mark."""
    try:
        return bool(tarfile.TarInfo.frombuf(head[:_HEAD], "utf-8", "surrogateescape").name)
    except tarfile.HeaderError:
        return False


def _kind(head: bytes, kinds: Mapping[bytes, str]) -> str | None:
    return next((kind for magic, kind in kinds.items() if head.startswith(magic)), None)


def _header_size(head: bytes) -> int:
    """Return how many bytes the header of an npy file has."""
    width = 2 if head[6:7] == b"\1" else 4
    return 8 + width + int.from_bytes(head[8 : 8 + width], "little")


def _end_of_list(stream: BinaryIO) -> bytes:
    """Return the end of a file from where a zip file's list of members ends; nothing of other files."""
    stream.seek(0, 2)
    stream.seek(max(stream.tell() - (1 << 16) - 22, 0))
    tail = stream.read()
    stream.seek(0)
    at = tail.rfind(b"PK\5\6")
    return tail[at:] if at >= 0 else b""


def _ends_as_zip(stream: BinaryIO) -> bool:
    """Return whether a file is a zip file behind other bytes, such as a program that unpacks it."""
    end = _end_of_list(stream)
    return len(end) == 22 + int.from_bytes(end[20:22], "little")
