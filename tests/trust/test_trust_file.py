"""The trust file: who counts, when, and that damage shows."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mbd.errors import DataError, UsageError
from mbd.trust.keys import find_key, trusted_key
from mbd.trust.trust_file import KeyRevocation, Logged, Trust, TrustedKey, explain_refusal, read_trust, write_trust
from tests.refusals import refused, refused_as_unreadable
from tests.trust.keys import Keys, keys_in

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return keys_in(tmp_path_factory.mktemp("keys"), "ann", "bob")


@pytest.fixture
def key(keys: Keys) -> TrustedKey:
    window = {"valid_from": NOON, "valid_until": NOON + 10 * HOUR}
    return keys.trust.keys_for("certificate")[0].model_copy(update=window)


def revoked(key: TrustedKey, at: datetime, log_size: int | None = None) -> TrustedKey:
    return key.model_copy(update={"revoked": KeyRevocation(at=at, reason="the laptop was stolen", log_size=log_size)})


@pytest.mark.parametrize(
    ("signed", "logged", "why"),
    [
        (NOON + HOUR, None, None),
        (NOON + HOUR, NOON + 2 * HOUR, None),
        (NOON - timedelta(minutes=2), NOON, None),  # clocks differ
        (NOON - HOUR, None, "before the key was valid"),
        (NOON + 11 * HOUR, None, "after the key had expired"),
        (NOON + HOUR, NOON + 11 * HOUR, "after the key had expired"),  # backdated: an expired key was used
        (NOON + 2 * HOUR, NOON + HOUR, "after it was logged"),
    ],
)
def test_a_signature_counts_if_its_time_and_the_logs_time_are_in_the_keys_window(
    key: TrustedKey, signed: datetime, logged: datetime | None, why: str | None
) -> None:
    found = explain_refusal(key, signed, Logged(0, logged) if logged else None)
    assert found is None if why is None else why in (found or "")


def test_a_revoked_key_counts_only_for_what_the_log_had_before(key: TrustedKey) -> None:
    signed = NOON + HOUR
    by_time = revoked(key, NOON + 5 * HOUR)
    assert explain_refusal(by_time, signed, Logged(3, NOON + 4 * HOUR)) is None
    assert "the log entry came later" in (explain_refusal(by_time, signed, Logged(3, NOON + 6 * HOUR)) or "")
    assert "no log entry shows" in (explain_refusal(by_time, signed, None) or "")


def test_the_order_of_the_log_decides_where_the_revocation_names_its_size(key: TrustedKey) -> None:
    by_order = revoked(key, NOON + 5 * HOUR, log_size=4)
    assert explain_refusal(by_order, NOON + HOUR, Logged(3, NOON + 6 * HOUR)) is None
    assert (
        explain_refusal(by_order, NOON + HOUR, Logged(4, NOON + HOUR)) is not None
    )  # whatever time the log's key writes
    assert explain_refusal(by_order, NOON + 5 * HOUR, Logged(3, NOON + 6 * HOUR)) is not None


def test_what_is_written_is_read(keys: Keys, tmp_path: Path) -> None:
    trust = keys.trust
    assert [key.name for key in trust.keys] == ["log", "ann", "bob"]
    write_trust(tmp_path / "copy.json", trust)
    assert read_trust(tmp_path / "copy.json") == trust


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_no_changed_byte_is_accepted(keys: Keys, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    original = (keys.folder / "trust.json").read_bytes()
    place = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != original[place]))
    file = tmp_path_factory.mktemp("changed") / "trust.json"
    file.write_bytes(original[:place] + bytes([byte]) + original[place + 1 :])
    with pytest.raises(DataError):
        read_trust(file)


def test_an_inconsistent_trust_file_is_refused(keys: Keys) -> None:
    trust = keys.trust
    with pytest.raises(ValidationError, match="listed twice"):
        Trust(log_origin=trust.log_origin, keys=(*trust.keys, trust.keys[0]))
    with pytest.raises(ValidationError, match="3 holders must sign"):
        Trust(log_origin=trust.log_origin, keys=trust.keys, threshold=3)
    other = trust.keys[1].model_copy(update={"public": trust.keys[2].public})
    with pytest.raises(ValidationError, match="do not belong together"):
        TrustedKey.model_validate(other.model_dump())


def test_a_key_is_found_by_name_or_by_the_start_of_its_id(keys: Keys) -> None:
    trust = keys.trust
    bob = find_key(trust, "bob")
    assert find_key(trust, bob.id[:8]) == bob
    for unknown in ("eve", bob.id[:7], "ffffffffffff"):
        with refused(UsageError, value=unknown):
            find_key(trust, unknown)


def test_what_is_no_public_key_cannot_be_trusted() -> None:
    with pytest.raises(UsageError, match="cannot be trusted"):
        trusted_key("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "eve", "certificate", NOON)


def test_a_missing_trust_file_says_so(tmp_path: Path) -> None:
    with refused_as_unreadable(tmp_path / "trust.json"):
        read_trust(tmp_path / "trust.json")
