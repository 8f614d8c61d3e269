"""`mbd purge`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli import options
from mbd.cli.options import (
    CommandGroup,
    existing_store,
    print_result,
    report_written,
    suggest,
    wants_json,
    with_params,
    with_params_only,
)
from mbd.errors import ExitCode

if TYPE_CHECKING:
    from mbd.formats.purge import PurgeRecord
    from mbd.params import Params
    from mbd.purge.inventory import PlaceInventory, Scan
    from mbd.steps.purge import PurgePlan

_SHOWN = 20


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--receipt", type=options.FILE, help="Receipt of the publication, as `mbd publish --out` wrote it.")
@click.option("--certificate", metavar="CERTIFICATE", help="Instead: the certificate, as `mbd request run` prints it.")
@options.folder("--deletion", "Model after the deletion; needed if the certificate hides the old digests.")
@options.STORE
@options.flag("--with-features", "Remove the feature files of the deleted modality as well (purge.features).")
@options.flag("--dry-run", "Only list what would be removed.")
@options.YES
@options.out("purge.json, besides certificate.private,", required=False)
@options.FIRST_TIME
@with_params
def command(
    params: "Params",
    store: str | None,
    out: Path | None,
    *,
    with_features: bool,
    dry_run: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Remove every copy of the old weights from every place, prove it, and keep them from coming back.

    Exit code 1 if a copy is left or a place could not be searched; solve that and run it again.
    """
    if (given["receipt"] is None) == (given["certificate"] is None):
        raise click.UsageError("give either --receipt FILE or --certificate CERTIFICATE")
    from mbd.steps import purge

    params = params.having({"purge.features": True} if with_features else {})
    url = existing_store(params, store).url
    plan = purge.plan(params, store=url, **given)
    if dry_run:
        inventory = plan.inventory()
        print_result(inventory, _inventory_text(plan, inventory))
        suggest("purge", "--certificate", plan.purged.certificate, "--store", url)
        return
    if not yes:
        click.echo(_inventory_text(plan, plan.inventory()), err=wants_json())
        click.confirm("\nremove all of these, for good?", abort=True, err=wants_json())
    done = purge.run(params, plan, url, out)
    text = f"{_record_text(done.record)}\nstatement {done.statement}, in the log"
    print_result({"statement": done.statement, "record": done.record}, text)
    report_written("proof of the purge", out or done.proof)
    suggest("purge", "scan")
    purge.refuse_incomplete(done.record)


@command.command()
@options.STORE
@options.flag("--remove", "Remove what was found, after confirmation.")
@options.YES
@with_params
def scan(params: "Params", store: str | None, remove: bool, yes: bool) -> None:
    """Search for purged files that have come back. Exit code 1 if there are any, or if a place cannot be searched."""
    from mbd.steps import purge

    url = existing_store(params, store).url
    result = purge.scan(params, url)
    if remove and result.resurrections:
        click.echo(_scan_text(result), err=wants_json())
        if not yes:
            click.confirm("\nremove all of these, for good?", abort=True, err=wants_json())
        result = purge.remove_resurrections(params, url)
    print_result(result, _scan_text(result))
    if not result.clean:
        sys.exit(ExitCode.FAILURE)


@command.group()
def hook() -> None:
    """Install the git hook that refuses to push purged files."""


@hook.command()
@options.STORE
@with_params_only
def install(params: "Params", store: str | None) -> None:
    """Install a pre-push hook in the git repository of this folder; after `dvc install`, if you use that."""
    from mbd.purge.hook import install_hook

    hook_file = install_hook(Path(), store or params.store.url, Path(params.certificate.trust))
    click.echo(f"installed {hook_file}")


@command.command("check-push")
@options.STORE
@click.argument("remote", nargs=-1)
@with_params_only
def check_push(params: "Params", store: str | None, remote: tuple[str, ...]) -> None:
    """Refuse a push that would bring purged files back; git's hook calls this, with REMOTE and its URL."""
    from mbd.history.tombstones import store_tombstones
    from mbd.purge import hook as push_hook
    from mbd.purge.contents import Targets

    tombstones = Targets(store_tombstones(params, store or params.store.url))
    push_hook.check_push(Path(), tombstones, sys.stdin if not sys.stdin.isatty() else ())


def _inventory_text(plan: "PurgePlan", findings: list["PlaceInventory"]) -> str:
    from mbd.report.text import table

    what = ", ".join(f"{kind} ({count} file{'s' * (count != 1)})" for kind, count in plan.purged.targets.counts.items())
    rows = [[f.place.kind, f.found, f.size, f.place.where] for f in findings]
    lines = [f"to be removed: every copy of {what}", table(["place", "copies", "bytes", "where"], rows)]
    for finding in findings:
        for copy in finding.copies[:_SHOWN]:
            lines.append(f"  {copy.what:<16} {copy.name}{f' version {copy.version}' if copy.version else ''}")
        lines += [_obstacle_text(finding.place.kind, obstacle) for obstacle in finding.obstacles]
    return "\n".join([*lines, *_kept(plan.purged)])


def _record_text(record: "PurgeRecord") -> str:
    from mbd.report.text import table

    rows = [[p.kind, p.found, p.removed, p.left, "yes" if p.gone else "NO", p.where] for p in record.places]
    lines = [table(["place", "found", "removed", "left", "clean", "where"], rows)]
    lines += [_obstacle_text(place.kind, each) for place in record.places for each in place.obstacles[:_SHOWN]]
    return "\n".join([*lines, *_kept(record), f"\nerasure: {record.erasure.claim}. {record.erasure.note}"])


def _obstacle_text(kind: str, obstacle: Any) -> str:  # noqa: ANN401 -- found, or as recorded
    return f"  {kind}: {obstacle.reason}: {obstacle.detail}\n    {obstacle.hint}"


def _kept(purge: Any) -> list[str]:  # noqa: ANN401 -- planned, or as recorded
    features = [f"  kept: features {e.sha256}, needed by the model {e.by} ({e.where})" for e in purge.excepted]
    return [*features, *(f"  kept, though it names purged files: {ref}" for ref in purge.refs)]


def _scan_text(found: "Scan") -> str:
    lines = [f"{found.tombstones} tombstones, {len(found.places)} places: {len(found.resurrections)} resurrections"]
    for resurrection in found.resurrections:
        version = f" version {resurrection.version}" if resurrection.version else ""
        lines.append(f"  {resurrection.kind} {resurrection.where}: {resurrection.what} {resurrection.name}{version}")
    for blind in found.blind:
        lines.append(f"  {blind.kind} could not be searched: {blind.reason}\n    {blind.hint}")
    return "\n".join(lines)
