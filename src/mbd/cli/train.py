"""`mbd train`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import JSON, features, print_result, repeated, report_written, suggest

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.training.trained import Part


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
@click.option("--part", metavar="K/N", help="Train the K-th of N parts of a lattice: some of its modules.")
@click.option(
    "--join",
    multiple=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Make the model of parts that --part has trained, and train what they lack; repeatable.",
)
@JSON
@with_params
def command(
    params: "Params",
    features: Path,
    out: Path,
    without: tuple[str, ...],
    seeds: str | None,
    part: str | None,
    join: tuple[Path, ...],
    *,
    references: bool,
) -> None:
    """Train a model; an interrupted training continues when it is run again.

    model.backbone chooses the kind: joint, lattice (the fastest exact deletion), or the import path of a factory of
    PyTorch modules, PACKAGE.MODULE:FACTORY (docs/models.md).
    """
    from mbd.steps import train

    if seeds is not None and (part or join):
        raise click.UsageError("--seeds goes with neither --part nor --join: give training.seed instead")
    if references and (without or part or join or seeds is not None):
        raise click.UsageError("--references goes with none of --without, --seeds, --part and --join")
    if references:
        results = train.run_references(params, features, out, progress=True)
    elif seeds is None:
        own = _part(part) if part else None
        result = train.run(params, features, out, without, part=own, join=join, progress=True)
        results = [result] if result else []
    else:
        results = train.run_seeds(params, features, out, _numbers(seeds), without, progress=True)
    if results:  # under torchrun only the first process has some
        print_result(results, train.to_text(results))
        report_written("part" if part else f"model{'s' * (len(results) > 1)}", out)
        if references:
            suggest("register", "--model", "MODEL", "--reference", out)
        elif part:
            suggest("train", "--features", features, "--join", out, "--join", "…", "--out", "MODEL")
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


def _part(text: str) -> "Part":
    from mbd.training.trained import Part

    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise click.BadParameter(f"{text!r} is not a part like 1/3, 2/3 or 3/3", param_hint="--part")
    return Part(int(number), int(count))
