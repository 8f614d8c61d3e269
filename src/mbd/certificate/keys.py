"""Private keys and who holds them: files of our own, or a KMS or HSM by its URI.

    file:PATH                     PKCS#8 PEM, Ed25519 by default; a passphrase is optional; mode 0600, or any on a
                                  read-only mount, as secrets in a container are
    awskms:…#NAME  hsm:…#NAME     what `securesystemslib` knows; NAME is the key's holder in the trust file

Secrets (the passphrase, an HSM's PIN) come from the environment, `MBD_KEY_PASSPHRASE` or `MBD_KEY_PIN`, or are asked
for on a terminal. They are never an argument or a parameter.
"""

import os
import sys
from getpass import getpass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from securesystemslib.exceptions import UnsupportedLibraryError
from securesystemslib.signer import SIGNER_FOR_URI_SCHEME, CryptoSigner, Signer

from mbd.certificate.public_keys import public_pem, to_key
from mbd.certificate.trust import Trust
from mbd.errors import MbdError, UsageError
from mbd.files import write_file

FILE_SCHEME = "file"


def load_signer(uri: str, trust: Trust | None = None) -> Signer:
    """Return the signer at a URI. `trust` is needed for a KMS or HSM, whose public key it holds."""
    scheme, _, rest = uri.partition(":")
    if scheme == FILE_SCHEME:
        return _file_signer(Path(rest.removeprefix("//")))
    if scheme not in SIGNER_FOR_URI_SCHEME:
        raise UsageError(
            "there is no such kind of key",
            key="certificate.signers",
            value=uri,
            hint=f"write file:PATH, or URI#NAME with one of {', '.join(sorted(SIGNER_FOR_URI_SCHEME))}",
        )
    return _remote_signer(*_split_name(uri), trust)


def new_key(file: Path, passphrase: str | None = None) -> str:
    """Make an Ed25519 key in `file` (and `.pub` beside it); return its public half. An existing file is never touched.

    The public half is written first: where there is a private key, there is a public one.
    """
    private = Ed25519PrivateKey.generate()
    public = public_pem(CryptoSigner(private))
    encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    file.parent.mkdir(parents=True, exist_ok=True)
    _write_private(file, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption), public)
    return public


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


def _write_private(file: Path, private: bytes, public: str) -> None:
    """Write both halves so that `file` appears whole, readable by its owner only, and after its public half."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.partial")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(handle, 0o600)
            stream.write(private)
            stream.flush()
            os.fsync(handle)
        if file.exists():
            raise FileExistsError
        write_file(file.with_suffix(".pub"), public)
        os.link(temporary, file)  # unlike a rename, it never replaces a key
    except FileExistsError as error:
        raise UsageError(
            "there is a key already, and it is not overwritten",
            file=file,
            hint="`mbd keys rotate` makes a new one in its place; --if-none keeps this one; --name makes another",
        ) from error
    finally:
        temporary.unlink()


def _file_signer(file: Path) -> Signer:
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            mounted = os.fstatvfs(stream.fileno()).f_flag & os.ST_RDONLY
            data = stream.read()
    except OSError as error:
        raise UsageError(
            f"the private key cannot be read: {error.strerror}",
            file=file,
            hint="`mbd keys new` makes keys; certificate.signers and certificate.log_signer say where they are",
        ) from error
    # A secret in a container is mounted read-only, with the mode that whoever mounted it has chosen.
    if mode & 0o077 and not mounted:
        raise UsageError("others than its owner may read the private key", file=file, hint=f"chmod 600 {file}")
    passphrase = ask_secret("passphrase").encode() if b"ENCRYPTED" in data.partition(b"\n")[0] else None
    try:
        return CryptoSigner(load_pem_private_key(data, passphrase))
    except (ValueError, TypeError) as error:
        problem = "the passphrase is wrong, or the private key is damaged" if passphrase else "this is no private key"
        raise UsageError(problem, file=file, hint="it is PKCS#8 PEM, as `mbd keys new` writes it") from error


def _split_name(uri: str) -> tuple[str, str]:
    address, _, name = uri.rpartition("#")
    if not address or not name:
        raise UsageError(
            "it is not said which public key belongs to this URI",
            key="certificate.signers",
            value=uri,
            hint="`mbd keys add` puts the public key into the trust file under a name; then write URI#NAME",
        )
    return address, name


def _remote_signer(uri: str, name: str, trust: Trust | None) -> Signer:
    scheme = uri.partition(":")[0]
    if trust is None:
        raise UsageError("a KMS or HSM key needs the trust file, which holds its public key", value=uri)
    key = trust.find(name)
    try:
        return Signer.from_priv_key_uri(uri, to_key(key.public, key.scheme), ask_secret)
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
