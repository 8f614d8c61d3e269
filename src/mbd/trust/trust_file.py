"""Who is trusted, since when and until when: the trust file, obtained independently of the certificate.

A key has a holder's name, a purpose (it signs certificates, or the log's checkpoints) and a window of validity. A
certificate needs signatures of `threshold` different holders; two keys of one holder, an old and a new one, count once.

**Which times count.** The time at which a certificate says it was signed is the signer's own claim, and a thief of the
key can claim any time. So the claim is compared with the log: an entry of the log came before the time of the
checkpoint that proves it, and before every later entry. A signature counts only if

- the claimed time lies in the key's window, and is not after the log's time (but for a few minutes of clock);
- the entry was logged in the window as well: a key that has expired cannot be used with a backdated signature;
- the key was not revoked, or the entry came before the revocation, by its place in the log where the revocation
  names the log's size, else by the log's time. Without a log entry no signature of a revoked key counts.

**Where it is.** The trust file of a verifier is named by `--trust` or `MBD_TRUST`, or is `trust.json` in the
user's configuration folder; never a file of the current folder, which may have come with the certificate
(:func:`find_trust`). Commands that sign take `certificate.trust`, the issuer's own file.

The log's time is the word of the log's key, so a holder of both keys can still backdate; the *order* cannot be
changed once an older checkpoint is known elsewhere (`mbd log check --since`).
"""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

import click
from pydantic import Field, model_validator

from mbd.errors import DataError, UsageError
from mbd.files import canonical_digest, to_json, write_file
from mbd.records import Line, Record, Time
from mbd.trust.public_keys import key_id, normal_pem, raw_ed25519, schemes_of

CLOCKS_DIFFER_BY = timedelta(minutes=5)
ENVIRONMENT = "MBD_TRUST"
"""environment variable that names the trust file of a verifier"""
NO_TRUST_HINT = (
    f"obtain it independently of the certificate and give --trust FILE, set {ENVIRONMENT}, or save it as "
    "mbd/trust.json in your configuration folder"
)
_HINT = "an issuer makes it by `mbd keys new`, everyone else gets it from them; only `mbd keys` changes it"

Purpose = Literal["certificate", "log"]


Origin = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9./_-]*$", max_length=200)]
HolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$", max_length=80)]


class KeyRevocation(Record):
    """A key is not to be trusted any more."""

    at: Time
    reason: Line
    log_size: Annotated[int, Field(ge=0)] | None
    """entries of the log from this one on came after the revocation; null: judge by the log's time"""


class TrustedKey(Record):
    """A public key, whose it is and what for."""

    id: str
    """SHA-256 of the SubjectPublicKeyInfo"""
    name: HolderName
    """its holder: several keys of one name count once"""
    purpose: Purpose
    scheme: str
    """how it signs, by securesystemslib's name"""
    public: str
    """the public key, PEM"""
    valid_from: Time
    valid_until: Time | None = None
    revoked: KeyRevocation | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if normal_pem(self.public) != self.public or key_id(self.public) != self.id:
            raise ValueError(f"key {self.id[:12]}: id and public key do not belong together")
        if self.scheme not in schemes_of(self.public):
            raise ValueError(f"key {self.id[:12]} does not sign by {self.scheme}")
        if self.purpose == "log":
            raw_ed25519(self.public)
        if self.valid_until is not None and self.valid_until < self.valid_from:
            raise ValueError(f"key {self.id[:12]} ends before it begins")
        return self


