"""`mbd keys`."""

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from mbd.cli.common import FOLDER, CommandGroup, with_params

if TYPE_CHECKING:
    from mbd.certificate.trust import Purpose, TrustedKey
    from mbd.params import Params

_FOLDER = click.option("--keys", "folder", type=FOLDER, help="Folder of the keys [default: that of certificate.trust].")
_PASSPHRASE = click.option(
    "--passphrase",
    "with_passphrase",
    is_flag=True,
    help="Encrypt the private keys; the passphrase is asked for, or read from MBD_KEY_PASSPHRASE.",
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Make, list, rotate and revoke the keys that sign certificates and the log."""


@command.command()
@click.option("--out", type=FOLDER, help="Folder for keys and trust file [default: that of certificate.trust].")
@click.option("--name", default="signer", show_default=True, help="Whose key it is; keys of one name count once.")
@click.option("--origin", help="Name of the log, such as example.org/deletions [default: made from its key].")
@click.option("--days", type=click.IntRange(min=1), help="Days for which the key signs [default: until it is rotated].")
@_PASSPHRASE
@click.option("--if-none", is_flag=True, help="Keep the keys that are there already.")
@with_params
def new(
    params: "Params",
    out: Path | None,
    name: str,
    origin: str | None,
    days: int | None,
    with_passphrase: bool,
    if_none: bool,
) -> None:
    """Make a key that signs certificates, and the log's if there is none; trust both."""
    from mbd.certificate.keys import TRUST, make_keys

    folder = out or Path(params.certificate.trust).parent
    passphrase = _new_passphrase(with_passphrase)
    make_keys(folder, name, passphrase=passphrase, origin=origin, days=days, if_none=if_none)
    click.echo(f"private keys are in {folder}, readable by you only: back them up, and never commit them")
    click.echo(f"give {folder / TRUST} to whoever is to verify certificates")


@command.command("list")
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="Print the trust file's content as JSON.")
@with_params
def list_keys(params: "Params", folder: Path | None, as_json: bool) -> None:
    """List who is trusted, what for and how long."""
    from mbd.certificate.log.note import verifier_key
    from mbd.certificate.trust import raw_ed25519, read_trust

    trust = read_trust(_trust_file(params, folder))
    if as_json:
        click.echo(trust.model_dump_json(indent=2))
        return
    click.echo(f"signatures needed: {trust.threshold}\nlog: {trust.log_origin}\n")
    for key in trust.keys:
        click.echo(_line(key))
        if key.purpose == "log":
            click.echo(f"              {verifier_key(trust.log_origin, raw_ed25519(key.public))}")


@command.command()
@click.argument("name")
@_FOLDER
@click.option(
    "--overlap-days",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Days for which what the old key has signed may still be logged.",
)
@_PASSPHRASE
@with_params
def rotate(params: "Params", name: str, folder: Path | None, overlap_days: int, with_passphrase: bool) -> None:
    """Give NAME (or the log: "log") a new key; the old private key is destroyed."""
    from datetime import timedelta

    from mbd.certificate.keys import rotate_key

    where = _trust_file(params, folder).parent
    passphrase = _new_passphrase(with_passphrase)
    key = rotate_key(where, name, passphrase=passphrase, overlap=timedelta(days=overlap_days))
    click.echo(f"{_line(key)}\ngive the new trust file to whoever is to verify certificates")


@command.command()
@click.argument("key")
@click.option("--reason", required=True, help="Why, for everybody to read.")
@click.option("--store", "url", metavar="URL", help="Store of the log: what it holds now was signed in time.")
@_FOLDER
@with_params
def revoke(params: "Params", key: str, reason: str, url: str | None, folder: Path | None) -> None:
    """Trust KEY (a name, or the start of an id) no longer."""
    from mbd.certificate.keys import revoke_key
    from mbd.certificate.log.reader import Log
    from mbd.certificate.trust import read_trust
    from mbd.storage import open_store

    file = _trust_file(params, folder)
    size = Log(open_store(url, params.store), read_trust(file)).size if url else None
    revoked = revoke_key(file, key, reason, size)
    click.echo(_line(revoked))
    if revoked.purpose == "log":
        click.echo("then `mbd keys rotate log`, and `mbd log repair` signs the log's head again")
    elif size is None:
        click.echo("entries of the log count as older by the log's time; with --store they count by their place")
    click.echo("give the new trust file to whoever is to verify certificates")


@command.command()
@click.argument("name")
@click.option("--public", "file", type=click.File("r"), required=True, help="PEM file of the public key.")
@click.option("--purpose", type=click.Choice(["certificate", "log"]), default="certificate", show_default=True)
@click.option("--scheme", help="How it signs, by securesystemslib's name [default: by the kind of key].")
@_FOLDER
@with_params
def add(params: "Params", name: str, file: TextIO, purpose: "Purpose", scheme: str | None, folder: Path | None) -> None:
    """Trust the public key of NAME: another holder, or a KMS or HSM (then sign with URI#NAME)."""
    from mbd.certificate.keys import add_key

    click.echo(_line(add_key(_trust_file(params, folder), file.read(), name, purpose, scheme)))


@command.command()
@click.argument("holders", type=click.IntRange(min=1))
@_FOLDER
@with_params
def threshold(params: "Params", holders: int, folder: Path | None) -> None:
    """Say how many holders must have signed a certificate."""
    from mbd.certificate.keys import set_threshold

    click.echo(f"signatures needed: {set_threshold(_trust_file(params, folder), holders).threshold}")


def _trust_file(params: "Params", folder: Path | None) -> Path:
    from mbd.certificate.keys import TRUST

    return folder / TRUST if folder else Path(params.certificate.trust)


def _new_passphrase(wanted: bool) -> str | None:
    from mbd.certificate.keys import ask_secret

    return ask_secret("passphrase", twice=True) if wanted else None


def _line(key: "TrustedKey") -> str:
    until = f" until {key.valid_until:%Y-%m-%d %H:%M:%SZ}" if key.valid_until else ""
    gone = f"  REVOKED {key.revoked.at:%Y-%m-%d %H:%M:%SZ}: {key.revoked.reason}" if key.revoked else ""
    return (
        f"{key.id[:12]}  {key.name:16} {key.purpose:11} {key.scheme:8} "
        f"from {key.valid_from:%Y-%m-%d %H:%M:%SZ}{until}{gone}"
    )
