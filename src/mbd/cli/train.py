"""`mbd train`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.options import features, print_result, repeated, report_written, suggest, with_params

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@features()
@options.out("the model")
@click.option(
    "--without", multiple=True, metavar="MODALITY", help="Train as if the data had no such modality; repeatable."
)
@click.option("--seeds", metavar="N,N,…", help="Train one model for each seed, in OUT/seed-N.")
@click.option(
    "--references",
    is_flag=True,
    help="Train the references of the model: one without each modality of requests.revocable, in OUT/MODALITY.",
)
@with_params
def command(
    params: "Params",
    features: Path,
    out: Path,
    without: tuple[str, ...],
    seeds: str | None,
    *,
    references: bool,
) -> None:
    """Train a model; an interrupted training continues when it is run again.

    model.backbone chooses the kind: joint, lattice (the fastest exact deletion), or the import path of a factory of
    PyTorch modules, PACKAGE.MODULE:FACTORY (docs/models.md).
    """
    from mbd.steps import train

    if references and (without or seeds is not None):
        raise click.UsageError("--references goes with neither --without nor --seeds")
    if references:
        results = train.run_references(params, features, out, progress=True)
    elif seeds is None:
        result = train.run(params, features, out, without, progress=True)
        results = [result] if result else []
    else:
        results = train.run_seeds(params, features, out, _numbers(seeds), without, progress=True)
    if results:  # under torchrun only the first process has some
        print_result(results, train.to_text(results))
        report_written(f"model{'s' * (len(results) > 1)}", out)
        if references:
            suggest("register", "--model", "MODEL", "--reference", out)
        else:
            _suggest(params, features, out, without)


def _suggest(params: "Params", features: Path, out: Path, without: tuple[str, ...]) -> None:
    """Suggest to measure a model and to train its reference; after a reference, to delete by a method that suits it."""
    from mbd.deletion.methods import methods_for

    data = ("--features", features)
    if without:
        gone, suited = repeated("--modality", without), methods_for(params.model.backbone)
        unsuited = params.deletion.method not in suited
        method = repeated("--set", [f"deletion.method={name}" for name in suited[:1] if unsuited])
        suggest("delete", *data, "--model", "MODEL", *gone, "--reference", out, *method, "--out", "DELETED")
    else:
        suggest("evaluate", *data, "--model", out, "--out", "EVALUATION")
        suggest("train", *data, "--without", "MODALITY", "--out", "REFERENCE")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of whole numbers like 0,1,2", param_hint="--seeds") from None
