"""`mbd train`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--features", type=FOLDER, required=True, help="FeatureSet to train on.")
@click.option("--out", type=FOLDER, required=True, help="Folder to write the model to.")
@click.option(
    "--without",
    multiple=True,
    metavar="MODALITY",
    help="Train as if the data had no such modality; repeatable.",
)
@click.option("--seeds", metavar="N,N,…", help="Train one model for each seed, in OUT/seed-N.")
@with_params
def command(params: "Params", features: Path, out: Path, without: tuple[str, ...], seeds: str | None) -> None:
    """Train a model; run again after a kill, it goes on where it was.

    model.backbone says which: joint (for surgery and certified deletion) or lattice (for exact deletion).
    """
    from mbd.steps import train

    if seeds is None:
        result = train.run(params, features, out, without, progress=True)
        results = [result] if result else []
    else:
        results = train.run_seeds(params, features, out, _numbers(seeds), without, progress=True)
    if results:  # under torchrun only the first process has some
        click.echo(train.to_text(results))
        click.echo(f"\nwritten to {out}")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of whole numbers like 0,1,2", param_hint="--seeds") from None
