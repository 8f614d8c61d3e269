"""`python -m studies.joint FEATURES …`: the settings of the joint backbone, compared by folds of the train split.

Whole groups of train rows are left out, a fold after the other: the model is trained on the rest, chooses its epoch on
the valid split, and is scored on the rows left out. Ridge for each set of modalities is fitted on the rest and, in a
second line, on the rest and valid, as in :mod:`studies.peers`. No test row is read. Each `--try` is one line of the
table: settings as for `--set`, with blanks between them. ▲ and ▼ mark lines that are better or worse than the second
ridge, by the 95 % interval of the difference over groups.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from mbd.cli import run_command
from mbd.evaluation.baseline import PatternRidge
from mbd.evaluation.regimes import plan_evaluation
from mbd.features.contract import FeatureSet, write_manifest, write_splits
from mbd.features.rows import Collection, Rows
from mbd.markdown import table
from mbd.model.predictor import Model
from mbd.params import load_params
from mbd.registry import BACKBONES
from mbd.tensors import Array
from mbd.training.lattice.folds import assign_folds
from studies.peers import COLUMNS, METRICS, RATES, Predictor, cell, row_values

SHARES = ("0", "0.5", "0.7", "0.8", "1")
TRIED = tuple(f"model.joint.linear_share={share}" for share in SHARES)
RIDGES = {"ridge on train": ("train",), "ridge on train and valid": ("train", "valid")}
BESIDE = tuple(RIDGES)[-1]


def folds_of(data: FeatureSet, count: int, work: Path) -> Iterator[FeatureSet]:
    """Write and yield a FeatureSet for each fold: train is the rest, test the rows left out, valid stays."""
    train, valid, manifest = data.split("train").load(), data.split("valid").load(), data.manifest
    fold_of = assign_folds(train.groups, count, 0)
    for fold in range(count):
        splits = {"train": train.take(fold_of != fold), "valid": valid, "test": train.take(fold_of == fold)}
        collection = Collection(manifest.name, manifest.task, splits, manifest.classes)
        folder = work / str(fold)
        write_manifest(
            folder,
            collection,
            write_splits(folder, collection),
            label_range=manifest.label_range or (0.0, 0.0),
            calibration=manifest.calibration,
            provenance=manifest.provenance,
        )
        yield FeatureSet.open(folder)


def trained(data: FeatureSet, settings: str, work: Path) -> Predictor:
    """Train the joint backbone with some settings."""
    backbone, params = BACKBONES.get("joint"), load_params(None, settings.split())
    found = backbone.train(data, params, work=work, progress=False)
    return Model(found.record, backbone.load(found.record, found.tensors)).predict


def compare(folder: Path, tried: Sequence[str], folds: int) -> str:
    """Return the table of one FeatureSet."""
    data = FeatureSet.open(folder)
    task, classes = data.manifest.task, len(data.manifest.classes)
    settings = load_params(None).evaluation.model_copy(update={"missing_rates": RATES})
    cells = [(column, metric) for column in COLUMNS for metric in METRICS[task]]
    found: dict[str, dict[tuple[str, str], list[Array]]] = {}
    groups: list[Array] = []
    with tempfile.TemporaryDirectory() as work:
        for part in folds_of(data, folds, Path(work)):
            plan = plan_evaluation(part.split("test").load(), task, settings)
            groups.append(plan.rows.groups)
            rows = {name: part.split(name).load() for name in ("train", "valid")}
            methods: dict[str, Predictor] = {
                line: PatternRidge(Rows.joined([rows[name] for name in names]), classes).predict
                for line, names in RIDGES.items()
            }
            for line in tried:
                with tempfile.TemporaryDirectory() as own:
                    methods[line] = trained(part, line, Path(own))
            for name, predict in methods.items():
                for key, values in row_values(predict, plan).items():
                    found.setdefault(name, {}).setdefault(key, []).append(values)
    whole = {name: {key: np.concatenate(parts) for key, parts in own.items()} for name, own in found.items()}
    every, ridge = np.concatenate(groups), whole[BESIDE]
    lines = [[name, *(cell(own[c], ridge[c], every, c[1]) for c in cells)] for name, own in whole.items()]
    header = [f"{data.manifest.name}, {len(every)} train rows", *(f"{c} {METRICS[task][m]}" for c, m in cells)]
    return table(header, lines)


@click.command()
@click.argument("features", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--try", "tried", multiple=True, default=TRIED, show_default=True, help="Settings of one line.")
@click.option("--folds", default=3, show_default=True, help="Folds of the train split.")
def main(features: tuple[Path, ...], tried: tuple[str, ...], folds: int) -> None:
    """Compare settings of the joint backbone by folds of the train split."""
    for folder in features:
        click.echo(compare(folder, tried, folds) + "\n")


if __name__ == "__main__":
    run_command(main, "python -m studies.joint")
