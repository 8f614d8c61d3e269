"""`mbd log`."""

import logging
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli import options
from mbd.cli.options import CommandGroup, existing_store, print_result, trusted_keys, with_params
from mbd.errors import DataError, ExitCode

if TYPE_CHECKING:
    from mbd.certificate.publish import Publisher
    from mbd.log.check import LogReport
    from mbd.log.reader import Log
    from mbd.params import Params


_EMPTY = "nothing has been logged here yet"
_LOG = logging.getLogger(__name__)


@click.group(cls=CommandGroup)
def command() -> None:
    """Read and check the transparency log of a store."""


@command.command("list")
@options.STORE
@options.TRUST
@options.number("--last", "Only the newest N entries.", metavar="N")
@with_params
def list_entries(params: "Params", last: int | None, **place: Any) -> None:
    """List the entries: index, time at which each was logged, SHA-256 of the signed statement."""
    log = _open(params, **place)
    start = max(0, log.size - last) if last else 0
    rows = [
        {"index": index, "logged": f"{log.first_checkpoint_with(index).time:%Y-%m-%dT%H:%M:%SZ}", "sha256": leaf.hex()}
        for index, leaf in log.entries(start)
    ]
    lines = [f"{row['index']:8}  {row['logged']}  {row['sha256']}" for row in rows]
    print_result(rows, "\n".join([*lines, f"{log.size} entries" if log.size else _EMPTY]))


@command.command()
@click.argument("entry", required=False)
@options.STORE
@options.TRUST
@with_params
def show(params: "Params", entry: str | None, **place: Any) -> None:
    """Show the inclusion proof of ENTRY (an index or a SHA-256), or without it the log's signed checkpoint."""
    log = _open(params, **place)
    if entry is None:
        print_result({"checkpoint": log.head.text}, log.head.text.removesuffix("\n"))
        return
    index = int(entry) if entry.isdigit() and len(entry) < 20 else _index(log, entry)
    print_result(log.inclusion(index))


@command.command()
@options.STORE
@options.TRUST
@options.path("--since", "A checkpoint saved earlier; the log must be consistent with it.")
@with_params
def check(params: "Params", since: Path | None, **place: Any) -> None:
    """Check the whole log: signatures, every hash, older checkpoints, the certificates in this store."""
    from mbd.certificate.publish import verify_leaf
    from mbd.formats.layout import certificate_name
    from mbd.log.check import check_log
    from mbd.log.checkpoint import verify_checkpoint

    log = _open(params, **place)
    older = verify_checkpoint(_read(since), log.trust) if since else None
    check = partial(verify_leaf, log.store, log.trust)
    report = check_log(log.store, log.trust, since=older, certificate_name=certificate_name, check=check)
    print_result(_as_json(report), _text(report))
    if report.problems:
        sys.exit(ExitCode.UNVERIFIED)


def _publisher(params: "Params", store: str | None, trust: Path | None) -> "Publisher":
    """Return what writes the log of an existing store."""
    from mbd.steps.publish import open_publisher

    existing_store(params, store)
    params = params.having({"certificate.trust": str(trust)} if trust else {})
    return open_publisher(params, store or params.store.url)


@command.command()
@options.STORE
@options.ISSUER_TRUST
@options.FIRST_TIME
@with_params
def repair(params: "Params", **place: Any) -> None:
    """Repair what follows from the entries: a checkpoint whose key was revoked, the index, interrupted appends."""
    repaired = _publisher(params, **place).repair()
    head = "the checkpoint was signed again" if repaired.signed_again else "the checkpoint did not change"
    rest = f"index objects rewritten: {repaired.indexed}; interrupted appends completed: {repaired.carried_out}"
    print_result(repaired, f"{head}\n{rest}")


