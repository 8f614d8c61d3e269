"""The models under attack, and what an attacker who has one of them sees when it runs.

A target model is opened as a white box: its backbone is fed directly, so a modality that was revoked but not cut out
can still be fed. Which inputs there are is found by trying, not read from the record: a module of fixed shape takes
what was deleted like anything else. m* enters by the input of its name, and by every input that the data does not know,
which may be m* by another name. A model without such an input cannot be fed m*, and feeding it changes nothing.

Outputs and activations are extracted once for each set of rows and shared by all attacks.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from mbd.attacks import extraction
from mbd.attacks.extraction import Extraction
from mbd.features.pooling import as_vectors
from mbd.features.rows import Rows
from mbd.files import canonical_digest
from mbd.formats.features import Shape
from mbd.formats.model import ModelRecord
from mbd.model.checkpoint import load_model
from mbd.model.predictor import LoadedBackbone, OffersReconstructions
from mbd.registry import BACKBONES
from mbd.tensors import Array

Role = Literal["before", "after", "reference"]


@dataclass(frozen=True, eq=False)
class TargetModel:
    """A model under attack."""

    role: Role
    record: ModelRecord
    backbone: LoadedBackbone
    tensors: Mapping[str, Array]
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """all modalities of the data"""
    _kept: dict[tuple[int, str, bool], tuple[Rows, Extraction]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        role: Role,
        record: ModelRecord,
        tensors: Mapping[str, Array],
        shapes: Mapping[str, Shape] | None = None,
    ) -> "TargetModel":
        """Return the model with these weights, open to every modality of the data (`shapes`) that it can take."""
        kind, known = BACKBONES.get(record.backbone), dict(shapes or {})
        backbone = kind.open_inputs(record, tensors, known) if kind.open_inputs else kind.load(record, tensors)
        return cls(role, record, backbone, tensors, known)

    def with_tensors(self, tensors: Mapping[str, Array]) -> "TargetModel":
        """Return the same model with other weights of the same names and shapes (rounded, pruned …)."""
        return TargetModel.of(self.role, self.record, tensors, self.shapes)

    def with_old(self, before: "TargetModel", modality: str) -> "TargetModel":
        """Return the model with the weights that m* had in the model before, and with all that it no longer has."""
        transplant = BACKBONES.get(before.record.backbone).transplant
        tensors = transplant((before.record, before.tensors), (self.record, self.tensors), modality)
        return TargetModel.of(self.role, before.record, tensors, before.shapes)

    @cached_property
    def inputs(self) -> Mapping[str, Shape]:
        """Every input of the model with its shape."""
        opened: Mapping[str, Shape] = getattr(self.backbone, "inputs", self.record.shapes)
        return opened

    @cached_property
    def digest(self) -> str:
        """Of the weights and of what running them depends on: models with the same digest give the same evidence."""
        of = self.record
        described = [of.backbone, of.spec, of.task, of.classes, of.label_range]
        inputs = [[name, str(shape), name in of.inputs] for name, shape in self.inputs.items()]
        tensors = {
            name: [str(x.dtype), x.shape, hashlib.sha256(np.ascontiguousarray(x).data).hexdigest()]
            for name, x in self.tensors.items()
        }
        return canonical_digest([described, inputs, tensors])

    def entries(self, rows: Rows, modality: str) -> tuple[str, ...]:
        """Return the inputs of the model by which m* can be fed: m* itself, and any that the data does not know."""
        return tuple(m for m in self.inputs if m == modality or m not in rows.features)

    def extract(self, rows: Rows, modality: str, *, fed: bool) -> Extraction:
        """Return what the model computes for `rows`, with m* fed or not; the same object if m* cannot be fed."""
        fed = fed and bool(self.entries(rows, modality))
        key = (id(rows), modality, fed)
        if key not in self._kept:
            # The rows are kept too, so that no other rows can get their id.
            self._kept[key] = rows, self.look(rows, modality, fed=fed)
        return self._kept[key][1]

    def look(self, rows: Rows, modality: str, *, fed: bool) -> Extraction:
        """Return the same as :meth:`extract`, computed again and not cached."""
        feeding = self._feeding(rows, modality, fed=fed)
        masks = feeding.masks()
        outputs = extraction.answers(self.backbone, feeding, rows, masks)
        return Extraction(masks, outputs, extraction.activations(self.backbone, feeding, rows))

    def activations(self, rows: Rows, modality: str, *, fed: bool) -> dict[str, Array]:
        """Return the activations alone, computed again and not cached."""
        return extraction.activations(self.backbone, self._feeding(rows, modality, fed=fed), rows)

    def answers(self, rows: Rows, modality: str, *, alone: bool) -> Array:
        """Return the outputs with m* fed (n × outputs): for m* alone, or for all modalities of the rows."""
        feeding = self._feeding(rows, modality, fed=True)
        return extraction.answers(self.backbone, feeding, rows, [() if alone else feeding.retained])[:, 0]

    def reconstruct(self, rows: Rows, modality: str) -> dict[str, Array]:
        """Return the model's own reconstruction of m* of each row when m* is missing, as vectors in the units of m*.

        `generator`: X̂ = G_m(X^{∖m}, P^m); `back-translation`: what the recomposition makes of B_m(Z) and P^m, up
        to a factor, because B_m learns directions only. Empty if the model reconstructs nothing.
        """
        size, shapes = rows.features[modality].shape[1:], self.inputs
        wanted = [m for m in self.entries(rows, modality) if shapes[m].size == size]
        if not wanted or not isinstance(self.backbone, OffersReconstructions):
            return {}
        feeding = self._feeding(rows, modality, fed=False)
        offered = self.backbone.reconstructions(*feeding(rows, feeding.retained), wanted[0])
        return {
            name: as_vectors(replace(rows, features={modality: array})).features[modality]
            for name, array in offered.items()
        }

    def _feeding(self, rows: Rows, modality: str, *, fed: bool) -> extraction.Feeding:
        entries = self.entries(rows, modality)
        retained = tuple(m for m in self.record.modalities if m not in entries and rows.available[m].any())
        return extraction.Feeding(self.inputs, retained, entries if fed else (), modality)


def open_target(
    folder: Path, role: Role, shapes: Mapping[str, Shape] | None = None, *, verify: bool = True
) -> TargetModel:
    """Open a model folder for attack; `shapes` are all modalities of the data."""
    record, tensors = load_model(folder, verify=verify)
    return TargetModel.of(role, record, {name: np.array(tensor) for name, tensor in tensors.items()}, shapes)
