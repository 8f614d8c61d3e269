"""Source `mmsa`: the aligned and unaligned feature pickles of MMSA (https://github.com/thuiar/MMSA).

The file is a dictionary with train, valid and test. Each is a dictionary with

    id                                            n texts, such as `video$_$clip`
    text, audio, vision                           n × T × d, padded with all-zero frames
    audio_lengths, vision_lengths, text_lengths   n true lengths, in unaligned files
    text_bert                                     n × 3 × T: token ids, mask, segments
    regression_labels                             n numbers
    classification_labels and/or annotations      n classes

A sequence becomes its mean frame (`mbd.features.pooling`), or with features.source.sequences=keep stays a sequence,
padded behind only. `vision` is called visual here. `text_bert` holds no vectors; its mask gives the length of `text`.
NaN and infinite values (some audio has −∞) count as 0 and are noted. A modality of which a row has no frame is not
available in that row.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError, naming
from mbd.features.pickles import described, load_pickle, outermost
from mbd.features.pooling import keep, pool
from mbd.features.rows import SPLIT_ALIASES, SPLITS, Collection, Rows
from mbd.features.sources import Source, choose_modalities, labelled
from mbd.features.splits import with_groups_from_ids
from mbd.formats.features import Task
from mbd.params.features import FeaturesSettings
from mbd.tensors import Array

_ENTRIES = {"text": "text", "audio": "audio", "visual": "vision"}
_HINT = "give a feature file of MMSA (such as aligned_50.pkl or unaligned_50.pkl)"


def read(params: FeaturesSettings) -> Collection:
    """Read the file named by `features.source.path`."""
    path = Path(params.source.path or "")
    with naming(path, _HINT):
        splits = _splits(load_pickle(path))
        modalities = _modalities(splits, params.source.modalities)
        choices = (params.source.task, params.source.mmsa.labels)
        task: Task = "classification" if "classification" in choices else "regression"
        if task == "classification":
            labels = _class_labels(splits)
            names = _class_names(splits, labels)
        else:
            labels, names = {split.name: split.numbers("regression_labels") for split in splits}, {}
        notes: dict[str, Any] = {}
        keeps = params.source.sequences == "keep"
        rows = {split.name: _rows(split, labels[split.name], modalities, notes, keeps) for split in splits}
    rows = with_groups_from_ids(rows, params.source.group_pattern)
    return labelled(path.stem, rows, task, names, files=(str(path),), notes=notes)


@dataclass(frozen=True)
class _Split:
    """One split of the file, whose entries are checked when they are taken."""

    name: str
    entries: dict[Any, Any]

    def wrong(self, key: str, problem: str, value: object = None) -> DataError:
        """Return the error of one entry."""
        return DataError(problem, key=f"{self.name}.{key}", value=value)

    def get(self, key: str) -> Any:  # noqa: ANN401 -- whatever the file holds
        """Return an entry."""
        if key not in self.entries:
            there = ", ".join(str(entry) for entry in self.entries)
            raise self.wrong(key, f"the entry {key} is missing in {self.name}", f"there is {there or 'none'}")
        return self.entries[key]

    def texts(self, key: str) -> list[str]:
        """Return an entry of texts."""
        entry = self.get(key)
        texts = entry.ravel().tolist() if isinstance(entry, np.ndarray) else entry
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str | bytes) for text in texts):
            raise self.wrong(key, f"{key} must be a list of texts", type(entry).__name__)
        return [text if isinstance(text, str) else text.decode("utf-8", "replace") for text in texts]

    def numbers(self, key: str) -> Array:
        """Return an entry of one number for each row."""
        entry = self.get(key)
        if isinstance(entry, list | tuple) and all(isinstance(x, int | float | np.number) for x in entry):
            entry = np.array(entry)
        if not isinstance(entry, np.ndarray) or entry.dtype.kind not in "fiub" or entry.shape[:1] != (entry.size,):
            raise self.wrong(key, f"{key} must be a list of numbers, one for each row", described(entry))
        return entry.ravel()

    def sequences(self, key: str) -> Array:
        """Return an entry of sequences, n × T × d."""
        entry = self.get(key)
        if not isinstance(entry, np.ndarray) or entry.dtype.kind not in "fiu" or entry.ndim not in (2, 3):
            raise self.wrong(key, f"{key} must be an array of numbers (rows × frames × dimension)", described(entry))
        return entry if entry.ndim == 3 else entry[:, None, :]


def _splits(content: object) -> list[_Split]:
    if not isinstance(content, dict):
        raise DataError("an MMSA file is a dictionary with train, valid and test", value=described(content))
    named = {SPLIT_ALIASES.get(name, name): entries for name, entries in content.items() if isinstance(name, str)}
    missing = [split for split in ("train", "valid", "test") if split not in named]
    if missing:
        there = ", ".join(str(name) for name in content) or "none"
        raise DataError(f"the split {missing[0]} is missing", value=f"there is {there}")
    splits = [_Split(split, named[split]) for split in SPLITS if split in named]
    for split in splits:
        if not isinstance(split.entries, dict):
            problem = f"the split {split.name} must be a dictionary of entries"
            raise DataError(problem, key=split.name, value=described(split.entries))
    return splits


def _modalities(splits: list[_Split], asked: tuple[str, ...] | None) -> tuple[str, ...]:
    there = tuple(m for m, entry in _ENTRIES.items() if any(entry in split.entries for split in splits))
    tokens = "text" in (asked or ()) and "text" not in there and "text_bert" in splits[0].entries
    return choose_modalities(asked, there, ": text_bert holds token ids, not vectors" if tokens else "")


def _rows(split: _Split, labels: Array, modalities: tuple[str, ...], notes: dict[str, Any], keeps: bool) -> Rows:
    ids = split.texts("id")
    features, available, true_lengths = {}, {}, {}
    for modality in modalities:
        key = _ENTRIES[modality]
        sequences = split.sequences(key)
        if len(sequences) != len(ids):
            raise split.wrong(key, f"there must be as many rows of {key} as ids", f"{len(sequences)} and {len(ids)}")
        lengths = _lengths(split, key, sequences, notes)
        frames = (keep if keeps else pool)(sequences, lengths)
        features[modality], available[modality] = frames.features, frames.available
        if frames.lengths is not None:
            true_lengths[modality] = frames.lengths
        for what, count in (
            ("values that were NaN or infinite, set to 0", frames.corrected),
            ("rows with frames beyond their length", frames.left_out),
            ("rows without the modality", int((~frames.available).sum())),
        ):
            _note(notes, what, split.name, modality, count)
    return Rows.of(ids, labels, features, available=available, lengths=true_lengths)


def _note(notes: dict[str, Any], what: str, split: str, modality: str, count: int) -> None:
    if count:
        notes.setdefault(what, {}).setdefault(split, {})[modality] = count


def _lengths(split: _Split, key: str, sequences: Array, notes: dict[str, Any]) -> Array | None:
    """Return the true length of each row, if the file gives it."""
    rows, frames = sequences.shape[:2]
    lengths_key = f"{key}_lengths"
    if lengths_key in split.entries:
        lengths = split.numbers(lengths_key)
    elif key == "text" and "text_bert" in split.entries:
        lengths_key = "text_bert"
        tokens = split.sequences(lengths_key)
        mask = tokens[:, 1] if tokens.shape[1] == 3 else tokens[:, :, 1] if tokens.shape[2] == 3 else None
        if mask is None or mask.shape[1] != frames:
            return None
        lengths = (mask > 0).sum(axis=1)
    else:
        return None
    if len(lengths) != rows:
        raise split.wrong(lengths_key, f"{lengths_key} must have one for each row", f"{len(lengths)} for {rows} rows")
    if not (np.isfinite(lengths) & (lengths >= 0)).all():
        raise split.wrong(lengths_key, f"a length in {lengths_key} is negative or no number", lengths.min())
    longer = lengths > frames
    _note(notes, "lengths beyond the sequence, cut to it", split.name, key, int(longer.sum()))
    return np.where(longer, frames, lengths).astype(np.int64)


def _class_labels(splits: list[_Split]) -> dict[str, Array]:
    """Return the class of each row: its number, or where the file has no numbers its name."""
    numbered = any("classification_labels" in split.entries for split in splits)
    if not numbered and all("annotations" in split.entries for split in splits):
        return {split.name: np.array(split.texts("annotations")) for split in splits}
    return {split.name: split.numbers("classification_labels") for split in splits}


def _class_names(splits: list[_Split], numbers: dict[str, Array]) -> dict[int, str]:
    """Return the name of each class number, if the annotations give each exactly one."""
    annotations = {s.name: s.texts("annotations") for s in splits if "annotations" in s.entries}
    pairs = {
        pair
        for s, names in annotations.items()
        if len(names) == len(numbers[s])
        for pair in zip(numbers[s].tolist(), names, strict=True)
    }
    names = dict(pairs)
    return names if len(names) == len(set(names.values())) == len(pairs) else {}


SOURCE = Source(read, recognises=lambda path: path.suffix in (".pkl", ".pickle") and outermost(path) == "dict")
