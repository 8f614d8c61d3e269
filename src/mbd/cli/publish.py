"""`mbd publish`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import FOLDER, JSON, STORE, model, print_result

if TYPE_CHECKING:
    from mbd.params import Params

_LOG = logging.getLogger(__name__)


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

    receipt = publish.run(params, bundle, model, store or params.store.url, out).receipt
    text = (
        f"certificate {receipt.certificate}\n"
        f"published in {receipt.store}: {len(receipt.objects)} objects, entry {receipt.log.index} of the log\n"
        f"Object Lock: {receipt.object_lock}\n"
        f"check it: mbd verify {receipt.store}/certificates/{receipt.certificate} --trust TRUST-FILE"
    )
    print_result(receipt, text, as_json=as_json)
    if out is not None:
        _LOG.info("written to %s", out)
