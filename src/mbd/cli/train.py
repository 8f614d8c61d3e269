"""`mbd train`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import JSON, features, print_result

if TYPE_CHECKING:
    from mbd.params import Params

_LOG = logging.getLogger(__name__)


@click.command()
@features()
@options.out("the model")
@click.option(
    "--without",
    multiple=True,
    metavar="MODALITY",
    help="Train as if the data had no such modality; repeatable.",
)
@click.option("--seeds", metavar="N,N,…", help="Train one model for each seed, in OUT/seed-N.")
@JSON
@with_params
def command(
    params: "Params", features: Path, out: Path, without: tuple[str, ...], seeds: str | None, as_json: bool
) -> None:
    """Train a model; an interrupted training continues when it is run again.

    model.backbone chooses the kind: joint (for surgery and certified deletion) or lattice (for exact deletion).
    """
    from mbd.steps import train

    if seeds is None:
        result = train.run(params, features, out, without, progress=True)
        results = [result] if result else []
    else:
        results = train.run_seeds(params, features, out, _numbers(seeds), without, progress=True)
    if results:  # under torchrun only the first process has some
        print_result(results, train.to_text(results), as_json=as_json)
        _LOG.info("written to %s", out)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of whole numbers like 0,1,2", param_hint="--seeds") from None
