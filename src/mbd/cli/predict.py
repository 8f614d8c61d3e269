"""`mbd predict`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import JSON, features, model, print_result, report_written

if TYPE_CHECKING:
    from mbd.params import Params

_LOG = logging.getLogger(__name__)


@click.command()
@features()
@model()
@click.option("--split", default="test", show_default=True, help="Split whose rows are scored.")
@click.option("--available", metavar="M,M,…", help="Use only these modalities [default: all that a row has].")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="File to write: Parquet if its name ends with .parquet, else CSV.",
)
@JSON
@with_params
def command(
    params: "Params", features: Path, model: Path, split: str, available: str | None, out: Path, as_json: bool
) -> None:
    """Score rows with a model, from the modalities that each row has."""
    from mbd.steps import predict

    names = None if available is None else [name.strip() for name in available.split(",") if name.strip()]
    done = predict.run(features, model, out, split=split, available=names)
    print_result(done, f"{done.rows} rows of {done.split} from {', '.join(done.modalities)}", as_json=as_json)
    if done.without_prediction:
        _LOG.warning("%d rows have none of these modalities: their prediction is empty", done.without_prediction)
    report_written("predictions", out)
