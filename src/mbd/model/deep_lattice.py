"""The lattice of networks: the module of each tag is built by a factory for the modalities of that tag alone.

A module is trained on the rows that have its whole tag, and answers for rows that have it; how modules are blended is
said in :mod:`mbd.model.lattice`. Its tensors are `module.TAG.network.…`, its out-of-fold error and its number of rows.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from mbd.errors import UsageError
from mbd.formats.features import lengths_of
from mbd.formats.model import LatticeSpec, ModelRecord, Tag
from mbd.model.contract import Architecture, load_factory
from mbd.model.lattice import AnyModule, Blend
from mbd.model.module import ModuleBackbone, load_state, warn_of_other_source
from mbd.tensors import Array

NETWORK = "network."
_PLACES = 64
_KEY = "model.lattice.member"


@dataclass(frozen=True)
class NetworkModule(AnyModule):
    """One that is a network."""

    network: ModuleBackbone


class DeepLattice(Blend[NetworkModule]):
    """Modules that are networks."""

    def answer(self, present: Tag, features: Mapping[str, Array]) -> Array:
        """Return the average of what the networks answer."""
        total: Array = np.zeros(())
        for tag, weight in self.weights(present).items():
            own = _inputs_of(tag, features)
            there = np.ones(len(next(iter(own.values()))), bool)
            answers = self.modules[tag].network.predict(own, dict.fromkeys(tag, there))
            total = total + weight * answers.reshape(len(answers), -1)
        return total

    def activations(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> dict[str, Array]:
        """Return what the submodules of all networks compute; zero for rows that lack an input of one."""
        activations = {}
        most = max(1, _PLACES // len(self.modules))
        for tag, module in self.modules.items():
            has_all = np.all([available[m] for m in tag], axis=0)
            if not has_all.any():
                continue
            own = module.network.activations(_inputs_of(tag, features), {m: available[m] for m in tag})
            kept = list(own)[:: -(-len(own) // most)] if own else []
            for place in kept:
                activations[f"module.{'+'.join(tag)}.{place}"] = np.where(has_all[:, None], own[place], np.float32(0))
        return activations


def _inputs_of(tag: Tag, features: Mapping[str, Array]) -> dict[str, Array]:
    names = {*tag, *map(lengths_of, tag)}
    return {name: x for name, x in features.items() if name in names}


def deep_lattice(record: ModelRecord, spec: LatticeSpec, modules: Mapping[Tag, Mapping[str, Array]]) -> DeepLattice:
    """Build the networks that `record` describes around their weights.

    Raises:
        DataError: The factory does not build networks that these weights fit.

    """
    warn_of_other_source(member_architecture(spec, record.modalities, record.classes), spec.source)
    networks = {}
    for tag, tensors in modules.items():
        architecture = member_architecture(spec, tag, record.classes)
        network = architecture.blank()
        state = {name.removeprefix(NETWORK): t for name, t in tensors.items() if name.startswith(NETWORK)}
        load_state(network, state, architecture.name)
        backbone = ModuleBackbone(network.requires_grad_(False), architecture, record.task)
        networks[tag] = NetworkModule(tensors, backbone)
    return DeepLattice(tuple(record.modalities), networks, len(record.classes), spec.trust)


def member_architecture(spec: LatticeSpec, tag: Collection[str], classes: Collection[str]) -> Architecture:
    """Return the architecture of the network of one tag."""
    path = spec.member or ""
    shapes = {m: shape for m, shape in spec.shapes.items() if m in tag}
    factory = load_factory(path, _KEY)
    return Architecture(factory, shapes, max(len(classes), 1), spec.options, name=path, key=_KEY)


def refuse_fixed_shape(spec: LatticeSpec, tags: Collection[Tag], classes: Collection[str]) -> None:
    """Refuse a factory that does not build a network for each tag, before anything is trained.

    Raises:
        UsageError: It fails for one, or builds all modalities into the network of one.

    """
    largest = max(tags, key=len)
    full = member_architecture(spec, largest, classes)
    full.check(full.build())
    for modality in largest if len(largest) > 1 else ():
        rest = [m for m in largest if m != modality]
        member_architecture(spec, rest, classes).build()
        if full.without([modality]) is full:
            raise UsageError(
                f"the factory builds the same network with and without {modality}",
                key=_KEY,
                value=spec.member,
                hint="a member is built for the modalities that it is given, and for no others",
            )
