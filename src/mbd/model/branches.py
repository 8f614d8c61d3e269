"""Branches of a modality m* in a module of fixed shape, found by running it: a proposal for `model.branches`.

Hearing is a difference: a submodule hears a modality if its output, for random weights and rows, changes when the
modality does. The walk is from the outermost submodules inwards; each is asked

    does its output depend on m*, and not on every modality (then it is one of the trunk's, and its parts are asked)?
    if it is silenced, does the model still hear every other modality (else its parts are asked)?

What hears m* alone is a branch of m*, and so is a pair that hears m* and some of the others. A submodule of the trunk
that hears nothing once these are silent goes too. Of all these, those are proposed whose output still has a way to the
model's output when the others are silent: the smallest set, as far out as possible.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mbd.errors import UsageError
from mbd.formats.features import lengths_of
from mbd.model.contract import NO_ROWS, Architecture, Features, evaluating, example, listening, seeded
from mbd.model.probing import Provenance, equal, probe, randomise, silenced

_ROWS, _DRAWS = 2, 3
_SAME = 1e-6  # difference of outputs, relative to the largest, that is none


@dataclass(frozen=True)
class Branch:
    """A submodule whose output belongs to a modality."""

    name: str
    hears: tuple[str, ...]
    numbers: int
    """of its state"""


@dataclass(frozen=True)
class Proposal:
    """What closes a modality off, or several together, in a module of fixed shape."""

    gone: tuple[str, ...]
    proposed: tuple[Branch, ...]
    named: tuple[str, ...]
    """what model.branches names"""
    cut: int
    """numbers that a cut with the named branches sets to zero"""
    cut_with_proposal: int
    """with those that are proposed beside them"""
    numbers: int
    """of the whole state"""
    left_open: tuple[str, ...]
    """sentences: what still hears the modality, or has heard it, when the named (else the proposed) are silent"""

    @property
    def setting(self) -> str:
        """The line that accepts the proposal."""
        names = f"[{', '.join(branch.name for branch in self.proposed)}]"
        if len(self.gone) == 1:
            return f"model.branches.{self.gone[0]}={names}"
        return f"model.branches={{{', '.join(f'{m}: {names}' for m in self.gone)}}}"

    @property
    def missing(self) -> tuple[str, ...]:
        """Proposed branches that are neither named nor part of a named one."""
        inside = tuple(f"{name}." for name in self.named)
        return tuple(b.name for b in self.proposed if b.name not in self.named and not b.name.startswith(inside))


def propose(architecture: Architecture, *gone: str) -> Proposal | None:
    """Find the branches of modalities that go together; None: the factory builds a smaller model, which needs none.

    Raises:
        UsageError: The module cannot be probed.

    """
    return _propose(architecture, tuple(m for m in architecture.modalities if m in gone))


@lru_cache(maxsize=8)
def _propose(architecture: Architecture, gone: tuple[str, ...]) -> Proposal | None:
    if architecture.without(gone) is not architecture:
        return None
    named = tuple(dict.fromkeys(name for m in gone for name in architecture.branches.get(m, ())))
    bare = replace(architecture, branches={m: n for m, n in architecture.branches.items() if m not in gone})
    listener = _Listening(bare, gone)
    chosen = listener.choose()
    found = tuple(
        Branch(name, tuple(m for m in bare.modalities if m in listener.hearing[name]), listener.numbers(name))
        for name in chosen
    )
    numbers, left_open = listener.numbers(""), tuple(listener.describe_open(named or chosen))
    heard = listener.heard
    del listener  # probing builds a module as large
    with_named = probe(architecture, *gone)
    proposal = Proposal(gone, found, named, _dead(with_named), _dead(with_named), numbers, left_open)
    with_every = probe(_completed(architecture, proposal), *gone) if proposal.missing else with_named
    stays = _describe_staying(_listed(gone), heard, with_named if named else with_every)
    return replace(proposal, cut_with_proposal=_dead(with_every), left_open=(*left_open, *stays))


def _completed(architecture: Architecture, proposal: Proposal) -> Architecture:
    """Return the architecture with the branches that are named and those that are missing."""
    return with_branches(architecture, {proposal.gone[0]: (*proposal.named, *proposal.missing)})


def with_branches(architecture: Architecture, named: Mapping[str, Sequence[str]]) -> Architecture:
    """Return the architecture with other branches of some modalities."""
    return replace(architecture, branches={**architecture.branches, **named}) if named else architecture


def closing(architecture: Architecture, *gone: str) -> Architecture:
    """Return the architecture with every branch of some modalities: those that are named, and those that are missing.

    What is proposed counts where it cuts more.
    """
    proposal = propose(architecture, *gone)
    if proposal is None or not proposal.missing or proposal.cut_with_proposal <= proposal.cut:
        return architecture
    return _completed(architecture, proposal)


def refuse_unbranched(architecture: Architecture, *gone: str) -> None:
    """Refuse a cut that would leave branches of what goes as they are: few rows bring them back.

    Raises:
        UsageError: A proposal would cut more than what `model.branches` names.

    """
    proposal = propose(architecture, *gone)
    if proposal is not None and closing(architecture, *gone) is not architecture:
        trained = f"{_listed(proposal.gone)} {'has' if len(proposal.gone) == 1 else 'have'} trained them"
        raise UsageError(
            f"{_listed(proposal.missing)} would stay as {trained}: {proposal.cut:,} of {proposal.numbers:,} numbers "
            f"would be cut, with the proposed branches {proposal.cut_with_proposal:,}",
            key=f"model.branches.{proposal.gone[0]}",
            value=list(proposal.named),
            hint=f"set {proposal.setting}, or what you know to be right, and import or train the model again; "
            "see `mbd branches`, or delete by deletion.method=exact",
        )


def _dead(provenance: Provenance) -> int:
    return sum(int((~part.alive).sum()) for part in provenance.tensors.values())


class _Listening:
    """A module with random weights, and what its submodules hear."""

    def __init__(self, architecture: Architecture, gone: tuple[str, ...]) -> None:
        self._architecture, self._gone = architecture, frozenset(gone)
        self._module = architecture.blank()
        self._parts = dict(self._module.named_modules())
        self._others = frozenset(architecture.modalities) - self._gone
        self._draw: int | None = None

    def numbers(self, name: str) -> int:
        """Return the size of a submodule's state."""
        return sum(t.numel() for t in self._parts[name].state_dict().values() if t.is_floating_point())

    @cached_property
    def _switchable(self) -> frozenset[str]:
        """Submodules that run and whose outputs all have an axis of rows, so that they can be branches."""
        found = self._architecture.row_axes(self._module, [name for name in self._parts if name])
        return frozenset(name for name, axes in found.items() if NO_ROWS not in axes and not set(axes) <= {None})

    @cached_property
    def hearing(self) -> Mapping[str, frozenset[str]]:
        """For each submodule that runs, and the module itself as "", the modalities that its output changes with."""
        return self._hearing(())

    @property
    def heard(self) -> list[str]:
        """The submodules whose output changes with the modality, outermost first."""
        return [name for name in self._parts if name and self._gone & self.hearing.get(name, frozenset())]

    def _hearing(self, silent: Collection[str], *, absent: bool = False) -> dict[str, frozenset[str]]:
        heard: dict[str, set[str]] = {}
        for draw in range(_DRAWS):
            for name, modalities in self._heard_in(draw, silent, self._parts, absent=absent).items():
                heard.setdefault(name, set()).update(modalities)
        return {name: frozenset(modalities) for name, modalities in heard.items()}

    def _heard_in(
        self, draw: int, silent: Collection[str], parts: Mapping[str, nn.Module], *, absent: bool
    ) -> dict[str, set[str]]:
        """Return for each of some submodules which modalities its output changes with, for the weights of one draw."""
        self._randomise(draw)
        features, different = (self._rows(2 * draw + turn) for turn in range(2))
        before = self._outputs(features, silent, parts, absent=absent)
        heard: dict[str, set[str]] = {name: set() for name in before}
        for m in self._others if absent else self._architecture.modalities:
            changed = {name: (different if name in (m, lengths_of(m)) else features)[name] for name in features}
            for name, outputs in self._outputs(changed, silent, parts, absent=absent).items():
                if not _equal(before[name], outputs):
                    heard[name].add(m)
        return heard

    def _randomise(self, draw: int) -> None:
        if self._draw != draw:
            randomise(self._module, draw)
            self._draw = draw

    def _rows(self, draw: int) -> Features:
        return example(self._architecture.modalities, _ROWS, seed=0, draw=draw)[0]

    def _outputs(
        self, features: Features, silent: Collection[str], parts: Mapping[str, nn.Module], *, absent: bool
    ) -> dict[str, list[Tensor]]:
        """Return what each of some submodules returned, call after call."""
        available = {m: torch.ones(_ROWS, dtype=torch.bool) for m in self._architecture.modalities}
        if absent:
            available |= {m: torch.zeros(_ROWS, dtype=torch.bool) for m in self._gone}
        outputs: dict[str, list[Tensor]] = {}

        def keep(name: str, leaves: list[object]) -> None:
            outputs.setdefault(name, []).extend(leaf for leaf in leaves if isinstance(leaf, Tensor))

        # Silenced before it is heard: hooks run in the order in which they were registered.
        with (
            evaluating(self._module),
            seeded(0, "branches"),
            torch.no_grad(),
            silenced(self._module, silent),
            listening(parts, keep),
        ):
            self._module(features, available)
        return outputs

    def choose(self) -> tuple[str, ...]:
        """Return the branches to propose."""
        chosen = list(self._walk(self._module, "", []))
        if not chosen:
            return ()
        after = self._hearing(chosen, absent=True)
        for name in self._parts:  # outermost first
            heard = self._gone & self.hearing.get(name, frozenset()) and name in self._switchable
            if heard and not after[name] and not _within(name, chosen) and self._bearable([*chosen, name]):
                chosen.append(name)
        for name in sorted(chosen, key=lambda name: -len(self.hearing[name])):
            rest = [other for other in chosen if other != name]
            if _within(name, rest) or not self._matters(name, rest):
                chosen = rest
        return tuple(name for name in self._parts if name in chosen)

    def _walk(self, module: nn.Module, prefix: str, chosen: list[str]) -> list[str]:
        for child, part in module.named_children():
            name = f"{prefix}{child}"
            heard = self.hearing.get(name)
            if heard is not None and not self._gone & heard:
                continue
            partial = name in self._switchable and heard is not None and not heard >= self._others | self._gone
            if partial and self._bearable([*chosen, name]):
                chosen.append(name)
            else:
                self._walk(part, f"{name}.", chosen)
        return chosen

    def _bearable(self, silent: Collection[str]) -> bool:
        """Whether the model still hears every other modality when these are silent."""
        heard: set[str] = set()
        for draw in range(_DRAWS):
            heard |= self._heard_in(draw, silent, {"": self._module}, absent=True)[""]
            if heard >= self._others:
                return True
        return False

    def _matters(self, name: str, silent: Collection[str]) -> bool:
        """Whether the output of a submodule has a way to the model's output, with others silent and m* absent."""
        for draw in range(_DRAWS):
            self._randomise(draw)
            outputs = [self._outputs(self._rows(draw), silent, {"": self._module}, absent=True)[""]]
            handle = self._parts[name].register_forward_hook(_disturb)
            try:
                outputs.append(self._outputs(self._rows(draw), silent, {"": self._module}, absent=True)[""])
            finally:
                handle.remove()
            if not _equal(*outputs):
                return True
        return False

    def describe_open(self, branches: Collection[str]) -> Iterator[str]:
        """Yield sentences about what hears the modality and stays."""
        m, after = _listed(sorted(self._gone)), self._hearing(branches)
        if self._gone & after[""]:
            hears = [name for name in self._parts if name and self._gone & after.get(name, frozenset())]
            first = next(
                (name for name in hears if not any(_within(other, [name]) for other in hears if other != name)), ""
            )
            beside = sorted(after[first] - self._gone) if first else ()
            yield (
                f"{m} still reaches the output through {first or 'parameters of the model itself'}"
                f"{f', which also hears {_listed(beside)}' if beside else ''}; what multiplies its input there is cut, "
                "and nothing else."
            )
        if not self._bearable(branches):
            yield f"Without {m} the model no longer hears every other modality: it multiplies them by {m}."


def _describe_staying(modality: str, heard: Sequence[str], provenance: Provenance) -> Iterator[str]:
    """Yield a sentence about the submodules that have heard the modality, and stay."""
    alive = [name for name, part in provenance.tensors.items() if not part.dead and name not in provenance.unused]
    stay = [name for name in heard if any(_within(tensor, [name]) for tensor in alive)]
    if stay := [name for name in stay if not _within(name, [other for other in stay if other != name])]:
        yield f"{_listed(stay)} heard {modality} in training too, and stay for the other modalities."


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _within(name: str, names: Collection[str]) -> bool:
    return name in names or name.startswith(tuple(f"{other}." for other in names))


def _equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Whether outputs are the same up to rounding."""
    return len(one) == len(other) and all(equal(a, b, _SAME) for a, b in zip(one, other, strict=True))


def _disturb(_: nn.Module, __: object, output: object) -> object:
    return pytree.tree_map_only(Tensor, lambda x: x + torch.randn_like(x) if x.is_floating_point() else x, output)
