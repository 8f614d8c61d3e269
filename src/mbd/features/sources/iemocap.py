"""Source `iemocap`: the tuple pickles of the conversation-emotion projects (DialogueRNN, MMGCN, COGMEN and others).

Such a file is a tuple of dictionaries by dialogue and of lists of dialogues, mostly

    ids, speakers, labels, text, audio, visual, sentences, train, test

with one id, label and vector of each modality for each utterance of a dialogue (`mbd.features.dialogues` recognises the
places). Dialogues are the groups. Where the file has no valid split, one is carved out of train by dialogue.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError
from mbd.features.dialogues import LISTS, Places, arrange, modalities
from mbd.features.labels import MOST_CLASSES
from mbd.features.pickles import load_pickle, outermost
from mbd.features.rows import Collection, Rows
from mbd.features.sources import Source, refuse_unknown
from mbd.features.splits import carve_share
from mbd.formats.features import Task
from mbd.params.features import FeaturesSettings
from mbd.tensors import Array

_EMOTIONS = ("happy", "sad", "neutral", "angry", "excited", "frustrated")
_IEMOCAP = re.compile(r"Ses\d\d[FM]_")
_NUMBER = (int, float, np.number)


def read(params: FeaturesSettings) -> Collection:
    """Read the file named by `features.source.path`."""
    path = Path(params.source.path or "")
    places = arrange(path, load_pickle(path), params.source.iemocap.layout)
    wanted = _wanted(path, modalities(places), params.source.modalities)
    dialogues = {split: _dialogues(path, split, places) for split in LISTS if split in places}
    splits = {split: _rows(path, places, names, wanted) for split, names in dialogues.items()}
    labels = np.concatenate([rows.labels for rows in splits.values()])
    task: Task = params.source.task or ("classification" if labels.dtype.kind in "iu" else "regression")
    splits = {split: _typed(path, rows, task) for split, rows in splits.items()}
    notes: dict[str, Any] = {"places": list(places)}
    named = {dialogue for names in dialogues.values() for dialogue in names}
    if left_out := len(set(places["labels"]) - named):
        notes["dialogues in no split"] = left_out
    if "valid" not in splits:
        key = "features.source.iemocap.valid_share"
        train, valid = carve_share(splits["train"], params.source.iemocap.valid_share, params.seed, "valid", key)
        splits = {"train": train, "valid": valid, "test": splits["test"]}
        notes["valid"] = f"{len(np.unique(valid.groups))} dialogues carved out of train"
    return Collection(
        name=path.stem,
        task=task,
        classes=_classes(labels, named) if task == "classification" else (),
        splits={split: splits[split] for split in LISTS},
        files=(str(path),),
        notes=notes,
    )


def _wanted(path: Path, there: tuple[str, ...], asked: tuple[str, ...] | None) -> tuple[str, ...]:
    refuse_unknown(path, asked or (), there)
    return there if asked is None else asked


def _dialogues(path: Path, split: str, places: Places) -> list[Any]:
    """Return the dialogues of a split; a set has no order of its own, so it is sorted."""
    names = places[split]
    names = names.ravel().tolist() if isinstance(names, np.ndarray) else list(names)
    for name in names:
        if not isinstance(name, str | int) or name not in places["labels"]:
            raise DataError(
                f"a dialogue of {split} has no labels",
                file=path,
                key=split,
                value=name if isinstance(name, str | int) else type(name).__name__,
                hint="every dialogue in a split needs an entry in every dictionary",
            )
    return sorted(names, key=str) if isinstance(places[split], set | frozenset) else names


def _rows(path: Path, places: Places, dialogues: list[Any], wanted: tuple[str, ...]) -> Rows:
    if not dialogues:
        raise DataError("a split has no dialogues", file=path, hint="train and test need at least one each")
    parts = [_utterances(path, places, dialogue, wanted) for dialogue in dialogues]
    ids, groups, labels, features = zip(*parts, strict=True)
    return Rows.of(
        np.concatenate(ids),
        np.concatenate(labels),
        {m: _joined(path, m, dialogues, [matrices[m] for matrices in features]) for m in wanted},
        groups=np.concatenate(groups),
    )


def _utterances(
    path: Path, places: Places, dialogue: str | int, wanted: tuple[str, ...]
) -> tuple[Array, Array, Array, dict[str, Array]]:
    """Return the ids, groups, labels and vectors of a dialogue."""
    found: dict[str, Array] = {"labels": _numbers(path, "labels", dialogue, places["labels"][dialogue])}
    count = len(found["labels"])
    for modality in wanted:
        found[modality] = _matrix(path, modality, dialogue, places[modality].get(dialogue, ()))
    ids = places["ids"].get(dialogue) if "ids" in places else None
    if not isinstance(ids, list | tuple | np.ndarray) or not all(isinstance(identifier, str) for identifier in ids):
        ids = [f"{dialogue}_{number:03d}" for number in range(count)]
    found["ids"] = np.array(ids, dtype=np.str_)
    for name, array in found.items():
        if len(array) != count:
            raise DataError(
                f"the dialogue {dialogue} has {count} labels and {len(array)} of {name}",
                file=path,
                key=name,
                hint="every utterance needs one of each; leave a modality out with features.source.modalities",
            )
    return found["ids"], np.full(count, str(dialogue)), found["labels"], {m: found[m] for m in wanted}


def _numbers(path: Path, name: str, dialogue: str | int, values: object) -> Array:
    if isinstance(values, list | tuple) and values and all(isinstance(value, _NUMBER) for value in values):
        values = np.array(values)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu" or values.ndim != 1:
        raise DataError(
            f"{name} of the dialogue {dialogue} must be a list of numbers",
            file=path,
            key=name,
            value=_described(values),
            hint="name the places in features.source.iemocap.layout if another one is meant",
        )
    return values


def _matrix(path: Path, name: str, dialogue: str | int, values: Any) -> Array:  # noqa: ANN401 -- see below
    """Return the vectors of a dialogue as a matrix; they come as one, or as a list of arrays or lists."""
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in "fiu":
        return values
    several = isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.dtype.hasobject)
    vectors = [_numbers(path, name, dialogue, vector) for vector in list(values)] if several else []
    if not vectors or len({len(vector) for vector in vectors}) > 1:
        raise DataError(
            f"{name} of the dialogue {dialogue} must be vectors of one length",
            file=path,
            key=name,
            value=", ".join(sorted({str(len(vector)) for vector in vectors})) or _described(values),
            hint="leave the modality out with features.source.modalities, or extract it again",
        )
    return np.stack(vectors)


def _joined(path: Path, modality: str, dialogues: list[Any], matrices: list[Array]) -> Array:
    widths = [matrix.shape[1] for matrix in matrices]
    for dialogue, width in zip(dialogues, widths, strict=True):
        if width != widths[0]:
            raise DataError(
                f"the dimension of {modality} differs between dialogues",
                file=path,
                key=modality,
                value=f"{widths[0]} in {dialogues[0]}, {width} in {dialogue}",
                hint="extract all dialogues with the same encoder",
            )
    with np.errstate(over="ignore"):
        return np.concatenate(matrices).astype(np.float32)


def _typed(path: Path, rows: Rows, task: Task) -> Rows:
    if task == "regression":
        return replace(rows, labels=rows.labels.astype(np.float32))
    if not np.isin(rows.labels, np.arange(MOST_CLASSES)).all():
        raise DataError(
            f"classes must be whole numbers from 0 up, below {MOST_CLASSES}",
            file=path,
            key="labels",
            value=f"{rows.labels.min()} to {rows.labels.max()}",
            hint="set features.source.task=regression if these are not classes",
        )
    return replace(rows, labels=rows.labels.astype(np.int64))


def _classes(labels: Array, dialogues: set[Any]) -> tuple[str, ...]:
    count = int(labels.max()) + 1
    known = count in (4, 6) and all(_IEMOCAP.match(str(dialogue)) for dialogue in dialogues)
    return _EMOTIONS[:count] if known else tuple(str(number) for number in range(count))


def _described(value: object) -> str:
    return f"{value.shape} {value.dtype}" if isinstance(value, np.ndarray) else f"{type(value).__name__}"


SOURCE = Source(read, recognises=lambda path: path.suffix in (".pkl", ".pickle") and outermost(path) == "sequence")
