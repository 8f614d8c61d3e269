"""Source `csd`: computational sequences of CMU-MultimodalSDK, aligned to the intervals of the labels.

A sequence is an HDF5 file with `ROOT/data/SEGMENT/features` (T × d) and `ROOT/data/SEGMENT/intervals` (T × 2, seconds);
a segment is a video or, in files that the SDK has aligned already, `video[k]`, a part of one.

Each interval of the label file is an utterance and becomes a row `video_k`; its label is the first column (in
MOSEI: sentiment). The row's vector of a modality is the mean of the modality's vectors in that video, weighted by
the seconds that they share with the utterance; without any overlap the modality is unavailable. NaN and ±inf
(COVAREP has −inf) are set to zero. What was corrected or left out is counted in the notes.
"""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError, naming
from mbd.features.rows import SPLIT_ALIASES, SPLITS, Collection, Rows
from mbd.features.sources import Source, choose_modalities, labelled
from mbd.files import read_json
from mbd.logs import progress_bar
from mbd.params.features import CsdSettings, FeaturesSettings
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


def _open_sequence(path: Path, key: str, stack: ExitStack) -> Sequence:
    """Open the sequence that the parameter `key` names, until the stack ends."""
    import h5py  # noqa: PLC0415 -- an extra

    with naming(path, _AGAIN):
        if not path.is_file():
            raise DataError("the sequence is missing", key=key)
        try:
            file = stack.enter_context(h5py.File(path, "r"))
        except OSError as error:
            raise DataError(f"this is not an HDF5 file, or it is cut off: {error}", key=key) from error
        return Sequence(path, *_contents(key, file))


def _contents(key: str, file: Any) -> tuple[Any, dict[str, list[tuple[int | None, str]]]]:  # noqa: ANN401
    try:
        groups = [root["data"] for root in file.values() if hasattr(root, "keys") and "data" in root]
        names = list(groups[0]) if len(groups) == 1 and hasattr(groups[0], "keys") else None
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(f"the file is damaged: {error}", key=key) from error
    if names is None:
        raise DataError(
            "a computational sequence has one root group with a group `data` in it",
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


_TOUCHING = 1e-4  # seconds; intervals that share less only touch, and their ends were rounded


@dataclass(frozen=True)
class _Utterances:
    """The intervals of the label file that belong to a fold, sorted by video."""

    videos: Array
    numbers: Array
    intervals: Array
    labels: Array


def read(params: FeaturesSettings) -> Collection:
    """Read the folder named by `features.source.path`."""
    folder, own = Path(params.source.path or ""), params.source.csd
    if not folder.is_dir():
        raise DataError("there is no such folder", key="features.source.path")
    with naming(folder / own.folds, 'write {"train": [video ids], "valid": [...], "test": [...]}'):
        fold_of = _read_folds(folder / own.folds)
    files = _sequence_files(folder, own, params.source.modalities)
    with ExitStack() as stack:
        labels = _open_sequence(folder / own.labels, "features.source.csd.labels", stack)
        key = "features.source.csd.sequences"
        sequences = {m: _open_sequence(path, key, stack) for m, path in files.items()}
        notes = _compare_videos(folder / own.folds, fold_of, labels, sequences)
        utterances = _read_labels(labels, fold_of)
        features, available = {}, {}
        for modality, sequence in sequences.items():
            features[modality], available[modality], counts = _align(modality, sequence, utterances)
            notes |= counts
    ids = np.char.add(np.char.add(utterances.videos, "_"), utterances.numbers.astype(np.str_))
    rows = Rows.of(ids, utterances.labels, features, groups=utterances.videos, available=available)
    anything = np.any(list(available.values()), axis=0)
    notes["rows without any modality, left out"] = int((~anything).sum())
    split_of = np.array([fold_of[video] for video in utterances.videos], dtype=np.str_)
    splits = {split: rows.take(anything & (split_of == split)) for split in SPLITS if split in split_of}
    paths = tuple(str(path) for path in (*files.values(), folder / own.labels, folder / own.folds))
    notes = {what: count for what, count in notes.items() if count}
    with naming(folder / own.labels):
        task = params.source.task or "regression"
        return labelled(folder.resolve().name, splits, task, files=paths, notes=notes)


def _align(modality: str, sequence: Sequence, utterances: _Utterances) -> tuple[Array, Array, dict[str, int]]:
    """Return a modality's vector for each utterance, which of them have one, and what was corrected."""
    videos, begins, sizes = np.unique(utterances.videos, return_index=True, return_counts=True)
    matrix, available = np.zeros((0, 0), dtype=np.float32), np.zeros(len(utterances.videos), dtype=bool)
    corrected = absent = 0
    for video, begin, size in progress_bar(
        iterable=zip(videos, begins, sizes, strict=True), desc=modality, total=len(videos)
    ):
        segments = sequence.video(str(video))
        if segments is None:
            absent += 1
            continue
        features, intervals = segments
        if not matrix.size:
            matrix = np.zeros((len(available), features.shape[1]), dtype=np.float32)
        if features.shape[1] != matrix.shape[1]:
            raise sequence.wrong(str(video), f"it has {features.shape[1]} columns, other videos {matrix.shape[1]}")
        bad = ~np.isfinite(features)
        corrected += int(bad.sum())
        features[bad] = 0.0
        here = slice(begin, begin + size)
        means, seconds = overlap_means(utterances.intervals[here], intervals, features)
        available[here] = seconds > _TOUCHING
        matrix[here] = np.where(available[here, None], means, 0.0)
    if not available.any():
        raise DataError(
            f"no utterance has anything of the modality {modality}",
            file=sequence.path,
            hint="check that this sequence, the labels and the folds are of one data set, with intervals in seconds",
        )
    counts = {f"{modality}: NaN or infinite values set to zero": corrected, f"{modality}: videos without it": absent}
    return matrix, available, counts


def _read_labels(sequence: Sequence, fold_of: dict[str, str]) -> _Utterances:
    videos: list[str] = []
    numbers, intervals, labels = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 2))], [np.zeros(0)]
    for video in sorted(sequence.videos.keys() & fold_of.keys()):
        for number, name in sequence.videos[video]:
            features, when = sequence.segment(name)
            if number is not None and len(when) != 1:
                raise sequence.wrong(name, f"a part of a video is one utterance, but it has {len(when)} intervals")
            videos += [video] * len(when)
            numbers.append(np.arange(len(when)) if number is None else np.array([number]))
            intervals.append(when)
            labels.append(features[:, 0].astype(np.float64))
    return _Utterances(
        np.array(videos, dtype=np.str_), np.concatenate(numbers), np.concatenate(intervals), np.concatenate(labels)
    )


