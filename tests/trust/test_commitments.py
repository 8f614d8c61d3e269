"""Commitments are binding and hiding; only the owner can read their openings."""

import hashlib
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.trust.commitments import Commitments, Opening, commit, keep_private, read_private
from tests.refusals import refused_as_unreadable

SALT = bytes(range(32))


def test_a_commitment_is_the_hash_that_the_format_says() -> None:
    expected = hashlib.sha256(b"missing-by-design/commitment/v1\0" + SALT + b"subject\0" + b"speaker 7").hexdigest()
    assert commit("subject", "speaker 7", SALT) == expected


@given(st.text(), st.text(), st.binary(min_size=32, max_size=32))
@settings(deadline=None, max_examples=50)
def test_only_the_committed_value_opens_it(value: str, other: str, salt: bytes) -> None:
    commitment = commit("subject", value, salt)
    assert commitment == Opening(kind="subject", value=value, salt=salt.hex()).commitment
    assert commitment != Opening(kind="weights", value=value, salt=salt.hex()).commitment
    assert (commitment == Opening(kind="subject", value=other, salt=salt.hex()).commitment) == (value == other)
    other_salt = bytes([salt[0] ^ 1]) + salt[1:]
    assert commitment != Opening(kind="subject", value=value, salt=other_salt.hex()).commitment


def test_a_value_has_one_commitment_in_a_certificate_and_another_one_in_the_next() -> None:
    one, next_one = Commitments(), Commitments()
    assert one.to("weights", "a" * 64) == one.to("weights", "a" * 64)
    assert one.to("weights", "a" * 64) != next_one.to("weights", "a" * 64)
    assert len(one.openings) == 1


def test_the_order_of_commitments_is_not_that_of_the_values() -> None:
    names = [f"speaker {i}" for i in range(20)]
    commitments = Commitments()
    listed = commitments.to_all("subject", names)
    assert list(listed) == sorted(listed) != [commitments.to("subject", name) for name in names]


def test_a_salt_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        commit("subject", "x", b"short")


def test_the_private_file_is_its_owners_only_and_opens_every_commitment(tmp_path: Path) -> None:
    commitments = Commitments()
    shown = commitments.to("weights", "b" * 64)
    file = keep_private(tmp_path / "private", "c" * 64, commitments.openings)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    (opening,) = read_private(file).openings
    assert opening.commitment == shown
    with refused_as_unreadable(tmp_path / "nothing.json"):
        read_private(tmp_path / "nothing.json")