class Trust(Record):
    """All that a verifier has to know beforehand."""

    format: Literal["missing-by-design/trust/v1"] = "missing-by-design/trust/v1"
    threshold: Annotated[int, Field(ge=1)] = 1
    """holders who must have signed a certificate"""
    log_origin: Origin
    """name of the log, the first line of its checkpoints"""
    keys: tuple[TrustedKey, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ids = [key.id for key in self.keys]
        if len(set(ids)) != len(ids):
            raise ValueError("the same public key is listed twice")
        holders = {key.name for key in self.keys_for("certificate")}
        if self.threshold > max(1, len(holders)):
            raise ValueError(f"{self.threshold} holders must sign, and {len(holders)} have a key")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical form, as the trust file states it."""
        return canonical_digest(self.to_plain())

    def keys_for(self, purpose: Purpose) -> tuple[TrustedKey, ...]:
        """Return the keys of a purpose, revoked and expired ones too."""
        return tuple(key for key in self.keys if key.purpose == purpose)

    def as_if_none_revoked(self) -> Self:
        """Return this trust without its revocations, to look at what was signed before them."""
        return self.model_copy(update={"keys": tuple(key.model_copy(update={"revoked": None}) for key in self.keys)})

    def with_key(self, changed: TrustedKey) -> Self:
        """Return this trust with a key added, or in the place of the one of the same id."""
        if changed.id in {key.id for key in self.keys}:
            keys = tuple(changed if key.id == changed.id else key for key in self.keys)
        else:
            keys = (*self.keys, changed)
        return self.model_validate(self.model_copy(update={"keys": keys}).model_dump())


class _TrustFile(Record):
    """The file: a digest beside the trust, so that damage shows."""

    trust: Trust
    sha256: str


@dataclass(frozen=True)
class Logged:
    """Where and when, by the log's word, a signature was there already."""

    index: int
    """place in the log"""
    time: datetime
    """of the checkpoint that proves it"""


def may_sign(key: TrustedKey, at: datetime) -> bool:
    """Return whether a key may be used at this time, by the trust file."""
    return key.revoked is None and key.valid_from <= at and (key.valid_until is None or at <= key.valid_until)


def explain_refusal(key: TrustedKey, at: datetime, logged: Logged | None) -> str | None:
    """Say why a good signature of `key`, said to be made `at` and logged so, does not count; None: it counts."""
    times = [("signed", at)] if logged is None else [("signed", at), ("logged", logged.time)]
    for what, time in times:
        early = CLOCKS_DIFFER_BY if what == "signed" else timedelta(0)
        if time + early < key.valid_from:
            return f"it was {what} {time:%Y-%m-%d %H:%M:%SZ}, before the key was valid"
        if key.valid_until is not None and time > key.valid_until:
            return f"it was {what} {time:%Y-%m-%d %H:%M:%SZ}, after the key had expired"
    if logged is not None and at > logged.time + CLOCKS_DIFFER_BY:
        return "it says that it was signed after it was logged"
    return None if key.revoked is None else _after_revocation(key.revoked, at, logged)


def _after_revocation(revoked: KeyRevocation, at: datetime, logged: Logged | None) -> str | None:
    why = f"the key is revoked since {revoked.at:%Y-%m-%d %H:%M:%SZ} ({revoked.reason})"
    if logged is None:
        return f"{why}, and no log entry shows that the signature is older"
    late = logged.time >= revoked.at if revoked.log_size is None else logged.index >= revoked.log_size
    if late or at >= revoked.at:
        return f"{why}, and the log entry came later"
    return None


def find_trust(given: Path | None = None) -> Path | None:
    """Return the trust file of a verifier: `given`, MBD_TRUST, or that in the user's configuration folder; or None."""
    if given is not None:
        return given
    if named := os.environ.get(ENVIRONMENT):
        return Path(named)
    file = Path(click.get_app_dir("mbd")) / "trust.json"
    return file if file.is_absolute() and file.is_file() else None


def require_trust(given: Path | None = None) -> Path:
    """Return what :func:`find_trust` finds; UsageError if there is none."""
    file = find_trust(given)
    if file is None:
        raise UsageError("there is no trust file", key="--trust", hint=NO_TRUST_HINT)
    return file


def read_trust(file: Path) -> Trust:
    """Return the trust in a file; DataError unless it is, byte for byte, as :func:`write_trust` wrote it."""
    stored = _TrustFile.read(file, "trust file", _HINT)
    if _text(stored.trust).encode() != file.read_bytes():
        raise DataError("the trust file is not valid", file=file, hint=_HINT)
    return stored.trust


def write_trust(file: Path, trust: Trust) -> None:
    """Write a trust file whole or not at all."""
    write_file(file, _text(trust))


def _text(trust: Trust) -> str:
    plain = trust.to_plain()
    return to_json({"trust": plain, "sha256": trust.digest})
