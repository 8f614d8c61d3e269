"""A folder of keys and its trust file: making keys, rotating and revoking them.

    NAME.pem  NAME.pub       a holder's key            log.pem  log.pub       the log's
    trust.json               who is trusted (:mod:`mbd.certificate.trust`)

A command that was killed is simply run again: a private key that the trust file does not know yet is taken up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from mbd.certificate.keys import new_key
from mbd.certificate.public_keys import key_id
from mbd.certificate.trust import KeyRevocation, Purpose, Trust, TrustedKey, read_trust, signs, trusted_key, write_trust
from mbd.errors import UsageError
from mbd.files import locked, write_file
from mbd.records import now

TRUST = "trust.json"
LOG = "log"
NEXT = ".next"


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
        if trust is None or not any(signs(key, now()) for key in trust.keys_for("log")):
            log_key = trusted_key(_made(folder, LOG, passphrase), LOG, "log", now())
            origin = origin or (trust.log_origin if trust else f"missing-by-design/{log_key.id[:16]}")
            trust = _valid(trust.with_key(log_key) if trust else Trust(log_origin=origin, keys=(log_key,)))
        elif origin is not None and origin != trust.log_origin:
            raise UsageError("the log has a name already", key="--origin", value=trust.log_origin)
        if key_id(public) not in {key.id for key in trust.keys}:
            trust = trust.with_key(_until(trusted_key(public, name, "certificate", now()), days))
        elif not if_none:
            raise UsageError(
                "there is a key already, and it is not overwritten",
                file=folder / f"{name}.pem",
                hint="`mbd keys rotate` makes a new one in its place; --if-none keeps it; --name makes another",
            )
        write_trust(folder / TRUST, trust)
        return trust


def rotate_key(folder: Path, name: str, *, passphrase: str | None = None, overlap: timedelta) -> TrustedKey:
    """Make a new key for a holder; the old private key is destroyed, and what it signed may be logged for `overlap`."""
    with _editing(folder):
        trust = read_trust(folder / TRUST)
        old = [key for key in trust.keys if key.name == name]
        if not old:
            raise UsageError("nobody of this name has a key", value=name, hint="`mbd keys list` shows all names")
        following = name + NEXT
        public = _made(folder, following, passphrase)
        fresh = trusted_key(public, name, old[-1].purpose, now())
        if fresh.id not in {key.id for key in trust.keys}:
            for key in old:
                if signs(key, fresh.valid_from):
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
        key = trust.find(name_or_id)
        if key.revoked is not None:
            raise UsageError("this key is revoked already", value=key.id[:12])
        revocation = KeyRevocation(at=now(), reason=reason, log_size=log_size)
        revoked = key.model_copy(update={"revoked": revocation})
        write_trust(file, trust.with_key(revoked))
        return revoked


def add_key(file: Path, pem: str, name: str, purpose: Purpose, scheme: str | None = None) -> TrustedKey:
    """Trust the public key of somebody else, or of a KMS or HSM."""
    with _editing(file.parent):
        trust = read_trust(file)
        key = trusted_key(pem, name, purpose, now(), scheme)
        if key.id in {known.id for known in trust.keys}:
            raise UsageError("this key is in the trust file already", value=key.id[:12])
        write_trust(file, trust.with_key(key))
        return key


def set_threshold(file: Path, threshold: int) -> Trust:
    """Say how many holders must have signed a certificate."""
    with _editing(file.parent):
        trust = _valid(read_trust(file).model_copy(update={"threshold": threshold}))
        write_trust(file, trust)
        return trust


def _made(folder: Path, name: str, passphrase: str | None) -> str:
    """Return the public half of the key of this name; make it if there is none."""
    file = folder / f"{name}.pem"
    return file.with_suffix(".pub").read_text() if file.exists() else new_key(file, passphrase)


def _until(key: TrustedKey, days: int | None) -> TrustedKey:
    end: datetime | None = None if days is None else key.valid_from + timedelta(days=days)
    return key.model_copy(update={"valid_until": end})


def _valid(trust: Trust) -> Trust:
    try:
        return Trust.model_validate(trust.model_dump())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"the trust file would not hold together: {first['msg']}") from error


@contextmanager
def _editing(folder: Path) -> Iterator[None]:
    """Be alone in the folder; what a killed predecessor has left half-written is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=True):
        for pattern in (".*.pem.*.partial", ".*.pub.partial.*", f".{TRUST}.partial.*"):
            for left in folder.glob(pattern):
                left.unlink()
        yield
