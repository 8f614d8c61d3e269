"""Source `iemocap`: the tuple pickles of the conversation-emotion projects (DialogueRNN, MMGCN, COGMEN and others).

Such a file is a tuple of dictionaries by dialogue and of lists of dialogues, mostly

    ids, speakers, labels, text, audio, visual, sentences, train, test

with one id, label and vector of each modality for each utterance of a dialogue. Dialogues are the groups. Where the
file has no valid split, one is carved out of train by dialogue. Projects add, drop and move places, so a place is
recognised by its content:

    ids        texts without spaces, all different        vectors     lists or arrays of numbers
    texts      other texts: speakers, sentences           speakers    vectors of one 1 and else 0
    labels     numbers                                    dialogues   names of dialogues

Vectors are text, audio and visual in this order, and lists of dialogues train and test. What cannot be recognised for
certain (a second kind of label, a fourth kind of vector, a third list) is not guessed: the user names the places.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError, naming
from mbd.features.pickles import described, load_pickle, outermost
from mbd.features.rows import Collection, Rows
from mbd.features.sources import Source, choose_modalities, labelled
from mbd.features.splits import carve_share
from mbd.params.features import FeaturesSettings
from mbd.tensors import Array

LISTS = ("train", "valid", "test")
_UNUSED = ("_", "speakers", "sentences")
_VECTORS = {2: ("text", "audio"), 3: ("text", "audio", "visual")}
_KEY = "features.source.iemocap.layout"
_HINT = (
    f"name each place in {_KEY}, such as [ids, speakers, labels, text, audio, visual, sentences, train, test], "
    "with _ for one to leave out"
)
_NUMBER = (int, float, np.number)

Places = dict[str, Any]


def _arrange(content: object, layout: tuple[str, ...] | str) -> Places:
    """Return the places that are used, by name: labels, train, test, the modalities, and ids and valid if there."""
    if not isinstance(content, tuple | list):
        raise DataError(
            "such a file holds a tuple of dictionaries by dialogue and of lists of dialogues",
            value=type(content).__name__,
            hint="give a feature file such as IEMOCAP_features.pkl of DialogueRNN, MMGCN or COGMEN",
        )
    with naming(None, _HINT):
        names = _recognised(list(content)) if isinstance(layout, str) else layout
        if len(names) != len(content):
            problem = f"the layout names {len(names)} places and the tuple has {len(content)}"
            raise DataError(problem, key=_KEY, value=", ".join(names))
        places = {name: place for name, place in zip(names, content, strict=True) if name not in _UNUSED}
        _check(names, places)
    return places


def _modalities(places: Places) -> tuple[str, ...]:
    """Return the names of the modalities among `places`."""
    return tuple(name for name in places if name not in ("ids", "labels", *LISTS))


def _recognised(content: list[Any]) -> tuple[str, ...]:
    dialogues = {name for place in content if isinstance(place, dict) for name in place}
    kinds = [_kind(place, dialogues) for place in content]
    vectors = kinds.count("vectors")
    if (kinds.count("labels"), kinds.count("dialogues")) != (1, 2) or vectors not in _VECTORS:
        shown = ", ".join(f"{place}: {kind}" for place, kind in enumerate(kinds))
        raise DataError("the places of the tuple cannot be distinguished", value=shown)
    names = {"ids": iter(("ids",)), "labels": iter(("labels",)), "dialogues": iter(("train", "test"))}
    names["vectors"] = iter(_VECTORS[vectors])
    return tuple(next(names[kind], "_") if kind in names else "_" for kind in kinds)


def _kind(place: object, dialogues: set[Any]) -> str:
    if isinstance(place, dict):
        parts = [part for part in place.values() if _is_sequence(part)]
        return _kind_of_utterances([utterance for part in parts for utterance in part])
    if isinstance(place, list | tuple | set | frozenset | np.ndarray):
        members = place.ravel().tolist() if isinstance(place, np.ndarray) else list(place)
        if members and all(isinstance(member, str | int) and member in dialogues for member in members):
            return "dialogues"
    return "unknown"


def _kind_of_utterances(utterances: list[Any]) -> str:
    if not utterances:
        return "empty"
    if all(isinstance(u, str) for u in utterances):
        return "ids" if len({*utterances}) == len(utterances) and not any(" " in u for u in utterances) else "texts"
    if all(isinstance(u, _NUMBER) for u in utterances):
        return "labels"
    if all(map(_is_vector, utterances)):
        return "speakers" if all(map(_is_one_hot, utterances)) else "vectors"
    return "unknown"


def _is_sequence(value: object) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _is_vector(value: Any) -> bool:  # noqa: ANN401 -- whatever the file holds
    return _is_sequence(value) and len(value) > 0 and isinstance(value[0], _NUMBER)


def _is_one_hot(vector: Any) -> bool:  # noqa: ANN401 -- a list or an array of numbers
    values = list(vector)
    return values.count(1) == 1 and values.count(0) == len(values) - 1


def _check(names: tuple[str, ...], places: Places) -> None:
    used = [name for name in names if name not in _UNUSED]
    missing = [name for name in ("labels", "train", "test") if name not in places]
    problem = None
    if missing:
        problem = f"no place is named {missing[0]}"
    elif len(used) != len(places):
        problem = "two places have the same name"
    elif not _modalities(places):
        problem = "no place is a modality"
    if problem:
        raise DataError(problem, key=_KEY, value=", ".join(names))
    for name, place in places.items():
        kind, fits = ("list or set of dialogues", list | tuple | set | frozenset | np.ndarray)
        if name not in LISTS:
            kind, fits = "dictionary by dialogue", dict
        if not isinstance(place, fits):
            raise DataError(f"the place of {name} holds no {kind}", key=_KEY, value=type(place).__name__)


_EMOTIONS = ("happy", "sad", "neutral", "angry", "excited", "frustrated")
_IEMOCAP = re.compile(r"Ses\d\d[FM]_")


def read(params: FeaturesSettings) -> Collection:
    """Read the file named by `features.source.path`."""
    path = Path(params.source.path or "")
    places = _arrange(load_pickle(path), params.source.iemocap.layout)
    wanted = choose_modalities(params.source.modalities, _modalities(places))
    dialogues = {split: _dialogues(split, places) for split in LISTS if split in places}
    splits = {split: _rows(places, names, wanted) for split, names in dialogues.items()}
    named = {dialogue for names in dialogues.values() for dialogue in names}
    emotions = _emotions(splits, named)
    notes: dict[str, Any] = {"places": list(places)}
    if left_out := len(set(places["labels"]) - named):
        notes["dialogues in no split"] = left_out
    if "valid" not in splits:
        key = "features.source.iemocap.valid_share"
        train, valid = carve_share(splits["train"], params.source.iemocap.valid_share, params.seed, "valid", key)
        splits = {"train": train, "valid": valid, "test": splits["test"]}
        notes["valid"] = f"{len(np.unique(valid.groups))} dialogues carved out of train"
    splits = {split: splits[split] for split in LISTS}
    return labelled(path.stem, splits, params.source.task, emotions, files=(str(path),), notes=notes)


def _dialogues(split: str, places: Places) -> list[Any]:
    """Return the dialogues of a split; a set has no order of its own, so it is sorted."""
    names = places[split]
    names = names.ravel().tolist() if isinstance(names, np.ndarray) else list(names)
    for name in names:
        if not isinstance(name, str | int) or name not in places["labels"]:
            raise DataError(
                f"a dialogue of {split} has no labels",
                key=split,
                value=name if isinstance(name, str | int) else type(name).__name__,
                hint="every dialogue in a split needs an entry in every dictionary",
            )
    return sorted(names, key=str) if isinstance(places[split], set | frozenset) else names


def _rows(places: Places, dialogues: list[Any], wanted: tuple[str, ...]) -> Rows:
    if not dialogues:
        raise DataError("a split has no dialogues", hint="train and test need at least one each")
    parts = [_utterances(places, dialogue, wanted) for dialogue in dialogues]
    ids, groups, labels, features = zip(*parts, strict=True)
    return Rows.of(
        np.concatenate(ids),
        np.concatenate(labels),
        {m: _joined(m, dialogues, [matrices[m] for matrices in features]) for m in wanted},
        groups=np.concatenate(groups),
    )


def _utterances(
    places: Places, dialogue: str | int, wanted: tuple[str, ...]
) -> tuple[Array, Array, Array, dict[str, Array]]:
    """Return the ids, groups, labels and vectors of a dialogue."""
    arrays: dict[str, Array] = {"labels": _numbers("labels", dialogue, places["labels"][dialogue])}
    count = len(arrays["labels"])
    for modality in wanted:
        arrays[modality] = _matrix(modality, dialogue, places[modality].get(dialogue, ()))
    ids = places["ids"].get(dialogue) if "ids" in places else None
    if not isinstance(ids, list | tuple | np.ndarray) or not all(isinstance(identifier, str) for identifier in ids):
        ids = [f"{dialogue}_{number:03d}" for number in range(count)]
    arrays["ids"] = np.array(ids, dtype=np.str_)
    for name, array in arrays.items():
        if len(array) != count:
            raise DataError(
                f"the dialogue {dialogue} has {count} labels and {len(array)} of {name}",
                key=name,
                hint="every utterance needs one of each; leave a modality out with features.source.modalities",
            )
    return arrays["ids"], np.full(count, str(dialogue)), arrays["labels"], {m: arrays[m] for m in wanted}


def _numbers(name: str, dialogue: str | int, values: object) -> Array:
    if isinstance(values, list | tuple) and values and all(isinstance(value, _NUMBER) for value in values):
        values = np.array(values)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu" or values.ndim != 1:
        raise DataError(
            f"{name} of the dialogue {dialogue} must be a list of numbers",
            key=name,
            value=described(values),
            hint="name the places in features.source.iemocap.layout if another one is meant",
        )
    return values


def _matrix(name: str, dialogue: str | int, values: Any) -> Array:  # noqa: ANN401 -- see below
    """Return the vectors of a dialogue as a matrix; they come as one, or as a list of arrays or lists."""
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in "fiu":
        return values
    several = isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.dtype.hasobject)
    vectors = [_numbers(name, dialogue, vector) for vector in list(values)] if several else []
    if not vectors or len({len(vector) for vector in vectors}) > 1:
        raise DataError(
            f"{name} of the dialogue {dialogue} must be vectors of one length",
            key=name,
            value=", ".join(sorted({str(len(vector)) for vector in vectors})) or described(values),
            hint="leave the modality out with features.source.modalities, or extract it again",
        )
    return np.stack(vectors)


def _joined(modality: str, dialogues: list[Any], matrices: list[Array]) -> Array:
    widths = [matrix.shape[1] for matrix in matrices]
    for dialogue, width in zip(dialogues, widths, strict=True):
        if width != widths[0]:
            raise DataError(
                f"the dimension of {modality} differs between dialogues",
                key=modality,
                value=f"{widths[0]} in {dialogues[0]}, {width} in {dialogue}",
                hint="extract all dialogues with the same encoder",
            )
    with np.errstate(over="ignore"):
        return np.concatenate(matrices).astype(np.float32)


def _emotions(splits: dict[str, Rows], dialogues: set[Any]) -> dict[int, str]:
    """Return the names of IEMOCAP's classes, if these are its dialogues."""
    count = 1 + max(rows.labels.max() for rows in splits.values())
    known = count in (4, 6) and all(_IEMOCAP.match(str(dialogue)) for dialogue in dialogues)
    return dict(enumerate(_EMOTIONS[: int(count)])) if known else {}


SOURCE = Source(read, recognises=lambda path: path.suffix in (".pkl", ".pickle") and outermost(path) == "sequence")
