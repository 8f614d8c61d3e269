"""`mbd predict`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--features", type=FOLDER, required=True, help="FeatureSet with the rows to score.")
@click.option("--model", type=FOLDER, required=True, help="Model folder.")
@click.option("--split", default="test", show_default=True, help="Split whose rows are scored.")
@click.option("--available", metavar="M,M,…", help="Use only these modalities [default: all that a row has].")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="File to write: Parquet if its name ends with .parquet, else CSV.",
)
@with_params
def command(params: "Params", features: Path, model: Path, split: str, available: str | None, out: Path) -> None:
    """Score rows with a model, from whatever modalities each row has."""
    from mbd.steps import predict

    names = None if available is None else [name.strip() for name in available.split(",") if name.strip()]
    done = predict.run(features, model, out, split=split, available=names)
    click.echo(f"{done.rows} rows of {done.split} from {', '.join(done.modalities)}")
    if done.without_prediction:
        click.echo(f"{done.without_prediction} rows have none of these: their prediction is empty", err=True)
    click.echo(f"written to {out}")
