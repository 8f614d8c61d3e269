"""Source `csd`: computational sequences of CMU-MultimodalSDK, aligned to the intervals of the labels.

Each interval of the label file is an utterance and becomes a row `video_k`; its label is the first column (in
MOSEI: sentiment). The row's vector of a modality is the mean of the modality's vectors in that video, weighted by
the seconds that they share with the utterance; without any overlap the modality is unavailable. NaN and ±inf
(COVAREP has −inf) are set to zero. What was corrected or left out is counted in the notes.
"""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.errors import DataError
from mbd.features.rows import SPLIT_ALIASES, SPLITS, Collection, Rows
from mbd.features.sequences import Sequence, open_sequence, overlap_means
from mbd.features.sources import Source
from mbd.files import read_json
from mbd.logs import progress_bar
from mbd.params.features import CsdSettings, FeaturesSettings
from mbd.tensors import Array

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
        raise DataError("there is no such folder", file=folder, key="features.source.path")
    fold_of = _read_folds(folder / own.folds)
    files = _sequence_files(folder, own, params.source.modalities)
    with ExitStack() as stack:
        labels = stack.enter_context(open_sequence(folder / own.labels, "features.source.csd.labels"))
        sequences = {
            m: stack.enter_context(open_sequence(path, "features.source.csd.sequences")) for m, path in files.items()
        }
        notes = _compare_videos(folder / own.folds, fold_of, labels, sequences)
        utterances = _read_labels(labels, fold_of)
        features, available = {}, {}
        for modality, sequence in sequences.items():
            features[modality], available[modality], counts = _align(modality, sequence, utterances)
            notes |= counts
    return _collection(
        params,
        utterances,
        np.array([fold_of[video] for video in utterances.videos], dtype=np.str_),
        features,
        available,
        notes,
        tuple(str(path) for path in (*files.values(), folder / own.labels, folder / own.folds)),
    )


def _collection(
    params: FeaturesSettings,
    utterances: _Utterances,
    split_of: Array,
    features: dict[str, Array],
    available: dict[str, Array],
    notes: dict[str, int],
    files: tuple[str, ...],
) -> Collection:
    classification = params.source.task == "classification"
    rows = Rows.of(
        np.char.add(np.char.add(utterances.videos, "_"), utterances.numbers.astype(np.str_)),
        _classes(utterances.labels) if classification else utterances.labels.astype(np.float32),
        features,
        groups=utterances.videos,
        available=available,
    )
    anything = np.any(list(available.values()), axis=0)
    notes["rows without any modality, left out"] = int((~anything).sum())
    return Collection(
        name=Path(params.source.path or "").resolve().name,
        task="classification" if classification else "regression",
        classes=tuple(str(c) for c in range(int(rows.labels.max(initial=0)) + 1)) if classification else (),
        splits={split: rows.take(anything & (split_of == split)) for split in SPLITS if split in split_of},
        files=files,
        notes={what: count for what, count in notes.items() if count},
    )


def _align(modality: str, sequence: Sequence, utterances: _Utterances) -> tuple[Array, Array, dict[str, int]]:
    """Return a modality's vector for each utterance, which of them have one, and what was corrected."""
    videos, begins, sizes = np.unique(utterances.videos, return_index=True, return_counts=True)
    matrix, available = np.zeros((0, 0), dtype=np.float32), np.zeros(len(utterances.videos), dtype=bool)
    corrected = absent = 0
    for video, begin, size in progress_bar(
        iterable=zip(videos, begins, sizes, strict=True), desc=modality, total=len(videos)
    ):
        found = sequence.video(str(video))
        if found is None:
            absent += 1
            continue
        features, intervals = found
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


def _classes(labels: Array) -> Array:
    if not np.isfinite(labels).all() or (labels != np.floor(labels)).any():
        raise DataError(
            "the labels are not whole numbers, so they are not classes",
            key="features.source.task",
            value="classification",
            hint="set features.source.task=regression",
        )
    return labels.astype(np.int64)


def _sequence_files(folder: Path, own: CsdSettings, asked: tuple[str, ...] | None) -> dict[str, Path]:
    """Return the file of each modality to read."""
    if own.sequences:
        files = {modality: folder / name for modality, name in own.sequences.items()}
    else:
        paths = [path for path in sorted(folder.glob("*.csd")) if path != folder / own.labels]
        files = {re.sub(r"\W", "_", path.stem.lower(), flags=re.ASCII): path for path in paths}
        if not files:
            raise DataError("there is no .csd file beside the labels", file=folder, key="features.source.path")
        if len(files) < len(paths) or not all(re.match("[a-z]", modality) for modality in files):
            raise DataError(
                "the names of the files do not give different modalities",
                file=folder,
                value=", ".join(path.name for path in paths),
                hint="name the modalities in features.source.csd.sequences",
            )
    unknown = [modality for modality in asked or () if modality not in files]
    if unknown:
        raise DataError(
            f"there is no sequence for the modality {unknown[0]!r}",
            file=folder,
            key="features.source.modalities",
            hint=f"there is {', '.join(files) or 'none'}; features.source.csd.sequences gives files their names",
        )
    return files if asked is None else {modality: files[modality] for modality in asked}


def _read_folds(path: Path) -> dict[str, str]:
    """Return the split of each video."""
    key, hint = "features.source.csd.folds", 'write {"train": [video ids], "valid": [...], "test": [...]}'
    try:
        folds = read_json(path)
    except OSError as error:
        raise DataError("the folds are missing", file=path, key=key, hint=hint) from error
    except ValueError as error:
        raise DataError(f"the folds are not JSON: {error}", file=path, key=key, hint=hint) from error
    if not isinstance(folds, dict):
        raise DataError("the folds must map splits to videos", file=path, key=key, hint=hint)
    fold_of: dict[str, str] = {}
    for name, videos in folds.items():
        split = SPLIT_ALIASES.get(name, name)
        if split not in SPLITS:
            raise DataError("there is no such split", file=path, key=name, hint=hint)
        if not isinstance(videos, list) or not all(isinstance(video, str) for video in videos):
            raise DataError("a fold must be a list of video ids", file=path, key=name, hint=hint)
        for video in videos:
            if fold_of.setdefault(video, split) != split:
                raise DataError("a video is in two folds", file=path, key=name, value=f"{video}, also {fold_of[video]}")
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
