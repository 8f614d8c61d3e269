"""`mbd compare`."""

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
@model("Model that was deleted from.")
@click.option("--reference", type=FOLDER, required=True, help="Model trained without the modality.")
@click.option("--deletion", type=FOLDER, required=True, help="Model after the deletion, as `mbd delete` wrote it.")
@click.option("--leakage", type=FOLDER, required=True, help="Attacks on it, as `mbd attack` wrote them.")
@options.out("the comparison")
@JSON
@with_params
def command(
    params: "Params",
    features: Path,
    model: Path,
    reference: Path,
    deletion: Path,
    leakage: Path,
    out: Path,
    as_json: bool,
) -> None:
    """Compare a deletion with the other methods: what is proven, utility, time, and what attacks find.

    The others are carried out for it (exact on a lattice), attacked, and removed; they are never certified.
    """
    from mbd.steps import compare

    result = compare.run(params, features, model, reference, deletion, leakage, out)
    print_result(result, result.to_text(), as_json=as_json)
    report_written("comparison", out, compare.TABLE)
