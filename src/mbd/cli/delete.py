"""`mbd delete`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import (
    FOLDER,
    JSON,
    MODALITIES,
    features,
    model,
    print_result,
    repeated,
    report_written,
    suggest,
)

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@features()
@model("Model folder to delete from.")
@MODALITIES
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="ID",
    help="Delete the modality of this subject (group) only; repeatable. For deletion.method=exact.",
)
@click.option(
    "--reference",
    type=FOLDER,
    help="Model trained without the modality: to measure the distance to it; exact releases it.",
)
@options.out("the new model and its deletion record")
@JSON
@with_params
def command(
    params: "Params",
    features: Path,
    model: Path,
    modalities: tuple[str, ...],
    subjects: tuple[str, ...],
    reference: Path | None,
    out: Path,
    as_json: bool,
) -> None:
    """Delete a modality from a model: surgery, certified or exact (deletion.method)."""
    from mbd.steps import delete

    result = delete.run(params, features, model, modalities, subjects, out, reference)
    if result:  # under torchrun only the first process has one
        print_result(result, result.to_text(), as_json=as_json)
        report_written("new model and its deletion record", out)
        data, beside = ("--features", features), reference or "REFERENCE"
        suggest("evaluate", *data, "--model", out, "--model", beside, "--out", "EVALUATION")
        if not subjects:
            models = ("--before", model, "--after", out, "--reference", beside)
            suggest("attack", *data, *models, *repeated("--modality", modalities), "--out", "LEAKAGE")
