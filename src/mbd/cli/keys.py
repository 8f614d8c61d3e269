"""`mbd keys`."""

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from mbd.cli import options
from mbd.cli.options import CommandGroup, existing_store, print_result, with_params

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.trust.trust_file import TrustedKey

_LOG = logging.getLogger(__name__)
_SHARE = "give the new trust file to everyone who verifies certificates"
_FOLDER = click.option(
    "--keys", "folder", type=options.FOLDER, help="Folder of the keys [default: that of certificate.trust]."
)
_PASSPHRASE = click.option(
    "--passphrase",
    "with_passphrase",
    is_flag=True,
    help="Encrypt the private keys; the passphrase is asked for, or read from MBD_KEY_PASSPHRASE.",
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Create, list, rotate and revoke the keys that sign certificates and the log."""


@command.command()
@options.folder("--out", "Folder for keys and trust file [default: that of certificate.trust].")
@click.option("--name", default="signer", show_default=True, help="Holder; keys of one holder count as one signature.")
@click.option("--origin", help="Name of the log, such as example.org/deletions [default: derived from its key].")
@options.number("--days", "Days of validity [default: until it is rotated].")
@_PASSPHRASE
@options.flag("--if-none", "Keep existing keys.")
@with_params
def new(params: "Params", out: Path | None, name: str, with_passphrase: bool, **given: Any) -> None:
    """Create a trusted key that signs certificates; if there are none, one for the log, lineage.key and request.key."""
    from mbd.trust.keys import TRUST, make_keys
    from mbd.trust.trust_file import ENVIRONMENT
    from mbd.verifier.verdict import fingerprint

    folder = out or Path(params.certificate.trust).parent
    trust = make_keys(folder, name, passphrase=_new_passphrase(with_passphrase), **given)
    file = folder / TRUST
    text = (
        f"private keys are in {folder}, readable by you only: back them up, and never commit them\n"
        f"give {file} to everyone who verifies certificates, and announce its fingerprint {fingerprint(trust.digest)}\n"
        f"to verify on this machine: export {ENVIRONMENT}={shlex.quote(str(file.absolute()))}"
    )
    print_result({"keys": folder, "trust": file, "sha256": trust.digest}, text)


@command.command("list")
@_FOLDER
@with_params
def list_keys(params: "Params", folder: Path | None) -> None:
    """List the trusted keys, their purpose and their validity."""
    from mbd.log.checkpoint import verifier_key
    from mbd.trust.public_keys import raw_ed25519
    from mbd.trust.trust_file import read_trust
    from mbd.verifier.verdict import fingerprint

    trust = read_trust(_trust_file(params, folder))
    lines = [
        f"fingerprint: {fingerprint(trust.digest)}\nsignatures needed: {trust.threshold}\nlog: {trust.log_origin}\n"
    ]
    for key in trust.keys:
        lines.append(_line(key))
        if key.purpose == "log":
            lines.append(f"              {verifier_key(trust.log_origin, raw_ed25519(key.public))}")
    print_result(trust, "\n".join(lines))


@command.command()
@click.argument("name")
@_FOLDER
@options.number("--overlap-days", "Days for which signatures of the old key may still be logged.", 0, default=1)
@_PASSPHRASE
@with_params
def rotate(params: "Params", name: str, folder: Path | None, overlap_days: int, with_passphrase: bool) -> None:
    """Replace the key of NAME ("log" for the log's); the old private key is destroyed."""
    from datetime import timedelta

    from mbd.trust.keys import rotate_key

    where = _trust_file(params, folder).parent
    passphrase = _new_passphrase(with_passphrase)
    key = rotate_key(where, name, passphrase=passphrase, overlap=timedelta(days=overlap_days))
    print_result(key, _line(key))
    _LOG.info(_SHARE)


@command.command()
@click.argument("key")
@options.reason("Why; it is written to the trust file.")
@options.store("none; entries are judged by the log's time, not by their index")
@_FOLDER
@with_params
def revoke(params: "Params", key: str, reason: str, store: str | None, folder: Path | None) -> None:
    """Revoke KEY (a name, or a prefix of its id)."""
    from mbd.log.reader import Log
    from mbd.trust.keys import revoke_key
    from mbd.trust.trust_file import read_trust

    file = _trust_file(params, folder)
    size = Log(existing_store(params, store), read_trust(file)).size if store else None
    revoked = revoke_key(file, key, reason, size)
    print_result(revoked, _line(revoked))
    if revoked.purpose == "log":
        _LOG.info("next: `mbd keys rotate log`, then `mbd log repair` to sign the checkpoint again")
    elif size is None:
        _LOG.info("earlier entries of the log are judged by the log's time; with --store, by their index")
    _LOG.info(_SHARE)


@command.command()
@click.argument("name")
@click.option("--public", "file", type=click.File("r"), required=True, help="PEM file of the public key.")
@click.option("--purpose", type=click.Choice(["certificate", "log"]), default="certificate", show_default=True)
@click.option("--scheme", help="Signature scheme, as securesystemslib names it [default: by the type of key].")
@_FOLDER
@with_params
def add(params: "Params", file: TextIO, folder: Path | None, **given: Any) -> None:
    """Trust the public key of NAME: another holder, or a KMS or HSM (then sign with URI#NAME)."""
    from mbd.trust.keys import add_key

    key = add_key(_trust_file(params, folder), file.read(), **given)
    print_result(key, _line(key))


@command.command()
@click.argument("holders", type=click.IntRange(min=1))
@_FOLDER
@with_params
def threshold(params: "Params", holders: int, folder: Path | None) -> None:
    """Set how many holders must sign a certificate."""
    from mbd.trust.keys import set_threshold

    trust = set_threshold(_trust_file(params, folder), holders)
    print_result(trust, f"signatures needed: {trust.threshold}")


def _trust_file(params: "Params", folder: Path | None) -> Path:
    from mbd.trust.keys import TRUST

    return folder / TRUST if folder else Path(params.certificate.trust)


def _new_passphrase(wanted: bool) -> str | None:
    from mbd.trust.keys import ask_secret

    return ask_secret("passphrase", twice=True) if wanted else None


def _line(key: "TrustedKey") -> str:
    until = f" until {key.valid_until:%Y-%m-%d %H:%M:%SZ}" if key.valid_until else ""
    gone = f"  REVOKED {key.revoked.at:%Y-%m-%d %H:%M:%SZ}: {key.revoked.reason}" if key.revoked else ""
    return (
        f"{key.id[:12]}  {key.name:16} {key.purpose:11} {key.scheme:8} "
        f"from {key.valid_from:%Y-%m-%d %H:%M:%SZ}{until}{gone}"
    )
