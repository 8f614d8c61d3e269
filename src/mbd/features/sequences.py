"""Computational sequences (CMU-MultimodalSDK): features with the intervals of time that they belong to.

A sequence is an HDF5 file with `ROOT/data/SEGMENT/features` (T × d) and `ROOT/data/SEGMENT/intervals` (T × 2,
seconds). A segment is a video or, in files that the SDK has aligned already, `video[k]`, a part of one.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError, MissingExtraError
from mbd.tensors import Array

_SEGMENT = re.compile(r"(?P<video>.+?)(?:\[(?P<number>\d+)\])?", re.DOTALL)
_AGAIN = "download it again, or name another one there"


@dataclass(frozen=True)
class Sequence:
    """An open file: for each video the numbers (None: the whole video) and names of its segments, in order."""

    path: Path
    data: Any
    videos: dict[str, list[tuple[int | None, str]]]

    def segment(self, name: str) -> tuple[Array, Array]:
        """Read the features (T × d) and the intervals (T × 2) of one segment."""
        try:
            features, intervals = (self.data[name][part] for part in ("features", "intervals"))
            described = [f"{part.shape} {part.dtype}" for part in (features, intervals)]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self.wrong(name, "it has no features or no intervals") from error
        if len(features.shape) != 2 or features.dtype.kind not in "fiu" or not features.shape[1]:
            raise self.wrong(name, f"its features are no matrix of numbers (T × d) but {described[0]}")
        if len(intervals.shape) != 2 or intervals.shape[1] != 2 or intervals.dtype.kind not in "fiu":
            raise self.wrong(name, f"its intervals are no matrix of seconds (T × 2) but {described[1]}")
        if len(features) != len(intervals):
            raise self.wrong(name, f"it has {len(features)} rows of features and {len(intervals)} intervals")
        try:
            features, intervals = features[:], intervals[:].astype(np.float64)
        except (OSError, RuntimeError, MemoryError) as error:
            raise self.wrong(name, f"the file is damaged: {error}") from error
        if not np.isfinite(intervals).all():
            raise self.wrong(name, "an interval begins or ends at NaN or infinity")
        return features, intervals

    def video(self, video: str) -> tuple[Array, Array] | None:
        """Read all segments of a video together, features as float32; None if there is none."""
        names = [name for _, name in self.videos.get(video, [])]
        if not names:
            return None
        parts = [self.segment(name) for name in names]
        widths = {features.shape[1] for features, _ in parts}
        if len(widths) > 1:
            raise self.wrong(names[0], f"the segments of its video have {sorted(widths)} columns")
        with np.errstate(over="ignore"):
            features = np.concatenate([features for features, _ in parts]).astype(np.float32)
        return features, np.concatenate([intervals for _, intervals in parts])

    def wrong(self, segment: str, how: str) -> DataError:
        """Return the error of a segment that cannot be used."""
        return DataError(
            f"the segment {segment} cannot be used: {how}",
            file=self.path,
            key=f"data/{segment}",
            hint="download the sequence again, or name the ones to read in features.source.csd.sequences",
        )


@contextmanager
def open_sequence(path: Path, key: str) -> Iterator[Sequence]:
    """Open the sequence that the parameter `key` names."""
    try:
        import h5py  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise MissingExtraError("reading .csd files", "data", "h5py") from error
    if not path.is_file():
        raise DataError("the sequence is missing", file=path, key=key, hint=_AGAIN)
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        problem = f"this is not an HDF5 file, or it is cut off: {error}"
        raise DataError(problem, file=path, key=key, hint=_AGAIN) from error
    with file:
        yield Sequence(path, *_contents(path, key, file))


def _contents(path: Path, key: str, file: Any) -> tuple[Any, dict[str, list[tuple[int | None, str]]]]:  # noqa: ANN401
    try:
        groups = [root["data"] for root in file.values() if hasattr(root, "keys") and "data" in root]
        names = list(groups[0]) if len(groups) == 1 and hasattr(groups[0], "keys") else None
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(f"the file is damaged: {error}", file=path, key=key, hint=_AGAIN) from error
    if names is None:
        raise DataError(
            "a computational sequence has one root group with a group `data` in it",
            file=path,
            key=key,
            value=f"at the root there is {', '.join(file) or 'nothing'}",
            hint="give a .csd file of CMU-MultimodalSDK",
        )
    videos: dict[str, list[tuple[int | None, str]]] = {}
    for name in names:
        match = _SEGMENT.fullmatch(name)
        video, number = match.group("video", "number") if match else (name, None)
        videos.setdefault(video, []).append((None if number is None else int(number), name))
    for segments in videos.values():
        segments.sort(key=lambda segment: -1 if segment[0] is None else segment[0])
    return groups[0], videos


def overlap_means(targets: Array, intervals: Array, features: Array) -> tuple[Array, Array]:
    """Return for each target interval the mean of `features` weighted by overlap, and the seconds of overlap.

    mean = Σ_t o_t · x_t / Σ_t o_t with o_t = max(0, min(end, end_t) − max(start, start_t)), zero without any overlap.
    """
    order = np.argsort(intervals[:, 0], kind="stable")
    starts, ends = intervals[order].T
    # Sorted by start, all that can overlap a target lies side by side: it begins before the target ends, and
    # everything before `first` has ended when the target begins.
    first = np.searchsorted(np.maximum.accumulate(ends), targets[:, 0], side="right")
    counts = np.maximum(np.searchsorted(starts, targets[:, 1], side="left") - first, 0)
    offsets = np.cumsum(counts) - counts
    target = np.repeat(np.arange(len(targets)), counts)
    row = np.arange(len(target)) + np.repeat(first - offsets, counts)
    shared = np.minimum(ends[row], targets[target, 1]) - np.maximum(starts[row], targets[target, 0])
    weights = np.maximum(shared, 0.0)
    seconds = np.bincount(target, weights, minlength=len(targets))
    sums = np.zeros((len(targets), features.shape[1]))
    reached = np.flatnonzero(counts)
    if reached.size:
        sums[reached] = np.add.reduceat(weights[:, None] * features[order[row]], offsets[reached], axis=0)
    return np.divide(sums, seconds[:, None], out=np.zeros_like(sums), where=seconds[:, None] > 0), seconds
