"""`python -m studies.finetuning FEATURES …`: how far a certified deletion has come after some epochs, by folds.

Whole groups of train rows are left out, a fold after the other, and no test row is read. On the rest a model is
trained, the modality deleted by the method `certified` at each ε, and the model fine-tuned for each number of epochs.
Beside it stands the reference: training again without the modality, all epochs. ▲ and ▼ mark lines that are better or
worse than the reference, by the 95 % interval of the difference over groups of rows left out. The last column is the
CPU time of the deletion, in that of the reference. `--set` holds for trainings and deletions, `--try` for deletions.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np

from mbd.cli import run_command
from mbd.deletion.certified import delete
from mbd.deletion.methods import DeletionOutcome, ModelBefore
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.logs import progress_bar
from mbd.markdown import table
from mbd.model.predictor import Model
from mbd.params import Params, load_params
from mbd.registry import BACKBONES
from mbd.tensors import Array
from mbd.training.trained import Trained
from studies.comparison import Column, Predictor, columns, estimate, planned, row_values, title
from studies.folds import folds_of

EPSILONS = ("1", "8")
EPOCHS = ("0", "1", "2", "5", "10", "auto")
REFERENCE = "training again"


Measured = tuple[str, Predictor, float]
"""what a model is called, its predictions, and the CPU seconds that it took"""


@dataclass
class Line:
    """What one model reaches over all folds."""

    values: dict[Column, list[Array]] = field(default_factory=lambda: defaultdict(list))
    seconds: float = 0.0

    def of(self, key: Column) -> Array:
        """Return the values of all rows for a regime and a metric."""
        return np.concatenate(self.values[key])


def lines_of(data: FeatureSet, plain: FeatureSet, tried: Mapping[str, Params], params: Params) -> Iterator[Measured]:
    """Train on one fold; yield the reference, then the model after each certified deletion."""
    backbone = BACKBONES.get(params.model.backbone)
    revoked = tuple(m for m in data.modalities if m not in plain.modalities)

    def train(on: FeatureSet) -> Trained:
        with tempfile.TemporaryDirectory() as work:
            return backbone.train(on, params, work=Path(work), progress=False)

    def loaded(made: Trained | DeletionOutcome) -> Predictor:
        return Model(made.record, backbone.load(made.record, made.tensors)).predict

    start = time.process_time()
    yield REFERENCE, loaded(train(plain)), time.process_time() - start
    whole = train(data)
    before = ModelBefore(whole.record, whole.tensors, data)
    for name, settings in tried.items():
        start = time.process_time()
        after = delete(DeletionTarget(modalities=revoked), before, settings)
        yield name, loaded(after), time.process_time() - start


def compare(folder: Path, revoked: str, tried: Mapping[str, Params], params: Params, folds: int) -> str:
    """Return the table of one FeatureSet."""
    whole = FeatureSet.open(folder)
    task, found, groups = whole.manifest.task, defaultdict[str, Line](Line), list[Array]()
    steps = folds * (len(tried) + 1)
    with (
        tempfile.TemporaryDirectory() as work,
        progress_bar(total=steps, desc=whole.manifest.name, unit="model") as bar,
    ):
        for data in folds_of(whole, folds, Path(work)):
            plain = FeatureSet.open(data.folder, without=(revoked,))
            plan = planned(plain.split("test").load(), task)
            groups.append(plan.rows.groups)
            for name, predict, seconds in lines_of(data, plain, tried, params):
                found[name].seconds += seconds
                for key, values in row_values(predict, plan).items():
                    found[name].values[key].append(values)
                bar.update()
    every, beside = np.concatenate(groups), found[REFERENCE]
    cells = columns(task, beside.values)
    rows = [
        [
            name,
            *(str(estimate(line.of(c), beside.of(c), every, c[1])) for c in cells),
            f"{line.seconds / beside.seconds:.2f}",
        ]
        for name, line in found.items()
    ]
    head = f"{whole.manifest.name} without {revoked}, {len(every)} train rows"
    return table([head, *map(title, cells), "CPU time"], rows)


@click.command()
@click.argument("features", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--revoked", default="audio", show_default=True, help="The modality that is deleted.")
@click.option("--epsilon", "epsilons", multiple=True, default=EPSILONS, show_default=True, help="ε of a deletion.")
@click.option("--epochs", multiple=True, default=EPOCHS, show_default=True, help="Epochs of fine-tuning, or auto.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="A setting of all models.")
@click.option("--try", "tuned", multiple=True, metavar="KEY=VALUE", help="A setting of the deletions alone.")
@click.option("--folds", default=3, show_default=True, help="Folds of the train split.")
def main(
    features: tuple[Path, ...],
    revoked: str,
    epsilons: tuple[str, ...],
    epochs: tuple[str, ...],
    given: tuple[str, ...],
    tuned: tuple[str, ...],
    folds: int,
) -> None:
    """Compare certified deletions with training again, by folds of the train split."""
    tried = {
        f"ε = {epsilon}, {count} epochs": load_params(
            None,
            [
                "deletion.noise_seed=0",
                f"deletion.epsilon={epsilon}",
                f"deletion.certified.finetune_epochs={count}",
                *given,
                *tuned,
            ],
        )
        for epsilon in epsilons
        for count in epochs
    }
    for folder in features:
        click.echo(compare(folder, revoked, tried, load_params(None, given), folds) + "\n")


if __name__ == "__main__":
    run_command(main, "python -m studies.finetuning")
