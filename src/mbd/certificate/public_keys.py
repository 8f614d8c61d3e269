"""Public keys as the trust file holds them: PEM, known by the SHA-256 of their SubjectPublicKeyInfo."""

import hashlib
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import Signature, Signer, SSlibKey

ED25519 = "ed25519"
"""the scheme by default"""


def public_pem(signer: Signer) -> str:
    """Return the public half of a signer's key as PEM."""
    key = signer.public_key
    if key.keytype == ED25519:
        raw = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.keyval["public"]))
        return _pem(raw)
    return _pem(load_pem_public_key(key.keyval["public"].encode()))


def key_id(pem: str) -> str:
    """Return the id of a public key: the SHA-256 of its SubjectPublicKeyInfo (DER)."""
    der = load_pem_public_key(pem.encode()).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def normal_pem(pem: str) -> str:
    """Return a public key's PEM in the one way that it is stored; ValueError if it is none."""
    try:
        return _pem(load_pem_public_key(pem.encode()))
    except UnsupportedAlgorithm as error:
        raise ValueError(f"no known kind of public key: {error}") from error


def default_scheme(pem: str) -> str:
    """Return the scheme by which a key of this kind signs, if nobody says otherwise; ValueError if there is none."""
    scheme: str = SSlibKey.from_crypto(load_pem_public_key(pem.encode())).scheme
    return scheme


def to_key(pem: str, scheme: str) -> SSlibKey:
    """Return the key as `securesystemslib` uses it; ValueError if it is none, or not one of this scheme."""
    key = SSlibKey.from_crypto(load_pem_public_key(pem.encode()), keyid=key_id(pem), scheme=scheme)
    SSlibKey.from_dict(key.keyid, key.to_dict())
    return key


def raw_ed25519(pem: str) -> bytes:
    """Return the 32 bytes of an Ed25519 key; ValueError for any other."""
    key = load_pem_public_key(pem.encode())
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("not an Ed25519 key")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def is_signature(key: SSlibKey, signature: bytes, message: bytes) -> bool:
    """Tell whether `key` has signed `message`."""
    try:
        key.verify_signature(Signature(key.keyid, signature.hex()), message)
    except UnverifiedSignatureError:
        return False
    return True


def _pem(key: Any) -> str:  # noqa: ANN401 -- any kind of public key
    pem: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()
