"""`mbd report`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.argument("bundle", required=False, type=click.Path(path_type=Path))
@click.option("--store", metavar="URL", help="Make pages of all certificates in a store, and an index.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder; or one .html, .md or .json file.")
@click.option("--trust", type=click.Path(dir_okay=False, path_type=Path), help="Trusted keys [certificate.trust].")
@with_params
def command(params: "Params", bundle: Path | None, store: str | None, out: Path, trust: Path | None) -> None:
    """Make the page of a certificate BUNDLE, or the pages of a whole store: HTML, Markdown and JSON.

    The HTML page needs nothing but itself, and checks digests, signatures and the log in the browser.
    """
    from mbd.steps import report

    if (bundle is None) == (store is None):
        raise click.UsageError("give either a BUNDLE or --store URL")
    if bundle is not None:
        click.echo(f"open {report.of_bundle(bundle, out)} and check it there: making it has verified nothing")
        return
    done = report.of_store(params, store or "", out, trust=trust)
    click.echo(f"{len(done.certificates)} certificates; open {done.page}")
    for invalid in done.invalid:
        click.echo(f"  {invalid.digest[:16]}  cannot be verified: {invalid.reason}")
