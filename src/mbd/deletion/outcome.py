"""The interface of a deletion method.

A method is a module `mbd.deletion.METHOD` with `delete(request, before, params) -> DeletionOutcome`. It reads and
writes no files: the step `delete` reads the model and the data, and writes the outcome.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mbd.features.contract import FeatureSet
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import Rounding
from mbd.tensors import Array


@dataclass(frozen=True)
class ModelBefore:
    """The model before the deletion, and the data it was made from, open with all of the model's modalities."""

    record: ModelRecord
    tensors: Mapping[str, Array]
    data: FeatureSet
    reference: tuple[ModelRecord, Mapping[str, Array]] | None = None
    """a model that was trained without what goes, where there is one"""


@dataclass
class Phases:
    """How long each phase of a deletion took, in seconds."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True)
class DeletionOutcome:
    """The model after the deletion, and the record of how it was made."""

    record: ModelRecord
    tensors: Mapping[str, Array]
    indices: Mapping[str, Array]
    """for each tensor of the new model, the flat positions that were edited (int64, ascending)"""
    facts: Mapping[str, Any]
    """the method's own part of deletion.json: parameters that came into effect, counts, σ, commitment, budget, …"""
    phases: Phases
    rounding: Rounding | None = None
    """how the tensors were rounded; None: they were not"""