@command.command()
@options.STORE
@options.ISSUER_TRUST
@options.FIRST_TIME
@with_params
def renew(params: "Params", **place: Any) -> None:
    """Sign the checkpoint again with today's date, so that it shows that nothing newer is being withheld.

    Readers refuse a checkpoint that is older than certificate.checkpoint_days. Where little is published, run this more
    often than that, on a machine that keeps its cache: a log that is older than the one seen last is not signed.
    """
    if head := _publisher(params, **place).renew():
        text = f"log of size {head.size}, signed {head.time:%Y-%m-%d %H:%M:%SZ}"
        print_result({"size": head.size, "time": f"{head.time:%Y-%m-%dT%H:%M:%SZ}"}, text)
    else:
        print_result({"size": 0, "time": None}, _EMPTY)


@command.command()
@options.STORE
@options.ISSUER_TRUST
@options.YES
@with_params
def adopt(params: "Params", store: str | None, trust: Path | None, yes: bool) -> None:
    """Decide that the log of the store is the one that counts on this machine, and give up another copy of it.

    A copy of a project folder is a copy of its log. Where one has gone on, this machine refuses the other, until this
    says which of them counts. What is given up is listed before. It stays signed: readers who have seen it refuse this
    log, and need to hear why.
    """
    from mbd.history.entries import list_lost_entries
    from mbd.log.check import adopt_log
    from mbd.log.memory import read_memory
    from mbd.log.reader import Log
    from mbd.trust.trust_file import read_trust

    opened, trusted = existing_store(params, store), read_trust(trust or Path(params.certificate.trust))
    log, memory = Log(opened, trusted.as_if_none_revoked()), read_memory(trusted)
    lost = list_lost_entries(log, trusted)
    if memory.seen.size:
        _LOG.warning("seen here before: %d entries, in %s; this log has %d", memory.seen.size, memory.url, log.size)
    for line in lost or ["no entry that is known here"]:
        _LOG.warning("given up: %s", line)
    if not yes:
        click.confirm("Let this log count on this machine?", abort=True, err=True)
    adopt_log(opened, trusted, instead=True)
    print_result({"log": trusted.log_origin, "size": log.size, "given_up": lost}, f"log of size {log.size} counts here")


def _open(params: "Params", store: str | None, trust: Path | None) -> "Log":
    """Return the log of a store, which is none that is older than what was seen here before."""
    from mbd.log.memory import open_log, read_memory

    trusted = trusted_keys(trust)
    return open_log(existing_store(params, store), trusted, read_memory(trusted))[0]


def _index(log: "Log", digest: str) -> int:
    hint = "`mbd log list` lists them; a SHA-256 has 64 hexadecimal digits"
    try:
        index = log.place_of(bytes.fromhex(digest))
    except ValueError as error:
        raise DataError("this is neither an index nor a SHA-256", value=digest, hint=hint) from error
    if index is None:
        raise DataError("there is no such entry in the log", value=digest, hint=hint)
    return index


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError("the checkpoint cannot be read", file=file, hint="`mbd log show` prints one to save") from error


def _as_json(report: "LogReport") -> dict[str, Any]:
    head = report.checkpoint
    return {
        "size": report.size,
        "root": head.root.hex() if head else None,
        "time": f"{head.time:%Y-%m-%dT%H:%M:%SZ}" if head else None,
        "older_checkpoints": report.old_checkpoints,
        "certificates": report.certificates,
        "pending": report.pending,
        "problems": report.problems,
    }


def _text(report: "LogReport") -> str:
    head = report.checkpoint
    lines = [
        f"{report.size} entries" + (f", signed {head.time:%Y-%m-%d %H:%M:%SZ}" if head else ""),
        f"older checkpoints: {report.old_checkpoints}",
        f"certificates in this store: {report.certificates}",
    ]
    if report.pending:
        lines.append(f"not completed yet: {report.pending} (the next append or `mbd log repair` completes them)")
    lines += [f"PROBLEM: {problem}" for problem in report.problems]
    return "\n".join([*lines, f"{len(report.problems)} problems" if report.problems else "no problems"])
