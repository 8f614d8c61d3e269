"""The format of an encrypted file: AES-256-GCM in chunks, so that memory is bounded (STREAM, Hoang et al. 2015).

    "MBDX" ‖ length of the header (4 bytes) ‖ header (JSON) ‖ chunk_0 ‖ chunk_1 ‖ … ‖ chunk_n

    key ‖ prefix = HKDF-SHA256(data keys, one after the other; salt; SHA-256 of the header)
    chunk_i      = AES-256-GCM(key, nonce = prefix (7 bytes) ‖ i (4 bytes) ‖ [i = n] (1 byte))

The salt is random, so every file has its own key and nonces. The header names the file, its lineage and its modalities;
the key is derived from all of it, so a changed header makes decryption fail. Chunks that were modified, swapped,
repeated, removed or truncated fail authentication, because the nonce holds the index of the chunk and marks the last
one. If there are several data keys, all of them are needed.
"""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from typing import Annotated, BinaryIO, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import Field

from mbd.errors import DataError
from mbd.formats.shredding import KeyName
from mbd.formats.statement import KeyKind
from mbd.records import Digest, Record

CHUNK = 1 << 17
_MAGIC = b"MBDX"
_TAG_BYTES = 16
_PREFIX_BYTES = 7
_LARGEST_HEADER = 1 << 20
_MOST_CHUNKS = 1 << 32


class CipherSubject(Record):
    """The identity of an encrypted file; a change makes decryption fail."""

    name: str
    """path of the file in its FeatureSet or model folder"""
    lineage: str
    kind: KeyKind
    modalities: tuple[str, ...]
    """the keys of all of them are needed"""

    @property
    def key_names(self) -> list[KeyName]:
        """The names of the keys, one for each modality."""
        return [KeyName(lineage=self.lineage, kind=self.kind, modality=m) for m in self.modalities]


class Header(Record):
    """The header of an encrypted file."""

    format: Literal["urn:missing-by-design:encrypted-file:v1"] = "urn:missing-by-design:encrypted-file:v1"
    cipher: Literal["AES-256-GCM-HKDF-STREAM"] = "AES-256-GCM-HKDF-STREAM"
    subject: CipherSubject
    keys: tuple[Digest, ...]
    """ids of the data keys, one for each modality"""
    salt: Digest
    chunk: Annotated[int, Field(ge=1, le=1 << 26)]


def encrypt(
    source: BinaryIO, target: BinaryIO, subject: CipherSubject, keys: Sequence[tuple[str, bytes]], chunk: int = CHUNK
) -> None:
    """Encrypt `source` to `target` with these keys (id and key, one for each modality of the subject)."""
    ids, salt = tuple(identity for identity, _ in keys), secrets.token_hex(32)
    header = Header(subject=subject, keys=ids, salt=salt, chunk=chunk).model_dump_json().encode()
    cipher, prefix = _derived([key for _, key in keys], salt, header)
    target.write(_MAGIC + len(header).to_bytes(4, "big") + header)
    for nonce, part in _chunks(source, chunk, prefix):
        target.write(cipher.encrypt(nonce, part, None))


def read_header(source: BinaryIO) -> tuple[Header, bytes]:
    """Return the header of an encrypted file, parsed and as bytes; the stream is then at the first chunk."""
    start = source.read(8)
    length = int.from_bytes(start[4:], "big")
    if start[:4] != _MAGIC or len(start) < 8 or length > _LARGEST_HEADER:
        raise _damaged(source, "it does not start with MBDX and a valid length")
    text = source.read(length)
    try:
        header = Header.from_bytes(text, "header")
    except DataError as error:
        raise _damaged(source, error.problem) from error
    if len(header.keys) != len(header.subject.modalities) or not header.keys:
        raise _damaged(source, "it does not have one key for each modality")
    return header, text


def decrypt(source: BinaryIO, target: BinaryIO, header: tuple[Header, bytes], keys: Sequence[bytes]) -> None:
    """Decrypt the chunks in `source` to `target`.

    Raises:
        DataError: A chunk fails authentication. What was written before is authentic, but not the complete file.
    """
    cipher, prefix = _derived(keys, header[0].salt, header[1])
    for nonce, part in _chunks(source, header[0].chunk + _TAG_BYTES, prefix):
        try:
            plain = cipher.decrypt(nonce, part, None)
        except (InvalidTag, ValueError) as error:
            raise _damaged(
                source, f"chunk {int.from_bytes(nonce[_PREFIX_BYTES:-1], 'big')} fails authentication"
            ) from error
        target.write(plain)


def _derived(keys: Sequence[bytes], salt: str, header: bytes) -> tuple[AESGCM, bytes]:
    info = hashlib.sha256(header).digest()
    derived = HKDF(SHA256(), 32 + _PREFIX_BYTES, bytes.fromhex(salt), info).derive(b"".join(keys))
    return AESGCM(derived[:32]), derived[32:]


def _chunks(source: BinaryIO, size: int, prefix: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield each chunk with its nonce. The chunk at the end of the source is the last; an empty source is one chunk."""
    here, ahead = memoryview(bytearray(size)), memoryview(bytearray(size))
    length = _fill(source, here)
    for index in range(_MOST_CHUNKS):
        following = _fill(source, ahead) if length == size else 0
        yield prefix + index.to_bytes(4, "big") + bytes([following == 0]), here[:length]
        if not following:
            return
        here, ahead, length = ahead, here, following
    raise _damaged(source, "it has too many chunks")


def _fill(source: BinaryIO, buffer: memoryview) -> int:
    filled = 0
    while filled < len(buffer) and (count := source.readinto(buffer[filled:])):  # type: ignore[attr-defined]
        filled += count
    return filled


def _damaged(source: BinaryIO, how: str) -> DataError:
    return DataError(
        f"the encrypted file is damaged or was modified: {how}",
        file=getattr(source, "name", None),
        hint="fetch it from another copy",
    )
