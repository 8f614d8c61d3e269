"""`mbd features`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import FOLDER, with_params

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--out", type=FOLDER, required=True, help="Folder to write the FeatureSet to.")
@with_params
def command(params: "Params", out: Path) -> None:
    """Bring feature data of any source into one checked form, a FeatureSet."""
    from mbd.report.text import features_summary
    from mbd.steps import features

    click.echo(features_summary(features.run(params, out)))
    click.echo(f"\nwritten to {out}")
