"""Folds of the train rows: whole groups, from the rows' groups alone."""

import numpy as np

from mbd.errors import DataError
from mbd.randomness import stream
from mbd.tensors import Array


def assign_folds(groups: Array, folds: int, seed: int) -> Array:
    """Return a fold for each row: whole groups in random order, each to the fold that has the fewest rows so far."""
    names, member = np.unique(groups, return_inverse=True)
    counts, sizes = np.bincount(member), np.zeros(folds, np.int64)
    fold_of = np.zeros(len(names), np.int64)
    for group in stream(seed, "lattice", "folds").permutation(len(names)):
        fold_of[group] = sizes.argmin()
        sizes[fold_of[group]] += counts[group]
    assigned: Array = fold_of[member]
    return assigned


def fold_numbers(folds: Array) -> Array:
    """Return the folds that occur, in order."""
    return np.flatnonzero(np.bincount(folds))


def refuse_too_few_groups(folds: Array, groups: Array) -> None:
    """Refuse rows of one group alone: there are no out-of-fold errors."""
    if len(fold_numbers(folds)) < 2:
        raise DataError(
            "the train split has a single group, and out-of-fold errors need at least two",
            key="train",
            value=groups[0],
            hint="give groups (speakers or videos), or set features.source.group_pattern=null",
        )
