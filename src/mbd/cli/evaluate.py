"""`mbd evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import FOLDER, JSON, features, model, print_result, report_written

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@features()
@model("Model folder, or a folder of seed-* models; repeatable, one for each method.", "models", multiple=True)
@click.option("--against", type=FOLDER, help="Model folder that the others are tested against (paired t-test).")
@options.out("metrics, tables and figures")
@JSON
@with_params
def command(
    params: "Params", features: Path, models: tuple[Path, ...], against: Path | None, out: Path, as_json: bool
) -> None:
    """Evaluate models with every set of modalities missing, at random or by pattern, clean and corrupted."""
    from mbd.steps import evaluate

    result = evaluate.run(params, features, models, out, against=against)
    print_result(result.metrics, result.to_text(), as_json=as_json)
    report_written("metrics, tables and figures", out, evaluate.REPORT)
