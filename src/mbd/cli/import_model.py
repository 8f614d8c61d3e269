"""`mbd import`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import JSON, features, print_result, report_written, suggest
from mbd.errors import UsageError

if TYPE_CHECKING:
    from mbd.params import Params


@click.command("import")
@click.option(
    "--weights",
    type=click.Path(path_type=Path, dir_okay=False),
    help="state_dict: safetensors, or what torch.save wrote. With --from: its path among the files of the version.",
)
@click.option(
    "--from",
    "source",
    metavar="models:/NAME/VERSION",
    help="A version in the MLflow registry, or models:/NAME@ALIAS. Its weights are read; no code of it is run.",
)
@features()
@click.option(
    "--trained-on",
    required=True,
    multiple=True,
    metavar="MODALITY",
    help="A modality that training saw; repeatable.",
)
@options.out("the model")
@JSON
@with_params
def command(
    params: "Params",
    weights: Path | None,
    source: str | None,
    features: Path,
    trained_on: tuple[str, ...],
    out: Path,
    as_json: bool,
) -> None:
    """Import a model that was trained elsewhere.

    model.backbone is the import path of its factory, PACKAGE.MODULE:FACTORY, and model.options its arguments
    (docs/models.md). The FeatureSet is the data that it was trained on.
    """
    from mbd.steps import import_model, train

    if source:
        file = weights.as_posix() if weights else None
        result = import_model.run_from_registry(params, source, file, features, trained_on, out)
    elif weights:
        result = import_model.run(params, weights, features, trained_on, out)
    else:
        raise UsageError("the weights are not named", key="--weights", hint="give --weights FILE, or --from models:/…")
    print_result([result], train.to_text([result]), as_json=as_json)
    report_written("model", out)
    suggest("evaluate", "--features", features, "--model", out, "--out", "EVALUATION")
