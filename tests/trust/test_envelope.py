"""DSSE envelopes: one form, signatures that count, and no change that goes unnoticed."""

import base64
import json
from typing import Any

import pytest
import rfc8785
import securesystemslib.dsse
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mbd.errors import UsageError, VerificationError
from mbd.trust.envelope import PAYLOAD_TYPE, Envelope, EnvelopeSignature, pae, sign
from mbd.trust.keys import library_key
from mbd.verifier.reader import parse_envelope
from tests.refusals import refused
from tests.trust.keys import Keys, keys_in

PAYLOAD = b'{"what":"audio"}'


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return keys_in(tmp_path_factory.mktemp("keys"), "ann", "bob", "cecil")


@pytest.fixture(scope="module")
def envelope(keys: Keys) -> Envelope:
    return sign(PAYLOAD, PAYLOAD_TYPE, [keys.signer("ann"), keys.signer("bob")])


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
    trusted = [library_key(key.public, key.scheme) for key in keys.trust.keys_for("certificate")]
    assert len(theirs.verify(trusted, 2)) == 2


@pytest.mark.parametrize("odd", ["\\ud800", "\\udfff\\ud800"])
def test_a_lone_surrogate_in_the_payload_type_is_a_finding(envelope: Envelope, odd: str) -> None:
    changed = envelope.to_bytes().replace(PAYLOAD_TYPE.encode(), odd.encode())
    with pytest.raises(VerificationError, match="not valid"):
        Envelope.parse(changed)
    checks = parse_envelope(changed).checks
    assert checks[0].outcome == "failed"
    assert checks[0].reason.isprintable()


def by_the_standard_library(text: str) -> bytes | None:
    """Return what base64 encodes; None unless it is what an encoder writes."""
    try:
        plain = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return plain if base64.b64encode(plain).decode() == text else None


@settings(deadline=None, max_examples=1000)
@given(
    st.text(alphabet='AQg9+/-_= \n\\"é', max_size=9) | st.binary(max_size=9).map(lambda b: base64.b64encode(b).decode())
)
def test_base64_has_one_form(text: str) -> None:
    try:
        found = EnvelopeSignature(keyid="a" * 64, sig=text).value
    except ValidationError:
        found = None
    assert found == by_the_standard_library(text)


def test_a_key_signs_once(keys: Keys) -> None:
    with refused(UsageError, key="certificate.signers"):
        sign(PAYLOAD, PAYLOAD_TYPE, [keys.signer("ann"), keys.signer("ann")])
    with refused(UsageError, key="certificate.signers"):
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
        (data[:-1], "envelope is not valid"),
        (b"\xff", "envelope is not valid"),
        (b"[" * 100_000, "envelope is not valid"),
        (b"[]", "envelope is not valid"),
    ]:
        with pytest.raises(VerificationError, match=why):
            Envelope.parse(other)
