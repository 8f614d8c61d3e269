"""`mbd purge`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import CommandGroup, with_params
from mbd.cli.options import FOLDER

if TYPE_CHECKING:
    from mbd.formats.purge import PurgeRecord
    from mbd.params import Params
    from mbd.purge.inventory import PlaceInventory
    from mbd.purge.scan import Scan
    from mbd.steps.purge import PurgePlan

_STORE = click.option("--store", metavar="URL", help="file://FOLDER or s3://BUCKET[/PREFIX] [default: store.url].")
_YES = click.option("--yes", is_flag=True, help="Remove without asking.")
_SHOWN = 20


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option(
    "--receipt",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Receipt of the publication, as `mbd publish --out` wrote it.",
)
@click.option("--deletion", type=FOLDER, help="Deleted model; needed where the certificate hides the old digests.")
@_STORE
@click.option("--features", is_flag=True, help="Remove the deleted modality's feature files, too (purge.features).")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@_YES
@click.option("--out", type=FOLDER, help="Folder to write purge.json to, besides certificate.private.")
@with_params
def command(
    params: "Params",
    receipt: Path | None,
    deletion: Path | None,
    store: str | None,
    features: bool,
    dry_run: bool,
    yes: bool,
    out: Path | None,
) -> None:
    """Remove every copy of the old weights from every place, prove it, and keep them away.

    Exit code 1 if something is left or could not be searched; run it again when that is mended.
    """
    if click.get_current_context().invoked_subcommand:
        return
    if receipt is None:
        raise click.UsageError("--receipt FILE is missing")
    from mbd.steps import purge

    if features:
        params = params.model_copy(update={"purge": params.purge.model_copy(update={"features": True})})
    url = store or params.store.url
    plan = purge.plan(params, receipt, url, deletion)
    if dry_run or not yes:
        _show_inventory(plan, plan.inventory())
    if dry_run:
        return
    if not yes:
        click.confirm("\nremove all of these, for good?", abort=True)
    done = purge.run(params, plan, url, out)
    _show_record(done.record)
    click.echo(f"statement {done.statement}, in the log")
    click.echo(f"\nwritten to {out or done.proof}")
    done.refuse_incomplete()


@command.command()
@_STORE
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.option("--remove", is_flag=True, help="Remove what is found, after asking.")
@_YES
@with_params
def scan(params: "Params", store: str | None, as_json: bool, remove: bool, yes: bool) -> None:
    """Look for purged files that have come back. Exit code 1 if there are any, or if a place cannot be searched."""
    from mbd.steps import purge

    url = store or params.store.url
    found = purge.scan(params, url)
    if remove and found.resurrections:
        click.echo(_scan_in_words(found), err=as_json)
        if not yes:
            click.confirm("\nremove all of these, for good?", abort=True, err=as_json)
        found = purge.remove_resurrections(params, url)
    click.echo(found.to_json() if as_json else _scan_in_words(found), nl=not as_json)
    if not found.clean:
        sys.exit(1)


@command.group()
def hook() -> None:
    """Let no purged file out: the git hook."""


@hook.command()
@_STORE
@with_params
def install(params: "Params", store: str | None) -> None:
    """Install a pre-push hook in the git repository of this folder; after `dvc install`, if you use that."""
    from mbd.purge.hook import install_hook

    click.echo(f"installed {install_hook(Path(), store or params.store.url)}")


@command.command("check-push")
@_STORE
@click.argument("remote", nargs=-1)
@with_params
def check_push(params: "Params", store: str | None, remote: tuple[str, ...]) -> None:
    """Refuse a push that would bring purged files back; git's hook calls this, with REMOTE and its URL."""
    from mbd.purge import hook as push_hook
    from mbd.purge.tombstone_store import read_tombstones
    from mbd.storage import open_store

    tombstones = read_tombstones(open_store(store or params.store.url, params.store))
    push_hook.check_push(Path(), tombstones, sys.stdin if not sys.stdin.isatty() else ())


def _show_inventory(plan: "PurgePlan", findings: list["PlaceInventory"]) -> None:
    from mbd.report.text import table

    what = ", ".join(f"{count} {kind}" for kind, count in plan.purged.targets.counts.items())
    click.echo(f"to be removed: every copy of {what}")
    rows = [[f.place.kind, f.found, f.size, f.place.where] for f in findings]
    click.echo(table(["place", "copies", "bytes", "where"], rows))
    for finding in findings:
        for copy in finding.copies[:_SHOWN]:
            click.echo(f"  {copy.what:<16} {copy.name}{f' version {copy.version}' if copy.version else ''}")
        for obstacle in finding.obstacles:
            click.echo(f"  {finding.place.kind}: {obstacle.reason}: {obstacle.detail}\n    {obstacle.hint}")
    for needed in plan.purged.excepted:
        click.echo(f"  stays: features {needed.sha256}, needed by the model {needed.by} ({needed.where})")
    for ref in plan.purged.refs:
        click.echo(f"  names such files, and stays: {ref}")


def _show_record(record: "PurgeRecord") -> None:
    from mbd.report.text import table

    rows = [[p.kind, p.found, p.removed, p.left, "yes" if p.gone else "NO", p.where] for p in record.places]
    click.echo(table(["place", "found", "removed", "left", "clean", "where"], rows))
    for place in record.places:
        for obstacle in place.obstacles[:_SHOWN]:
            click.echo(f"  {place.kind}: {obstacle.reason}: {obstacle.detail}\n    {obstacle.hint}")
    for needed in record.excepted:
        click.echo(f"  stays: features {needed.sha256}, needed by the model {needed.by} ({needed.where})")
    for ref in record.refs:
        click.echo(f"  names purged files, and stays: {ref}")
    click.echo(f"\nerasure: {record.erasure.claim}. {record.erasure.note}")


def _scan_in_words(found: "Scan") -> str:
    lines = [f"{found.tombstones} tombstones, {len(found.places)} places: {len(found.resurrections)} resurrections"]
    for one in found.resurrections:
        version = f" version {one.version}" if one.version else ""
        lines.append(f"  {one.kind} {one.where}: {one.what} {one.name}{version}")
    for blind in found.blind:
        lines.append(f"  {blind.kind} could not be searched: {blind.reason}\n    {blind.hint}")
    return "\n".join(lines)
