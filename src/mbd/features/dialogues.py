"""Conversation-emotion tuples: which place holds what.

Every place is a dictionary by dialogue, with something for each utterance, or a list or set of dialogues. Projects
add, drop and move places, so a place is recognised by its content:

    ids        texts without spaces, all different        vectors     lists or arrays of numbers
    texts      other texts: speakers, sentences           speakers    vectors of one 1 and else 0
    labels     numbers                                    dialogues   names of dialogues

Vectors are text, audio and visual in this order, and lists of dialogues train and test. What cannot be recognised for
certain (a second kind of label, a fourth kind of vector, a third list) is not guessed: the user names the places.
"""

from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError

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


def arrange(path: Path, content: object, layout: tuple[str, ...] | str) -> Places:
    """Return the places that are used, by name: labels, train, test, the modalities, and ids and valid if there."""
    if not isinstance(content, tuple | list):
        raise DataError(
            "such a file holds a tuple of dictionaries by dialogue and of lists of dialogues",
            file=path,
            value=type(content).__name__,
            hint="give a feature file such as IEMOCAP_features.pkl of DialogueRNN, MMGCN or COGMEN",
        )
    names = _recognised(path, list(content)) if isinstance(layout, str) else layout
    if len(names) != len(content):
        raise DataError(
            f"the layout names {len(names)} places and the tuple has {len(content)}",
            file=path,
            key=_KEY,
            value=", ".join(names),
            hint=_HINT,
        )
    places = {name: place for name, place in zip(names, content, strict=True) if name not in _UNUSED}
    _check(path, names, places)
    return places


def modalities(places: Places) -> tuple[str, ...]:
    """Return the names of the modalities among `places`."""
    return tuple(name for name in places if name not in ("ids", "labels", *LISTS))


def _recognised(path: Path, content: list[Any]) -> tuple[str, ...]:
    dialogues = {name for place in content if isinstance(place, dict) for name in place}
    kinds = [_kind(place, dialogues) for place in content]
    vectors = kinds.count("vectors")
    if (kinds.count("labels"), kinds.count("dialogues")) != (1, 2) or vectors not in _VECTORS:
        raise DataError(
            "the places of the tuple cannot be distinguished",
            file=path,
            value=", ".join(f"{place}: {kind}" for place, kind in enumerate(kinds)),
            hint=_HINT,
        )
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


def _check(path: Path, names: tuple[str, ...], places: Places) -> None:
    used = [name for name in names if name not in _UNUSED]
    missing = [name for name in ("labels", "train", "test") if name not in places]
    problem = None
    if missing:
        problem = f"no place is named {missing[0]}"
    elif len(used) != len(places):
        problem = "two places have the same name"
    elif not modalities(places):
        problem = "no place is a modality"
    if problem:
        raise DataError(problem, file=path, key=_KEY, value=", ".join(names), hint=_HINT)
    for name, place in places.items():
        kind, fits = ("list or set of dialogues", list | tuple | set | frozenset | np.ndarray)
        if name not in LISTS:
            kind, fits = "dictionary by dialogue", dict
        if not isinstance(place, fits):
            raise DataError(
                f"the place of {name} holds no {kind}",
                file=path,
                key=_KEY,
                value=type(place).__name__,
                hint=_HINT,
            )
