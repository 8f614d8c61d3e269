"""`mbd publish`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--certificate", type=FOLDER, required=True, help="Certificate bundle, as `mbd certify` wrote it.")
@click.option("--model", type=FOLDER, required=True, help="Deleted model that the certificate is about.")
@click.option("--store", metavar="URL", help="file://FOLDER or s3://BUCKET[/PREFIX] [default: store.url].")
@click.option("--out", type=FOLDER, help="Folder to write the published bundle and its receipt to.")
@with_params
def command(params: "Params", certificate: Path, model: Path, store: str | None, out: Path | None) -> None:
    """Publish a certificate and its model: objects, log entry, certificate, pointer. Running it again is safe."""
    from mbd.steps import publish

    receipt = publish.run(params, certificate, model, store or params.store.url, out).receipt
    click.echo(f"certificate {receipt.certificate}")
    click.echo(f"published in {receipt.store}: {len(receipt.objects)} objects, entry {receipt.log.index} of the log")
    click.echo(f"Object Lock: {receipt.object_lock}")
    click.echo(f"check it: mbd verify {receipt.store}/certificates/{receipt.certificate} --trust TRUST-FILE")
    if out is not None:
        click.echo(f"\nwritten to {out}")
