"""Private keys: where they are, and a folder of them with its trust file.

    file:PATH                     PKCS#8 PEM, Ed25519 by default; a passphrase is optional; mode 0600, or any on a
                                  read-only mount, as secrets in a container are
    awskms:…#NAME  hsm:…#NAME     what `securesystemslib` knows; NAME is the key's holder in the trust file

Secrets (the passphrase, an HSM's PIN) come from the environment, `MBD_KEY_PASSPHRASE` or `MBD_KEY_PIN`, or are asked
for on a terminal. They are never an argument or a parameter.

A folder of keys:

    NAME.pem  NAME.pub       a holder's key            log.pem  log.pub       the log's
    trust.json               who is trusted (:mod:`mbd.trust.trust_file`)
    lineage.key              the secret by which certificates name their lineage (:mod:`mbd.history.lineage`)

A command that was killed is run again: a private key that the trust file does not list yet is added to it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from getpass import getpass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic import ValidationError
from securesystemslib.exceptions import UnsupportedLibraryError
from securesystemslib.signer import SIGNER_FOR_URI_SCHEME, CryptoSigner, Signer, SSlibKey

from mbd.errors import MbdError, UsageError
from mbd.files import locked, read_secret, write_file
from mbd.formats.statement import AnyStatement, to_payload
from mbd.params.operations import CertificateSettings
from mbd.records import invalid, now
from mbd.trust.commitments import new_lineage_key
from mbd.trust.envelope import PAYLOAD_TYPE, Envelope, sign
from mbd.trust.public_keys import key_id, normal_pem, public_pem, schemes_of
from mbd.trust.trust_file import KeyRevocation, Purpose, Trust, TrustedKey, may_sign, read_trust, write_trust

FILE_SCHEME = "file"
TRUST = "trust.json"
LOG = "log"
NEXT = ".next"


def load_signer(uri: str, trust: Trust | None = None, *, key: str = "certificate.signers") -> Signer:
    """Return the signer at a URI, which the parameter `key` has; `trust` holds the public key of a KMS or HSM."""
    scheme, _, rest = uri.partition(":")
    if scheme == FILE_SCHEME:
        return _file_signer(Path(rest.removeprefix("//")))
    if scheme not in SIGNER_FOR_URI_SCHEME:
        raise UsageError(
            "there is no such kind of key",
            key=key,
            value=uri,
            hint=f"write file:PATH, or URI#NAME with one of {', '.join(sorted(SIGNER_FOR_URI_SCHEME))}",
        )
    address, _, name = uri.rpartition("#")
    if not address or not name:
        raise UsageError(
            "the URI does not name its public key",
            key=key,
            value=uri,
            hint="`mbd keys add` puts the public key into the trust file under a name; then write URI#NAME",
        )
    return _remote_signer(address, name, trust)


def sign_statement(statement: AnyStatement, settings: CertificateSettings) -> Envelope:
    """Return the statement signed by every key of `certificate.signers`."""
    file = Path(settings.trust)  # keys of a KMS or HSM are looked up in it
    trust = read_trust(file) if file.exists() else None
    return sign(to_payload(statement), PAYLOAD_TYPE, [load_signer(uri, trust) for uri in settings.signers])


def new_key(file: Path, passphrase: str | None = None) -> str:
    """Make an Ed25519 key in `file` (and `.pub` beside it); return its public half. An existing file is never touched.

    The public half is written first: where there is a private key, there is a public one.
    """
    private = Ed25519PrivateKey.generate()
    public = public_pem(CryptoSigner(private))
    encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    if file.exists():
        raise _exists(file)
    write_file(file.with_suffix(".pub"), public)
    try:
        write_file(file, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption), mode=0o600, new=True)
    except FileExistsError as error:
        raise _exists(file) from error
    return public


def _exists(file: Path) -> UsageError:
    hint = "`mbd keys rotate` makes a new one in its place; --if-none keeps this one; --name makes another"
    return UsageError("there is a key already, and it is not overwritten", file=file, hint=hint)


def ask_secret(name: str, *, twice: bool = False) -> str:
    """Return a secret from the environment or a terminal."""
    variable = f"MBD_KEY_{name.upper().replace(' ', '_')}"
    if (secret := os.environ.get(variable)) is not None:
        return secret
    if not sys.stdin.isatty():
        raise UsageError(
            f"the key needs a {name}, and there is no terminal to ask on",
            hint=f"set the environment variable {variable}",
        )
    secret = getpass(f"{name} of the key: ")
    if twice and getpass(f"{name} again: ") != secret:
        raise UsageError(f"the two {name}s differ", hint="run it again")
    return secret


def _file_signer(file: Path) -> Signer:
    hint = "`mbd keys new` makes keys; certificate.signers and certificate.log_signer say where they are"
    data = read_secret(file, "private key", hint)
    passphrase = ask_secret("passphrase").encode() if b"ENCRYPTED" in data.partition(b"\n")[0] else None
    try:
        return CryptoSigner(load_pem_private_key(data, passphrase))
    except (ValueError, TypeError) as error:
        problem = (
            "the passphrase is wrong, or the private key is damaged" if passphrase else "this is not a private key"
        )
        raise UsageError(problem, file=file, hint="it is PKCS#8 PEM, as `mbd keys new` writes it") from error


def _remote_signer(uri: str, name: str, trust: Trust | None) -> Signer:
    scheme = uri.partition(":")[0]
    if trust is None:
        raise UsageError("a KMS or HSM key needs the trust file, which holds its public key", value=uri)
    key = find_key(trust, name)
    try:
        return Signer.from_priv_key_uri(uri, library_key(key.public, key.scheme), ask_secret)
    except UnsupportedLibraryError as error:
        raise MbdError(
            f"signing by {scheme}: needs a package that is not installed: {error}",
            hint=f"pip install 'securesystemslib[{scheme}]'",
        ) from error
    except MbdError:
        raise
    except Exception as error:
        # every provider has its own errors
        raise MbdError(
            f"the key cannot be used: {error or type(error).__name__}",
            key="certificate.signers",
            value=uri,
            hint="check the URI, and that this machine is allowed to use the key",
        ) from error


def library_key(pem: str, scheme: str) -> SSlibKey:
    """Return a public key as `securesystemslib` uses it."""
    return SSlibKey.from_crypto(load_pem_public_key(pem.encode()), keyid=key_id(pem), scheme=scheme)


def find_key(trust: Trust, name_or_id: str) -> TrustedKey:
    """Return the key of this id (or its start), or the one key of this holder that still signs."""
    keys = [key for key in trust.keys if len(name_or_id) >= 8 and key.id.startswith(name_or_id)]
    keys = keys or [key for key in trust.keys if key.name == name_or_id and may_sign(key, now())]
    if len(keys) != 1:
        raise UsageError(
            "no valid key has this name or id" if not keys else f"{len(keys)} keys match this name or id",
            value=name_or_id,
            hint="`mbd keys list` shows names and ids; give a name or at least 8 letters of an id",
        )
    return keys[0]


def trusted_key(pem: str, name: str, purpose: Purpose, valid_from: datetime, scheme: str | None = None) -> TrustedKey:
    """Return a key to be trusted; UsageError if it is not a public key that can be trusted."""
    try:
        pem = normal_pem(pem)
        scheme = scheme or schemes_of(pem)[0]
        return TrustedKey(id=key_id(pem), name=name, purpose=purpose, scheme=scheme, public=pem, valid_from=valid_from)
    except ValueError as error:
        raise UsageError(
            f"this public key cannot be trusted: {error}",
            hint="give a PEM file (SubjectPublicKeyInfo) with an Ed25519, ECDSA or RSA key; a log needs Ed25519",
        ) from error


# A folder of keys


def make_keys(
    folder: Path,
    name: str,
    *,
    passphrase: str | None = None,
    origin: str | None = None,
    days: int | None = None,
    if_none: bool = False,
) -> Trust:
    """Make a holder's key, and the log's key if there is none; add both to the trust file.

    A key that is there already is a UsageError, unless `if_none` is said: then it is kept.
    """
    if name == LOG or name.endswith(NEXT):
        raise UsageError("a holder cannot have this name", key="--name", value=name, hint="choose another")
    with _editing(folder):
        public = _made(folder, name, passphrase)
        trust = read_trust(folder / TRUST) if (folder / TRUST).exists() else None
        if trust is None or not any(may_sign(key, now()) for key in trust.keys_for("log")):
            log_key = trusted_key(_made(folder, LOG, passphrase), LOG, "log", now())
            origin = origin or (trust.log_origin if trust else f"missing-by-design/{log_key.id[:16]}")
            trust = _valid(trust.with_key(log_key) if trust else Trust(log_origin=origin, keys=(log_key,)))
        elif origin is not None and origin != trust.log_origin:
            raise UsageError("the log has a name already", key="--origin", value=trust.log_origin)
        if key_id(public) not in {key.id for key in trust.keys}:
            key = trusted_key(public, name, "certificate", now())
            end = None if days is None else key.valid_from + timedelta(days=days)
            trust = trust.with_key(key.model_copy(update={"valid_until": end}))
        elif not if_none:
            raise _exists(folder / f"{name}.pem")
        new_lineage_key(folder)
        write_trust(folder / TRUST, trust)
        return trust


def rotate_key(folder: Path, name: str, *, passphrase: str | None = None, overlap: timedelta) -> TrustedKey:
    """Make a new key for a holder; the old private key is destroyed, and what it signed may be logged for `overlap`."""
    with _editing(folder):
        trust = read_trust(folder / TRUST)
        old = [key for key in trust.keys if key.name == name]
        if not old:
            raise UsageError("no holder of this name has a key", value=name, hint="`mbd keys list` shows all names")
        following = name + NEXT
        public = _made(folder, following, passphrase)
        fresh = trusted_key(public, name, old[-1].purpose, now())
        if fresh.id not in {key.id for key in trust.keys}:
            for key in old:
                if may_sign(key, fresh.valid_from):
                    trust = trust.with_key(key.model_copy(update={"valid_until": fresh.valid_from + overlap}))
            write_trust(folder / TRUST, trust.with_key(fresh))
        write_file(folder / f"{name}.pub", public)
        (folder / f"{following}.pem").replace(folder / f"{name}.pem")  # last: as long as it waits, this is taken up
        (folder / f"{following}.pub").unlink()
        return fresh


def revoke_key(file: Path, name_or_id: str, reason: str, log_size: int | None) -> TrustedKey:
    """Trust a key no longer; `log_size`: entries of the log before this one were made in time."""
    with _editing(file.parent):
        trust = read_trust(file)
        key = find_key(trust, name_or_id)
        if key.revoked is not None:
            raise UsageError("this key is revoked already", value=key.id[:12])
        revocation = KeyRevocation(at=now(), reason=reason, log_size=log_size)
        revoked = key.model_copy(update={"revoked": revocation})
        write_trust(file, trust.with_key(revoked))
        return revoked


def add_key(file: Path, pem: str, name: str, purpose: Purpose, scheme: str | None = None) -> TrustedKey:
    """Trust the public key of another holder, or of a KMS or HSM."""
    with _editing(file.parent):
        trust = read_trust(file)
        key = trusted_key(pem, name, purpose, now(), scheme)
        if key.id in {known.id for known in trust.keys}:
            raise UsageError("this key is in the trust file already", value=key.id[:12])
        write_trust(file, trust.with_key(key))
        return key


def set_threshold(file: Path, threshold: int) -> Trust:
    """Set how many holders must have signed a certificate."""
    with _editing(file.parent):
        trust = _valid(read_trust(file).model_copy(update={"threshold": threshold}))
        write_trust(file, trust)
        return trust


def _made(folder: Path, name: str, passphrase: str | None) -> str:
    """Return the public half of the key of this name; make it if there is none."""
    file = folder / f"{name}.pem"
    return file.with_suffix(".pub").read_text() if file.exists() else new_key(file, passphrase)


def _valid(trust: Trust) -> Trust:
    try:
        return Trust.model_validate(trust.model_dump())
    except ValidationError as error:
        raise invalid(error, "trust file", kind=UsageError) from error


@contextmanager
def _editing(folder: Path) -> Iterator[None]:
    """Be alone in the folder; what a killed predecessor has left half-written is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=True):
        for pattern in (".*.pem.partial.*", ".*.pub.partial.*", ".*.key.partial.*", f".{TRUST}.partial.*"):
            for left in folder.glob(pattern):
                left.unlink()
        yield
