"""`mbd publish`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import FOLDER, JSON, STORE, model, print_result, report_written, suggest

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.argument("bundle", type=FOLDER)
@model("Model that the certificate is about.")
@STORE
@options.out("the published bundle and its receipt", required=False)
@JSON
@with_params
def command(params: "Params", bundle: Path, model: Path, store: str | None, out: Path | None, as_json: bool) -> None:
    """Publish a certificate BUNDLE and its model: objects, log entry, certificate, pointer. Safe to repeat."""
    from mbd.steps import publish

    url = store or params.store.url
    receipt = publish.run(params, bundle, model, url, out).receipt
    text = (
        f"certificate {receipt.certificate}\n"
        f"published in {url}: {len(receipt.objects)} objects, entry {receipt.log.index} of the log\n"
        f"Object Lock: {receipt.object_lock}\n"
        f"anyone can verify it: mbd verify {url}/certificates/{receipt.certificate} --trust TRUST-FILE"
    )
    print_result(receipt, text, as_json=as_json)
    if out is not None:
        report_written("published bundle with its receipt", out)
        suggest("verify", out, "--model", model, "--store", url, "--trust", params.certificate.trust)
        suggest("purge", "--receipt", out / "receipt.json", "--store", url, "--dry-run")
