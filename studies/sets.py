"""`python -m studies.sets OUT [SCORES.npz …]`: data sets for comparisons, as .npz files that `mbd` reads.

Real data that scikit-learn ships, and of each named file with scores the same rows as classes (NAME7: scores rounded):

    breast_cancer   malignant or benign; modalities: mean, error and worst value of ten measures of cell nuclei
    wine            three growers; modalities: basics, phenols, appearance
    digits          ten digits; modalities: upper and lower half of the image
    diabetes        progression, standardised by the train rows; modalities: person, serum

Sixty percent of the rows are train, fifteen valid, twenty-five test, drawn at random within each class from the
seed; every row is a group of its own.
"""

from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np
from sklearn import datasets

from mbd.cli import run_command
from mbd.randomness import stream
from mbd.tensors import Array

PARTS: Mapping[str, Mapping[str, slice]] = {
    "breast_cancer": {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)},
    "wine": {"basics": slice(0, 5), "phenols": slice(5, 9), "appearance": slice(9, 13)},
    "digits": {"upper": slice(0, 32), "lower": slice(32, 64)},
    "diabetes": {"person": slice(0, 4), "serum": slice(4, 10)},
}
"""columns of each modality"""
_TRAIN, _VALID = 0.6, 0.15


def bundled(name: str, seed: int = 0) -> dict[str, Array]:
    """Return the arrays of a data set that scikit-learn ships."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    scores = y.dtype.kind == "f"
    share = _ranks(np.zeros(len(y), int) if scores else y, seed, name)
    splits = {
        "train": share < _TRAIN,
        "valid": (share >= _TRAIN) & (share < _TRAIN + _VALID),
        "test": share >= _TRAIN + _VALID,
    }
    if scores:
        y = (y - y[splits["train"]].mean()) / y[splits["train"]].std()
    found: dict[str, Array] = {}
    for split, rows in splits.items():
        ids = np.array([f"r{row}" for row in np.flatnonzero(rows)])
        found |= {f"{split}_ids": ids, f"{split}_groups": ids, f"{split}_labels": y[rows]}
        found |= {f"{split}_{m}": x[rows, columns].astype(np.float32) for m, columns in PARTS[name].items()}
    return found


def _ranks(classes: Array, seed: int, name: str) -> Array:
    """Return for each row its random rank among those of its class, between 0 and 1."""
    drawn, ranks = stream(seed, "studies", "sets", name).random(len(classes)), np.empty(len(classes))
    for one in np.unique(classes):
        rows = np.flatnonzero(classes == one)
        ranks[rows[np.argsort(drawn[rows])]] = (np.arange(len(rows)) + 0.5) / len(rows)
    return ranks


def rounded(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the same rows with scores between −3 and 3 as seven classes."""
    labels = {key: np.rint(np.clip(x, -3, 3)).astype(np.int64) + 3 for key, x in arrays.items() if _are_labels(key)}
    return {**arrays, **labels}


def _are_labels(key: str) -> bool:
    return key.endswith("_labels")


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.argument("scores", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
def main(out: Path, scores: tuple[Path, ...]) -> None:
    """Write data sets for comparisons into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    sets = {name: bundled(name) for name in PARTS}
    for file in scores:
        with np.load(file) as arrays:
            sets[f"{file.stem}7"] = rounded(arrays)
    for name, arrays in sets.items():
        np.savez(out / f"{name}.npz", allow_pickle=False, **arrays)
        click.echo(out / f"{name}.npz")


if __name__ == "__main__":
    run_command(main, "python -m studies.sets")
