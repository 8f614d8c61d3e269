"""`mbd delete`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--features", type=FOLDER, required=True, help="FeatureSet that the model was made from.")
@click.option("--model", type=FOLDER, required=True, help="Model folder to delete from.")
@click.option(
    "--modality",
    "modalities",
    required=True,
    multiple=True,
    metavar="MODALITY",
    help="Modality to forget; repeatable.",
)
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="ID",
    help="Forget the modality of this subject (group) only; repeatable. For deletion.method=exact.",
)
@click.option(
    "--reference", type=FOLDER, help="Model trained without the modality, to measure how far the weights are from it."
)
@click.option("--out", type=FOLDER, required=True, help="Folder to write the new model and its deletion record to.")
@with_params
def command(
    params: "Params",
    features: Path,
    model: Path,
    modalities: tuple[str, ...],
    subjects: tuple[str, ...],
    reference: Path | None,
    out: Path,
) -> None:
    """Make a model forget a modality: surgery, certified or exact (deletion.method)."""
    from mbd.steps import delete

    result = delete.run(params, features, model, modalities, subjects, out, reference)
    if result:  # under torchrun only the first process has one
        click.echo(result.to_text())
        click.echo(f"\nwritten to {out}")
