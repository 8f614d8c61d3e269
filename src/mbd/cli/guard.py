"""`mbd guard`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import FOLDER, with_params

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--model", type=FOLDER, required=True, help="Model folder that is about to be served.")
@click.option("--store", metavar="URL", help="Store that it was published in [default: store.url].")
@click.option(
    "--trust",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the keys that you trust, got by a way of your own [default: certificate.trust].",
)
@click.option(
    "--schema",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write the JSON Schema of its inputs to [default: print it].",
)
@with_params
def command(params: "Params", model: Path, store: str | None, trust: Path | None, schema: Path | None) -> None:
    """Admit a model to serving, or not (exit code 4), and tell which inputs it may be given.

    It is admitted if a certificate of its weights verifies, is in the log, not revoked, superseded or overdue, and if
    none of its files was purged.
    """
    from mbd.certificate.guard import admit, input_schema
    from mbd.certificate.trust import read_trust
    from mbd.files import to_json, write_file
    from mbd.storage import open_store

    admission = admit(
        model, open_store(store or params.store.url, params.store), read_trust(trust or Path(params.certificate.trust))
    )
    text = to_json(input_schema(admission.record))
    click.echo(f"admitted by certificate {admission.certificate}", err=schema is None)
    if schema is None:
        click.echo(text, nl=False)
    else:
        write_file(schema, text)
        click.echo(f"\nwritten to {schema}")
