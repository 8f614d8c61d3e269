"""Which tensor of a file is which tensor of a module: by name and shape.

Names agree, or all of them but for what they begin with: a wrapper has put `model.`, `module.` or `_orig_mod.` before
them. What lies beside such a beginning (a loss, a metric) is not used. Everything else has to be said, in
`model.rename`: beginnings of names in the file, and what they are in the module; null leaves tensors out. Where tensors
do not fit, those of the same shape and last name are put side by side in their order, and the error shows the line to
write. Nothing is taken by shape alone.

Counters (whole numbers) that a file lacks stay as the module was built.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mbd.errors import DataError, UsageError
from mbd.tensors import Array

_KEY = "model.rename"
_LONGEST_LINE = 8
_NOT_USED = "not used"
_AS_BUILT = "as built"
Renames = Mapping[str, str | None]


@dataclass(frozen=True)
class MatchedNames:
    """Tensors with the same beginning, for a table."""

    in_file: str
    in_module: str
    tensors: int
    numbers: int


@dataclass(frozen=True)
class Matches:
    """The tensors of a file under the names that they have in a module."""

    tensors: dict[str, Array]
    table: tuple[MatchedNames, ...]


def match_names(state: Mapping[str, Array], module: Mapping[str, Array], renames: Renames, name: str) -> Matches:
    """Return the tensors of a file under the names of a module.

    Args:
        state: The tensors of the file.
        module: The state of the module as it was built.
        renames: Beginnings of names in the file, and what they are in the module.
        name: Of the module's factory, for errors.

    Raises:
        DataError: A tensor is missing, left over, or of another shape.
        UsageError: Nothing in the file begins with a name of `renames`, or several beginnings would do.

    """
    chosen = dict(renames) or _beginning(state, module)
    new_names = {old: rename(old, chosen) for old in state}
    for beginning in renames:
        if not any(old.startswith(beginning) for old in state):
            raise UsageError(
                f"no tensor of the file begins with {beginning!r}", key=_KEY, hint=f"they are {_outermost(state)}"
            )
    found = {new: old for old, new in new_names.items() if new is not None}
    built = [new for new, x in module.items() if new not in found and not np.issubdtype(x.dtype, np.inexact)]
    wrong = [new for new in module if new not in built and _shape(module, new) != _shape(state, found.get(new))]
    if over := [new for new in found if new not in module]:
        wrong += over
    if wrong:
        raise _misfit(wrong[0], found, state, module, name)
    tensors = {new: state[found[new]] if new in found else module[new] for new in module}
    pairs = [(found.get(new, _AS_BUILT), new) for new in module]
    pairs += [(old, _NOT_USED) for old, new in new_names.items() if new is None]
    return Matches(tensors, tuple(_table(pairs, {**module, **state})))


def _beginning(state: Mapping[str, Array], module: Mapping[str, Array]) -> dict[str, str | None]:
    """Return how names of the file become those of the module, if only what they begin with is different."""
    if set(module) <= set(state) or not module:
        return {}
    first = next(iter(module))
    candidates = [old.removesuffix(first) for old in state if old.endswith(f".{first}")]
    fitting = [p for p in candidates if all(_shape(state, p + new) == _shape(module, new) for new in module)]
    if len(fitting) > 1:
        lines = ", or ".join(_line({p: ""}) for p in fitting)
        raise UsageError(f"{len(fitting)} sets of tensors in the file fit the module", key=_KEY, hint=f"write {lines}")
    if fitting:
        return {fitting[0]: "", "": None}
    added = [new.removesuffix(old) for old in list(state)[:1] for new in module if new.endswith(f".{old}")]
    whole = [p for p in added if all(_shape(module, p + old) == _shape(state, old) for old in state)]
    return {"": whole[0]} if len(whole) == 1 else {}


def rename(name: str, renames: Renames) -> str | None:
    """Return the new name of a tensor, by the longest beginning that is renamed; None if it is left out."""
    fitting = [beginning for beginning in renames if name.startswith(beginning)]
    if not fitting:
        return name
    longest = max(fitting, key=len)
    new = renames[longest]
    return None if new is None else new + name.removeprefix(longest)


def _shape(tensors: Mapping[str, Array], name: str | None) -> tuple[int, ...] | None:
    return tensors[name].shape if name is not None and name in tensors else None


def _misfit(
    tensor: str, found: Mapping[str, str], state: Mapping[str, Array], module: Mapping[str, Array], name: str
) -> DataError:
    in_file, in_module = _shape(state, found.get(tensor)), _shape(module, tensor)
    proposed = _proposed(found, state, module)
    if proposed:
        same = "these are the same layers" if any(proposed.values()) else "the module does not need it"
        hint = f"if {same}, write {_line(proposed)}"
    else:
        hint = "check model.options, and whether the factory's code has changed since training"
    return DataError(
        f"the weights do not fit the module that {name} builds",
        key=tensor,
        value=f"{in_file or 'missing'} in the weights, {in_module or 'missing'} in the module",
        hint=hint,
    )


def _proposed(
    found: Mapping[str, str], state: Mapping[str, Array], module: Mapping[str, Array]
) -> dict[str, str | None]:
    """Return beginnings that lead from what is left over to what is missing, if there are as many of each shape.

    What is left over and like nothing that is missing is left out.
    """
    groups: dict[tuple[object, str], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for new, old in found.items():
        if new not in module:
            groups[state[old].shape, old.rpartition(".")[2]][0].append(old)
    for new in module:
        if new not in found:
            groups[module[new].shape, new.rpartition(".")[2]][1].append(new)
    used = [old for new, old in found.items() if new in module]
    proposed: dict[str, str | None] = {}
    for left, missing in groups.values():
        if not missing:
            proposed |= {_beginning_apart(old, used): None for old in left}
            continue
        if len(left) != len(missing):
            return {}
        for old, new in zip(left, missing, strict=True):
            beginnings = _without_common_end(old, new)
            if proposed.setdefault(beginnings[0], beginnings[1]) != beginnings[1]:
                proposed[old] = new
    return proposed if len(proposed) <= _LONGEST_LINE else {}


def _beginning_apart(name: str, used: Iterable[str]) -> str:
    """Return the outermost part of a name, if nothing that is used begins with it; else the name."""
    outer = name.partition(".")[0] + "." * ("." in name)
    return name if any(other.startswith(outer) for other in used) else outer


def _without_common_end(old: str, new: str) -> tuple[str, str]:
    """Return two names without the parts in which they end alike: `a.fc.weight`, `b.fc.weight` → `a.`, `b.`."""
    one, other = old.split("."), new.split(".")
    while len(one) > 1 and len(other) > 1 and one[-1] == other[-1]:
        one.pop()
        other.pop()
    ends = "." if len(one) < old.count(".") + 1 else ""
    return ".".join(one) + ends, ".".join(other) + ends


def _line(renames: Renames) -> str:
    return f"--set 'model.rename={json.dumps(dict(renames), ensure_ascii=False)}'"


def _outermost(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(name.partition(".")[0] + "…" * ("." in name) for name in names))


def _table(pairs: Iterable[tuple[str, str]], tensors: Mapping[str, Array]) -> Iterator[MatchedNames]:
    """Yield tensors that have the same beginnings, in the file and in the module, together."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for old, new in pairs:
        size = tensors[old if old in tensors else new].size
        if new == _NOT_USED:
            groups[f"{old.partition('.')[0]}…", new].append(size)
        elif old == _AS_BUILT:
            groups[old, new].append(size)
        else:
            outer, inside, rest = new.partition(".")
            groups[old.removesuffix(rest) + "…" * bool(inside), outer + ".…" * bool(inside)].append(size)
    for (old, new), sizes in groups.items():
        yield MatchedNames(old, new, len(sizes), sum(sizes))