def _sequence_files(folder: Path, own: CsdSettings, asked: tuple[str, ...] | None) -> dict[str, Path]:
    """Return the file of each modality to read."""
    if own.sequences:
        files = {modality: folder / name for modality, name in own.sequences.items()}
    else:
        paths = [path for path in sorted(folder.glob("*.csd")) if path != folder / own.labels]
        files = {re.sub(r"\W", "_", path.stem.lower(), flags=re.ASCII): path for path in paths}
        if not files:
            raise DataError("there is no .csd file beside the labels", key="features.source.path")
        if len(files) < len(paths) or not all(re.match("[a-z]", modality) for modality in files):
            raise DataError(
                "the names of the files do not give different modalities",
                value=", ".join(path.name for path in paths),
                hint="name the modalities in features.source.csd.sequences",
            )
    return {modality: files[modality] for modality in choose_modalities(asked, files)}


def _read_folds(path: Path) -> dict[str, str]:
    """Return the split of each video."""
    key = "features.source.csd.folds"
    try:
        folds = read_json(path)
    except OSError as error:
        raise DataError("the folds are missing", key=key) from error
    except ValueError as error:
        raise DataError(f"the folds are not JSON: {error}", key=key) from error
    if not isinstance(folds, dict):
        raise DataError("the folds must map splits to videos", key=key)
    fold_of: dict[str, str] = {}
    for name, videos in folds.items():
        split = SPLIT_ALIASES.get(name, name)
        if split not in SPLITS:
            raise DataError("there is no such split", key=name)
        if not isinstance(videos, list) or not all(isinstance(video, str) for video in videos):
            raise DataError("a fold must be a list of video ids", key=name)
        for video in videos:
            if fold_of.setdefault(video, split) != split:
                raise DataError("a video is in two folds", key=name, value=f"{video}, also {fold_of[video]}")
    return fold_of


def _compare_videos(
    path: Path, fold_of: dict[str, str], labels: Sequence, sequences: dict[str, Sequence]
) -> dict[str, int]:
    """Check that every video of the folds is in some file; return how many videos are left out and why."""
    folded, labelled = set(fold_of), set(labels.videos)
    unknown = sorted(folded - labelled.union(*(sequence.videos for sequence in sequences.values())))
    if unknown:
        raise DataError(
            "the folds name videos that are in none of the files",
            file=path,
            key=fold_of[unknown[0]],
            value=f"{len(unknown)}, the first is {unknown[0]}",
            hint="take them out of the folds, or check that the folds belong to this data set",
        )
    return {
        "videos in no fold, left out": len(labelled - folded),
        "videos without labels, left out": len(folded - labelled),
    }


SOURCE = Source(read, recognises=lambda path: any(path.glob("*.csd")))
