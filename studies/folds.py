"""`python -m studies.folds FEATURES …`: settings of a backbone, compared by folds of the train split.

Whole groups of train rows are left out, a fold after the other: the model is trained on the rest (joint chooses its
epoch on the valid split), and is scored on the rows left out. Ridge for each set of modalities is fitted on the rest
and, in a second line, on the rest and valid. No test row is read. Each `--try` is one line of the table: settings as
for `--set`, with blanks between them; `@module._NAME=VALUE` is a constant of `mbd.training.lattice`, for as long as the
line is trained. ▲ and ▼ mark lines that are better or worse than the second ridge (`--beside first`: than the first
line), by the 95 % interval of the difference over groups.
"""

import tempfile
from ast import literal_eval
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import click
import numpy as np

from mbd.cli import run_command
from mbd.evaluation.ridge import PatternRidge
from mbd.features.contract import FeatureSet, write_manifest, write_splits
from mbd.features.rows import Collection, Rows
from mbd.markdown import table
from mbd.model.predictor import Model
from mbd.params import load_params
from mbd.registry import BACKBONES
from mbd.tensors import Array
from mbd.training.lattice.ridge import assign_folds
from studies.comparison import Column, Predictor, columns, estimate, planned, row_values, title

SHARES = ("0", "0.3", "0.5", "0.7", "1")
TRIED = tuple(f"model.joint.linear_share={share}" for share in SHARES)
RIDGES = {"ridge on train": ("train",), "ridge on train and valid": ("train", "valid")}
RIDGE, DEFAULTS = "ridge", "defaults"


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


@contextmanager
def constants(given: Sequence[str]) -> Iterator[None]:
    """Within: constants of the lattice's training, `module._NAME=VALUE`, have these values."""
    before = []
    try:
        for text in given:
            name, _, value = text.partition("=")
            module, _, attribute = name.rpartition(".")
            found = import_module(f"mbd.training.lattice.{module}")
            before.append((found, attribute, getattr(found, attribute)))
            setattr(found, attribute, literal_eval(value))
        yield
    finally:
        for module, attribute, value in reversed(before):
            setattr(module, attribute, value)


def trained(data: FeatureSet, backbone_name: str, settings: str, work: Path) -> Predictor:
    """Train a backbone with some settings."""
    words = settings.split()
    backbone = BACKBONES.get(backbone_name)
    params = load_params(None, [f"model.backbone={backbone_name}", *(word for word in words if word[0] != "@")])
    with constants([word[1:] for word in words if word[0] == "@"]):
        found = backbone.train(data, params, work=work, progress=False)
    return Model(found.record, backbone.load(found.record, found.tensors)).predict


def compare(folder: Path, backbone: str, tried: Sequence[str], folds: int, beside: str) -> str:
    """Return the table of one FeatureSet."""
    data = FeatureSet.open(folder)
    task, classes = data.manifest.task, len(data.manifest.classes)
    found: dict[str, dict[Column, list[Array]]] = {}
    groups: list[Array] = []
    with tempfile.TemporaryDirectory() as work:
        for part in folds_of(data, folds, Path(work)):
            plan = planned(part.split("test").load(), task)
            groups.append(plan.rows.groups)
            rows = {name: part.split(name).load() for name in ("train", "valid")}
            methods: dict[str, Predictor] = {
                line: PatternRidge(Rows.joined([rows[name] for name in names]), classes).predict
                for line, names in RIDGES.items()
            }
            for line in tried:
                with tempfile.TemporaryDirectory() as own:
                    methods[line or DEFAULTS] = trained(part, backbone, line, Path(own))
            for name, predict in methods.items():
                for key, values in row_values(predict, plan).items():
                    found.setdefault(name, {}).setdefault(key, []).append(values)
    whole = {name: {key: np.concatenate(parts) for key, parts in own.items()} for name, own in found.items()}
    every, other = np.concatenate(groups), whole[tuple(RIDGES)[-1] if beside == RIDGE else tried[0] or DEFAULTS]
    cells = columns(task, other)
    lines = [[name, *(str(estimate(own[c], other[c], every, c[1])) for c in cells)] for name, own in whole.items()]
    return table([f"{folder.name}, {len(every)} train rows", *map(title, cells)], lines)


@click.command()
@click.argument("features", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--backbone", default="joint", show_default=True, help="The backbone that is trained.")
@click.option("--try", "tried", multiple=True, default=TRIED, show_default=True, help="Settings of one line.")
@click.option("--folds", default=3, show_default=True, help="Folds of the train split.")
@click.option("--beside", type=click.Choice([RIDGE, "first"]), default=RIDGE, help="What lines are compared with.")
def main(features: tuple[Path, ...], backbone: str, tried: tuple[str, ...], folds: int, beside: str) -> None:
    """Compare settings of a backbone by folds of the train split."""
    for folder in features:
        click.echo(compare(folder, backbone, tried, folds, beside) + "\n")


if __name__ == "__main__":
    run_command(main, "python -m studies.folds")
