"""`mbd log`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli.common import CommandGroup, with_params
from mbd.errors import DataError, ExitCode

if TYPE_CHECKING:
    from mbd.certificate.log.check import LogReport
    from mbd.certificate.log.reader import Log
    from mbd.certificate.trust import Trust
    from mbd.params import Params
    from mbd.storage.store import Store


def _of_a_store(run: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--store URL` and `--trust FILE`."""
    store = click.option("--store", "url", metavar="URL", help="Store of the log [default: store.url].")
    trust = click.option("--trust", type=click.Path(path_type=Path), help="Whom to trust [default: certificate.trust].")
    return store(trust(run))


@click.group(cls=CommandGroup)
def command() -> None:
    """Read and check the transparency log of a store."""


@command.command("list")
@_of_a_store
@click.option("--last", type=click.IntRange(min=1), help="Only so many of the newest entries.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_params
def list_entries(params: "Params", url: str | None, trust: Path | None, last: int | None, as_json: bool) -> None:
    """List the entries: place, time at which it was logged, digest of the certificate."""
    from mbd.files import to_json

    _, _, log = _open(params, url, trust)
    start = max(0, log.size - last) if last else 0
    rows = [
        {"index": place, "logged": f"{log.first_checkpoint_with(place).time:%Y-%m-%dT%H:%M:%SZ}", "sha256": leaf.hex()}
        for place, leaf in log.entries(start)
    ]
    if as_json:
        click.echo(to_json(rows), nl=False)
        return
    for row in rows:
        click.echo(f"{row['index']:8}  {row['logged']}  {row['sha256']}")
    click.echo(f"{log.size} entries" if log.size else "nothing has been logged here yet")


@command.command()
@click.argument("entry", required=False)
@_of_a_store
@with_params
def show(params: "Params", url: str | None, trust: Path | None, entry: str | None) -> None:
    """Show the proof of ENTRY (a place, or a certificate's digest); without it the log's signed head."""
    _, _, log = _open(params, url, trust)
    if entry is None:
        click.echo(log.head.text, nl=False)
        return
    place = int(entry) if entry.isdigit() and len(entry) < 20 else _place(log, entry)
    click.echo(log.inclusion(place).model_dump_json(indent=2))


@command.command()
@_of_a_store
@click.option(
    "--since", type=click.Path(path_type=Path), help="A checkpoint kept earlier, which the log must continue."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_params
def check(params: "Params", url: str | None, trust: Path | None, since: Path | None, as_json: bool) -> None:
    """Check all of the log: signatures, every hash, older checkpoints, the certificates in this store."""
    from mbd.certificate.layout import certificate_name
    from mbd.certificate.log.check import check_log
    from mbd.certificate.log.checkpoint import verify_checkpoint
    from mbd.files import to_json

    store, trusted, _ = _open(params, url, trust)
    older = verify_checkpoint(_read(since), trusted) if since else None
    report = check_log(store, trusted, since=older, certificate_name=certificate_name)
    click.echo(to_json(_as_json(report)) if as_json else _text(report), nl=not as_json)
    if report.problems:
        sys.exit(ExitCode.UNVERIFIED)


@command.command()
@_of_a_store
@with_params
def repair(params: "Params", url: str | None, trust: Path | None) -> None:
    """Mend what follows from the entries: a head whose key was revoked, the index, appends that were killed."""
    from mbd.certificate.keys import load_signer
    from mbd.certificate.log.repair import repair_log

    store, trusted = _store_and_trust(params, url, trust)
    repaired = repair_log(store, load_signer(params.certificate.log_signer, trusted), trusted)
    click.echo("the head was signed again" if repaired.signed_again else "the head stands as it was signed")
    click.echo(f"index objects written again: {repaired.indexed}; killed appends carried out: {repaired.carried_out}")


def _store_and_trust(params: "Params", url: str | None, trust: Path | None) -> tuple["Store", "Trust"]:
    from mbd.certificate.trust import read_trust
    from mbd.storage import open_store

    return open_store(url or params.store.url, params.store), read_trust(trust or Path(params.certificate.trust))


def _open(params: "Params", url: str | None, trust: Path | None) -> tuple["Store", "Trust", "Log"]:
    from mbd.certificate.log.reader import Log

    store, trusted = _store_and_trust(params, url, trust)
    return store, trusted, Log(store, trusted)


def _place(log: "Log", digest: str) -> int:
    hint = "`mbd log list` lists them; a digest has 64 hexadecimal digits"
    try:
        place = log.place_of(bytes.fromhex(digest))
    except ValueError as error:
        raise DataError("this is neither a place nor a digest", value=digest, hint=hint) from error
    if place is None:
        raise DataError("there is no such entry in the log", value=digest, hint=hint)
    return place


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError("the checkpoint cannot be read", file=file, hint="`mbd log show` prints one to keep") from error


def _as_json(report: "LogReport") -> dict[str, Any]:
    head = report.checkpoint
    return {
        "size": report.size,
        "root": head.root.hex() if head else None,
        "time": f"{head.time:%Y-%m-%dT%H:%M:%SZ}" if head else None,
        "older_checkpoints": report.old_checkpoints,
        "certificates": report.certificates,
        "certificates_elsewhere": report.elsewhere,
        "pending": report.pending,
        "problems": report.problems,
    }


def _text(report: "LogReport") -> str:
    head = report.checkpoint
    lines = [f"{report.size} entries" + (f", signed {head.time:%Y-%m-%d %H:%M:%SZ}" if head else "")]
    lines.append(f"older checkpoints: {report.old_checkpoints}")
    lines.append(f"certificates in this store: {report.certificates}; elsewhere: {report.elsewhere}")
    if report.pending:
        lines.append(f"claimed and not carried out yet: {report.pending} (the next append, or `mbd log repair`, does)")
    lines += [f"PROBLEM: {problem}" for problem in report.problems]
    return "\n".join([*lines, f"{len(report.problems)} problems" if report.problems else "all of it holds together"])
