"""`mbd report`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import JSON, TRUST, existing_store, print_result, store

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.argument("bundle", required=False, type=click.Path(path_type=Path))
@store("none; give a BUNDLE")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder; or one .html, .md or .json file.")
@TRUST
@JSON
@with_params
def command(
    params: "Params", bundle: Path | None, store: str | None, out: Path, trust: Path | None, as_json: bool
) -> None:
    """Write the page of a certificate BUNDLE, or with --store the pages of a whole store: HTML, Markdown and JSON.

    The HTML page is self-contained, and checks digests, signatures and the log in the browser.
    """
    from mbd.production.store_pages import write_store_pages
    from mbd.steps import report

    if (bundle is None) == (store is None):
        raise click.UsageError("give either a BUNDLE or --store URL")
    if bundle is not None:
        page = report.of_bundle(bundle, out)
        text = f"open {page} and verify it there: writing it has verified nothing"
        print_result({"page": page}, text, as_json=as_json)
        return
    done = write_store_pages(params, existing_store(params, store).url, out, trust=trust)
    invalid = [f"  {each.digest[:16]}  invalid: {each.reason}" for each in done.invalid]
    text = "\n".join([f"{len(done.certificates)} certificates; open {done.page}", *invalid])
    print_result(done, text, as_json=as_json)
