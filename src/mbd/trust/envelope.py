"""DSSE v1 envelopes: a payload, its type, and signatures over both.

    PAE(type, payload) = "DSSEv1" SP len(type) SP type SP len(payload) SP payload        what is signed

An envelope is stored as canonical JSON (RFC 8785) with strict base64 and its signatures in the order of their key
ids, so one set of signatures has one form: anything else is refused, and the digest of the bytes is the certificate's
name. Which signatures count is decided by :mod:`mbd.verifier.reader`.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import rfc8785
from pydantic import ConfigDict, Field, ValidationError, model_validator

from mbd.errors import UsageError, VerificationError
from mbd.records import Digest, Record, invalid
from mbd.trust.public_keys import key_id, public_pem

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

PAYLOAD_TYPE = "application/vnd.in-toto+json"


def _plain(text: str) -> bytes:
    """Return what base64 encodes; ValueError unless it is the one text that does."""
    try:
        plain = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError("not base64") from error
    if _base64(plain) != text:
        raise ValueError("not canonical base64")
    return plain


class EnvelopeSignature(Record):
    """A signature and the key that is said to have made it."""

    keyid: Digest
    sig: str

    @cached_property
    def value(self) -> bytes:
        """The signature's bytes."""
        return _plain(self.sig)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        _ = self.value
        return self


class Envelope(Record):
    """A signed payload."""

    model_config = ConfigDict(populate_by_name=True)

    payload: str
    payload_type: str = Field(alias="payloadType")
    signatures: tuple[EnvelopeSignature, ...]

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        _ = self.content
        ids = [signature.keyid for signature in self.signatures]
        if not ids or ids != sorted(set(ids)):
            raise ValueError("an envelope has at least one signature, each key's once, in the order of the key ids")
        return self

    @cached_property
    def content(self) -> bytes:
        """The payload's bytes."""
        return _plain(self.payload)

    @property
    def signed(self) -> bytes:
        """What the signatures are over."""
        return pae(self.payload_type, self.content)

    def to_bytes(self) -> bytes:
        """Return the one stored form, canonical JSON."""
        return rfc8785.dumps(self.model_dump(by_alias=True))

    @property
    def digest(self) -> str:
        """SHA-256 of the stored form: the certificate's name, and its leaf in the log."""
        return certificate_digest(self.to_bytes())

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the envelope in `data`; VerificationError for anything but the one stored form of one."""
        try:
            envelope = cls.model_validate_json(data)
            if envelope.to_bytes() == data:
                return envelope
            json.loads(data, object_pairs_hook=_without_duplicates)
        except ValidationError as error:
            raise invalid(error, "signed envelope", kind=VerificationError) from error
        except (ValueError, RecursionError) as error:
            raise _no_envelope(str(error)) from error
        raise _no_envelope("it is not in canonical form")


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding: both parts with their lengths, so that no two pairs look alike."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, payload_type: str, signers: "Sequence[Signer]") -> Envelope:
    """Return `payload` signed by every signer; two signers with one key are a UsageError."""
    message = pae(payload_type, payload)
    by_id = {key_id(public_pem(signer)): signer for signer in signers}
    if not signers or len(by_id) != len(signers):
        raise UsageError("a certificate is signed by at least one key, and by each key once", key="certificate.signers")
    signatures = tuple(
        EnvelopeSignature(keyid=keyid, sig=_base64(bytes.fromhex(by_id[keyid].sign(message).signature)))
        for keyid in sorted(by_id)
    )
    return Envelope(payload=_base64(payload), payload_type=payload_type, signatures=signatures)


def certificate_digest(envelope: bytes) -> str:
    """Return the name of a certificate: the SHA-256 of its envelope."""
    return hashlib.sha256(envelope).hexdigest()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key occurs twice")
    return members


def _no_envelope(why: str) -> VerificationError:
    return VerificationError(f"the signed envelope is not valid: {why}")
