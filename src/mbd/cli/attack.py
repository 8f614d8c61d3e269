"""`mbd attack`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import FOLDER, JSON, MODALITIES, features, print_result, report_written, suggest

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@features()
@click.option("--before", type=FOLDER, help="Model before the deletion; may be left out in a later audit.")
@click.option("--after", type=FOLDER, required=True, help="Model after the deletion.")
@click.option("--reference", type=FOLDER, required=True, help="Model trained without the modality.")
@MODALITIES
@options.out("measurements, report and figures")
@JSON
@with_params
def command(
    params: "Params",
    features: Path,
    before: Path | None,
    after: Path,
    reference: Path,
    modalities: tuple[str, ...],
    out: Path,
    as_json: bool,
) -> None:
    """Attack a model after a deletion; exit code 3 if the gate refuses it."""
    from mbd.files import read_json
    from mbd.steps import attack

    def show(summary: str) -> None:  # called for a refused model as well
        print_result(read_json(out / "leakage.json"), summary, as_json=as_json)
        report_written("measurements, report and figures", out, attack.REPORT)

    attack.run(params, features, before, after, reference, modalities, out, show=show, progress=True)
    if before:
        inputs = ("--deletion", after, "--leakage", out, "--evaluation", "EVALUATION")
        suggest("certify", *inputs, "--out", "CERTIFICATE")
    else:
        suggest("certificate", "reaudit", "CERTIFICATE", "--leakage", out)
