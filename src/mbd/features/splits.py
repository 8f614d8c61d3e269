"""Groups, and the calibration split that is carved out of train when a source has none."""

import re
from dataclasses import replace

import numpy as np

from mbd.errors import DataError, UsageError
from mbd.features.rows import Collection, Rows
from mbd.params.features import CalibrationSettings
from mbd.randomness import stream
from mbd.tensors import Array


def groups_from_ids(ids: Array, pattern: str | None) -> Array:
    """Return the part of each id that names its video or speaker; an id that does not match is its own group."""
    if pattern is None:
        return ids
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"this is not a regular expression: {error}", key="features.source.group_pattern", value=pattern
        ) from error
    if expression.groups != 1:
        raise UsageError(
            "the pattern needs one parenthesis around the group",
            key="features.source.group_pattern",
            value=pattern,
        )
    return np.array([m[1] if (m := expression.match(name)) else name for name in ids.tolist()], dtype=np.str_)


def with_groups_from_ids(splits: dict[str, Rows], pattern: str | None) -> dict[str, Rows]:
    """Group the rows of all splits by their ids; a pattern that puts every row into one group groups nothing."""
    grouped = {split: replace(rows, groups=groups_from_ids(rows.ids, pattern)) for split, rows in splits.items()}
    names = {str(name) for rows in grouped.values() for name in np.unique(rows.groups)}
    return grouped if len(names) > 1 else splits


def carve(rows: Rows, size: int, seed: int, name: str) -> tuple[Rows, Rows]:
    """Split whole groups, `size` rows at the most, off `rows`; return what stays and what was taken."""
    groups, member = np.unique(rows.groups, return_inverse=True)
    counts = np.bincount(member)
    order = stream(seed, "carve", name).permutation(len(groups))
    taken = np.zeros(len(groups), dtype=bool)
    # Groups in random order, each taken if it still fits.
    left = size
    for group in order:
        if counts[group] <= left:
            taken[group] = True
            left -= counts[group]
    mask = taken[member]
    return rows.take(~mask), rows.take(mask)


def carve_share(rows: Rows, share: float, seed: int, name: str, key: str) -> tuple[Rows, Rows]:
    """Split whole groups off `rows`, at most a share of them; return what stays and what was taken.

    Raises:
        DataError: No group fits, or none would stay; `key` is the parameter that sets the share.

    """
    stays, taken = carve(rows, int(share * len(rows)), seed, name)
    if not len(taken) or not len(stays):
        raise DataError(
            f"no {name} split can be taken from {len(np.unique(rows.groups))} groups",
            key=key,
            value=share,
            hint="set another share: whole groups (speakers, videos, dialogues) are moved, and some must stay",
        )
    return stays, taken


def with_calibration(collection: Collection, params: CalibrationSettings, seed: int) -> Collection:
    """Return `collection` with a calibration split, carved out of train by group if the source has none."""
    if "calibration" in collection.splits or params.size == 0:
        return collection
    train = collection.splits["train"]
    smallest = int(np.unique(train.groups, return_counts=True)[1].min())
    size = min(params.size, max(int(params.share * len(train)), smallest if smallest <= len(train) // 2 else 0))
    stays, calibration = carve(train, size, seed, "calibration")
    if not len(calibration):
        raise DataError(
            f"no group of the train split fits into a calibration split of {size} rows",
            key="features.calibration.share",
            value=params.share,
            hint="raise it, or set features.calibration.size=0 to go without (then only exact deletion is possible)",
        )
    return replace(collection, splits={**collection.splits, "train": stays, "calibration": calibration})
