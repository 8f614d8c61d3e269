"""`mbd evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--features", type=FOLDER, required=True, help="FeatureSet to evaluate on.")
@click.option(
    "--model",
    "models",
    type=FOLDER,
    required=True,
    multiple=True,
    help="Model folder, or a folder of seed-* models; repeatable, one for each method.",
)
@click.option("--against", type=FOLDER, help="Model folder that the others are tested against (paired t-test).")
@click.option("--out", type=FOLDER, required=True, help="Folder to write metrics, tables and figures to.")
@with_params
def command(params: "Params", features: Path, models: tuple[Path, ...], against: Path | None, out: Path) -> None:
    """Measure models with every set of modalities missing, at random or by pattern, clean and corrupted."""
    from mbd.report.evaluation import evaluation_summary
    from mbd.steps import evaluate

    click.echo(evaluation_summary(evaluate.run(params, features, models, out, against=against)))
    click.echo(f"\nwritten to {out}")
