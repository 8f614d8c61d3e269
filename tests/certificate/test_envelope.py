"""DSSE envelopes: one form, signatures that count, and no change that goes unnoticed."""

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import rfc8785
import securesystemslib.dsse
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib.signer import CryptoSigner

from mbd.certificate.envelope import PAYLOAD_TYPE, Envelope, judge_signatures, pae, sign, verify_envelope
from mbd.certificate.keyring import add_key, rotate_key, set_threshold
from mbd.certificate.public_keys import public_pem, to_key
from mbd.certificate.trust import Trust
from mbd.errors import UsageError, VerificationError
from mbd.records import now
from tests.certificate.keys import Keys, keys_in

PAYLOAD = b'{"what":"audio"}'


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return keys_in(tmp_path_factory.mktemp("keys"), "ann", "bob", "cecil")


@pytest.fixture(scope="module")
def envelope(keys: Keys) -> Envelope:
    return sign(PAYLOAD, PAYLOAD_TYPE, [keys.signer("ann"), keys.signer("bob")])


def with_threshold(trust: Trust, threshold: int) -> Trust:
    return trust.model_copy(update={"threshold": threshold})


def test_what_is_signed_is_as_the_dsse_specification_shows_it() -> None:
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_an_envelope_is_read_as_it_was_written(envelope: Envelope) -> None:
    again = Envelope.parse(envelope.to_bytes())
    assert again == envelope
    assert again.content == PAYLOAD
    assert set(json.loads(envelope.to_bytes())) == {"payload", "payloadType", "signatures"}


def test_another_implementation_accepts_it(keys: Keys, envelope: Envelope) -> None:
    theirs = securesystemslib.dsse.Envelope.from_dict(json.loads(envelope.to_bytes()))
    trusted = [to_key(key.public, key.scheme) for key in keys.trust.keys_for("certificate")]
    assert len(theirs.verify(trusted, 2)) == 2


def test_the_threshold_counts_holders(keys: Keys, envelope: Envelope) -> None:
    for threshold in (1, 2):
        assert verify_envelope(envelope, with_threshold(keys.trust, threshold), now()) == ["ann", "bob"]
    with pytest.raises(VerificationError, match="2 of the 3 signatures"):
        verify_envelope(envelope, with_threshold(keys.trust, 3), now())


def test_two_keys_of_one_holder_count_once(tmp_path: Path) -> None:
    keys = keys_in(tmp_path, "ann", "bob")
    old = keys.signer("ann")
    rotate_key(tmp_path, "ann", overlap=timedelta(days=1))
    set_threshold(tmp_path / "trust.json", 2)
    twice = sign(PAYLOAD, PAYLOAD_TYPE, [old, keys.signer("ann")])
    assert all(one.refused is None for one in judge_signatures(twice, keys.trust, now()))
    with pytest.raises(VerificationError, match="1 of the 2"):
        verify_envelope(twice, keys.trust, now())


def test_keys_that_are_unknown_or_for_another_purpose_do_not_count(keys: Keys, tmp_path: Path) -> None:
    stranger = keys_in(tmp_path, "eve").signer("eve")
    for signer, why in ((stranger, "nobody in the trust file"), (keys.log, "not trusted to sign certificates")):
        with pytest.raises(VerificationError, match=why):
            verify_envelope(sign(PAYLOAD, PAYLOAD_TYPE, [signer]), keys.trust, now())


def test_other_kinds_of_keys_sign_as_well(tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    signer = CryptoSigner(generate_private_key(SECP256R1()))
    add_key(tmp_path / "trust.json", public_pem(signer), "kms", "certificate")
    assert verify_envelope(sign(PAYLOAD, PAYLOAD_TYPE, [signer]), keys.trust, now()) == ["kms"]


def test_a_key_signs_once(keys: Keys) -> None:
    with pytest.raises(UsageError, match="each key once"):
        sign(PAYLOAD, PAYLOAD_TYPE, [keys.signer("ann"), keys.signer("ann")])
    with pytest.raises(UsageError, match="at least one key"):
        sign(PAYLOAD, PAYLOAD_TYPE, [])


def changed(envelope: Envelope, **changes: Any) -> bytes:
    return rfc8785.dumps(json.loads(envelope.to_bytes()) | changes)


def test_there_is_one_form_of_an_envelope(envelope: Envelope) -> None:
    data = envelope.to_bytes()
    plain = json.loads(data)
    signatures = plain["signatures"]
    loose = base64.b64encode(PAYLOAD + b"x").decode().replace("=", "")
    for other, why in [
        (json.dumps(plain).encode(), "canonical"),
        (data + b"\n", "canonical"),
        (data.replace(b'"payload":', b'"payload":"","payload":', 1), "twice"),
        (changed(envelope, note="hello"), "Extra inputs"),
        (changed(envelope, payload_type=PAYLOAD_TYPE), "Extra inputs|canonical"),
        (changed(envelope, signatures=signatures[::-1]), "in the order"),
        (changed(envelope, signatures=signatures[:1] * 2), "each key's once"),
        (changed(envelope, signatures=[]), "at least one"),
        (changed(envelope, payload=loose), "base64"),
        (changed(envelope, payload="a" + plain["payload"][1:] + "\n"), "base64"),
        (data[:-1], "not a signed certificate"),
        (b"\xff", "not a signed certificate"),
        (b"[" * 100_000, "not a signed certificate"),
        (b"[]", "not a signed certificate"),
    ]:
        with pytest.raises(VerificationError, match=why):
            Envelope.parse(other)


@settings(deadline=None, max_examples=400)
@given(data=st.data())
def test_no_changed_byte_is_accepted(keys: Keys, envelope: Envelope, data: st.DataObject) -> None:
    original = envelope.to_bytes()
    trust = with_threshold(keys.trust, 2)
    assert verify_envelope(Envelope.parse(original), trust, now())
    place = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != original[place]))
    with pytest.raises(VerificationError):
        verify_envelope(Envelope.parse(original[:place] + bytes([byte]) + original[place + 1 :]), trust, now())
