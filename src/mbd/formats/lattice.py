"""Names of the tensors of a lattice, which has a module for every set of modalities (its tag).

    projection.MODALITY.PART        the projection of one modality
    module.TAG.PART                 a module; TAG is its modalities with `+` between them

A dot in the name of a modality is escaped (:func:`mbd.names.dotless`).
"""

from collections.abc import Collection, Mapping
from typing import TypeVar

from mbd.names import dotless, dotted

Tag = tuple[str, ...]
"""a set of modalities, in alphabetical order"""
T = TypeVar("T")
_MODULE = "module"


def tensor_name(tag: Tag, part: str) -> str:
    """Return the name in the checkpoint of a module's tensor."""
    return f"{_MODULE}.{'+'.join(map(dotless, tag))}.{part}"


def projection_name(modality: str, part: str) -> str:
    """Return the name in the checkpoint of a projection's tensor."""
    return f"projection.{dotless(modality)}.{part}"


def landmarks_name(modality: str) -> str:
    """Return the name, within a module, of its landmarks in one modality."""
    return f"landmarks.{dotless(modality)}"


def module_tensors(modalities: Collection[str], tensors: Mapping[str, T]) -> dict[Tag, dict[str, T]]:
    """Return the tensors of each module, by their names in it, smaller tags first."""
    found: dict[Tag, dict[str, T]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        module, _, own = rest.partition(".")
        tag = tuple(dotted(part) for part in module.split("+"))
        if kind == _MODULE and set(tag) <= set(modalities) and list(tag) == sorted(set(tag)):
            found.setdefault(tag, {})[own] = tensor
    return {tag: found[tag] for tag in sorted(found, key=lambda tag: (len(tag), tag))}
