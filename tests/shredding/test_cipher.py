"""Encrypted files: decryption returns the original bytes or fails."""

import io
import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import DataError
from mbd.formats.shredding import key_id
from mbd.shredding.cipher import CHUNK, CipherSubject, decrypt, encrypt, read_header
from tests.refusals import refused

KEYS = [bytes([n]) * 32 for n in (1, 2)]
SUBJECT = CipherSubject(name="model.safetensors", lineage="mosi", kind="models", modalities=("text", "audio"))


def sealed(data: bytes, chunk: int = CHUNK, keys: list[bytes] = KEYS) -> bytes:
    target = io.BytesIO()
    encrypt(io.BytesIO(data), target, SUBJECT, [(key_id(key), key) for key in keys], chunk)
    return target.getvalue()


def opened(data: bytes, keys: list[bytes] = KEYS) -> bytes:
    source, target = io.BytesIO(data), io.BytesIO()
    decrypt(source, target, read_header(source), keys)
    return target.getvalue()


def body(data: bytes) -> int:
    """Return the offsets of the chunks."""
    return 8 + int.from_bytes(data[4:8], "big")


def refused_as_modified(how: str) -> "pytest.RaisesExc[DataError]":
    """Return what expects that an encrypted file is not the one that was written."""
    return refused(DataError, match=f"damaged or was modified: .*{how}")


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=300), st.integers(1, 80))
def test_decryption_returns_the_original_bytes(data: bytes, chunk: int) -> None:
    assert opened(sealed(data, chunk)) == data


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_sizes_around_a_chunk_are_encrypted_and_decrypted(size: int) -> None:
    data = secrets.token_bytes(size)
    assert opened(sealed(data)) == data


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=100), st.integers(1, 40), st.data())
def test_a_flipped_bit_is_detected(data: bytes, chunk: int, draw: st.DataObject) -> None:
    changed = bytearray(sealed(data, chunk))
    place = draw.draw(st.integers(0, 8 * len(changed) - 1))
    changed[place // 8] ^= 1 << place % 8
    with pytest.raises(DataError):
        opened(bytes(changed))


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=100), st.integers(1, 40), st.data())
def test_truncated_and_appended_bytes_are_detected(data: bytes, chunk: int, draw: st.DataObject) -> None:
    whole = sealed(data, chunk)
    cut = draw.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DataError):
        opened(whole[:cut])
    with pytest.raises(DataError):
        opened(whole + draw.draw(st.binary(min_size=1, max_size=60)))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 3), max_size=6).filter(lambda order: order != [0, 1, 2, 3]))
def test_reordered_repeated_and_missing_chunks_are_detected(order: list[int]) -> None:
    whole = sealed(secrets.token_bytes(4 * 32), 32)
    start = body(whole)
    chunks = [whole[start + 48 * n : start + 48 * (n + 1)] for n in range(4)]
    with pytest.raises(DataError):
        opened(whole[:start] + b"".join(chunks[n] for n in order))


def test_chunks_of_another_file_with_the_same_keys_are_detected() -> None:
    one, other = sealed(b"a" * 100, 32), sealed(b"b" * 100, 32)
    with refused_as_modified("chunk 0"):
        opened(one[: body(one)] + other[body(other) :])


def test_a_header_of_another_subject_fails_decryption() -> None:
    whole = sealed(b"weights")
    with refused_as_modified("chunk 0"):
        opened(whole.replace(b'"mosi"', b'"iemo"'))


@pytest.mark.parametrize("keys", [KEYS[::-1], [KEYS[0], bytes(32)], [bytes(32), KEYS[1]], KEYS[:1]])
def test_all_keys_are_needed_in_order(keys: list[bytes]) -> None:
    with refused_as_modified("chunk 0"):
        opened(sealed(b"weights"), keys)


def test_the_same_bytes_encrypt_differently_each_time() -> None:
    assert sealed(b"x" * 100) != sealed(b"x" * 100)


@pytest.mark.parametrize("data", [b"", b"MBDX", b"PK\3\4" + bytes(40), b"MBDX\xff\xff\xff\xff" + bytes(40)])
def test_files_of_another_format_are_refused(data: bytes) -> None:
    with refused_as_modified("does not start with MBDX"):
        opened(data)


def test_a_header_needs_a_key_for_each_modality() -> None:
    with refused_as_modified("one key for each modality"):
        opened(sealed(b"", keys=KEYS[:1]))
