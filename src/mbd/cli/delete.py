"""`mbd delete`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import FOLDER, JSON, MODALITIES, features, model, print_result

if TYPE_CHECKING:
    from mbd.params import Params

_LOG = logging.getLogger(__name__)


@click.command()
@features()
@model("Model folder to delete from.")
@MODALITIES
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="ID",
    help="Delete the modality of this subject (group) only; repeatable. For deletion.method=exact.",
)
@click.option("--reference", type=FOLDER, help="Model trained without the modality, to measure the distance to it.")
@options.out("the new model and its deletion record")
@JSON
@with_params
def command(
    params: "Params",
    features: Path,
    model: Path,
    modalities: tuple[str, ...],
    subjects: tuple[str, ...],
    reference: Path | None,
    out: Path,
    as_json: bool,
) -> None:
    """Delete a modality from a model: surgery, certified or exact (deletion.method)."""
    from mbd.steps import delete

    result = delete.run(params, features, model, modalities, subjects, out, reference)
    if result:  # under torchrun only the first process has one
        print_result(result, result.to_text(), as_json=as_json)
        _LOG.info("written to %s", out)
