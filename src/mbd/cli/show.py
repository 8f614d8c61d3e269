"""`mbd show`."""

from pathlib import Path

import click

from mbd.cli.common import FOLDER


@click.command()
@click.argument("folder", type=FOLDER, default="build")
def command(folder: Path) -> None:
    """List the steps that have run in FOLDER [build], with their digests and what to open first."""
    from mbd.report.overview import overview

    click.echo(overview(folder))
