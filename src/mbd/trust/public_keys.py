"""Public keys: PEM, known by the SHA-256 of their SubjectPublicKeyInfo, and whether one has signed.

Schemes have the names that securesystemslib gives them, which also signs; verification needs `cryptography` alone.
"""

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

ED25519 = "ed25519"
"""the scheme by default"""
_HASHES = {"sha256": SHA256(), "sha384": SHA384(), "sha512": SHA512()}
_CURVES = {
    "secp256r1": ("ecdsa-sha2-nistp256", SHA256()),
    "secp384r1": ("ecdsa-sha2-nistp384", SHA384()),
    "secp521r1": ("ecdsa-sha2-nistp521", SHA512()),
}


def public_pem(signer: "Signer") -> str:
    """Return the public half of a signer's key as PEM."""
    key = signer.public_key
    if key.keytype == ED25519:
        return _pem(Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.keyval["public"])))
    return _pem(load_pem_public_key(key.keyval["public"].encode()))


@lru_cache
def key_id(pem: str) -> str:
    """Return the id of a public key: the SHA-256 of its SubjectPublicKeyInfo (DER)."""
    return hashlib.sha256(_load(pem).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def normal_pem(pem: str) -> str:
    """Return a public key's PEM in its stored form; ValueError if it is not a public key."""
    try:
        return _pem(_load(pem))
    except UnsupportedAlgorithm as error:
        raise ValueError(f"unknown kind of public key: {error}") from error


@lru_cache
def schemes_of(pem: str) -> tuple[str, ...]:
    """Return the schemes by which a key of this kind can sign, the default first; ValueError if there is none."""
    key = _load(pem)
    if isinstance(key, Ed25519PublicKey):
        return (ED25519,)
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return (_CURVES[key.curve.name][0],)
    if isinstance(key, RSAPublicKey):
        return tuple(f"{padding}-{name}" for padding in ("rsassa-pss", "rsa-pkcs1v15") for name in _HASHES)
    raise ValueError(f"a key of this kind cannot be used: {type(key).__name__}")


@lru_cache
def raw_ed25519(pem: str) -> bytes:
    """Return the 32 bytes of an Ed25519 key; ValueError for any other."""
    key = _load(pem)
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("not an Ed25519 key")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def is_signature(pem: str, scheme: str, signature: bytes, message: bytes) -> bool:
    """Return whether the key has signed `message` by a scheme of :func:`schemes_of`."""
    key = _load(pem)
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, message)
        elif isinstance(key, EllipticCurvePublicKey):
            key.verify(signature, message, ECDSA(_CURVES[key.curve.name][1]))
        else:
            padding, _, name = scheme.rpartition("-")
            digest = _HASHES[name]
            pss = PSS(MGF1(digest), PSS.AUTO)
            key.verify(signature, message, pss if padding == "rsassa-pss" else PKCS1v15(), digest)
    except InvalidSignature:
        return False
    return True


@lru_cache
def _load(pem: str) -> Any:  # noqa: ANN401 -- any kind of public key
    return load_pem_public_key(pem.encode())


def _pem(key: Any) -> str:  # noqa: ANN401 -- any kind of public key
    pem: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()
