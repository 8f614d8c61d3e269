"""`mbd attack`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--features", type=FOLDER, required=True, help="FeatureSet that the models were made from.")
@click.option("--before", type=FOLDER, help="Model that was deleted from; none if it is gone, as in a later audit.")
@click.option("--after", type=FOLDER, required=True, help="Model that should have forgotten.")
@click.option("--reference", type=FOLDER, required=True, help="Model trained without the modality.")
@click.option(
    "--modality",
    "modalities",
    required=True,
    multiple=True,
    metavar="MODALITY",
    help="Modality that was deleted; repeatable, one for each.",
)
@click.option("--out", type=FOLDER, required=True, help="Folder to write findings, report and figures to.")
@with_params
def command(
    params: "Params",
    features: Path,
    before: Path | None,
    after: Path,
    reference: Path,
    modalities: tuple[str, ...],
    out: Path,
) -> None:
    """Attack a model that should have forgotten a modality; exit code 3 if the gate refuses it."""
    from mbd.steps import attack

    def show(summary: str) -> None:
        click.echo(f"{summary}\n\nwritten to {out}")

    attack.run(params, features, before, after, reference, modalities, out, show=show, progress=True)
