"""The interface of an attack.

An attack is described by an :class:`Attack`, whose `run` returns the same measures in the same order for every
model, on the same rows. It fits on one half of the rows and scores the other half. Its evidence is kept row by row, so
that intervals, and differences between two models on the same rows, come from one bootstrap
(:mod:`mbd.attacks.bootstrap`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel

from mbd.tensors import Array

if TYPE_CHECKING:
    from mbd.attacks.context import AttackContext
    from mbd.attacks.target_model import TargetModel

Statistic = Callable[[Array, Array], Array]
"""(rows n × k, weights b × n) → b values: the measure under b weightings of the rows (all ones: the measure itself)"""

_FEWEST_GROUPS = 8


@dataclass(frozen=True)
class Attack:
    """An attack: a function that attacks one model."""

    run: "Callable[[TargetModel, AttackContext], list[AttackEvidence]]"
    """returns the same measures in the same order for every model, on the same rows"""
    asks: str
    """the question it answers, in one sentence"""
    settings: type[BaseModel] | None = None
    """of its options in `attacks.also`; built-in attacks have none"""
    altered: bool = True
    """whether it also runs on models that were quantised and pruned"""


@dataclass(frozen=True)
class AttackEvidence:
    """One measure of one attack on one model."""

    attack: str
    """name of the attack"""
    measure: str
    """what was measured: the second part of the id, as in `whitebox.accuracy_fed`"""
    chance: float
    """the value of a guess without information"""
    rows: Array
    """the evidence of each attacked row (n × k), in the order of the attacked rows"""
    statistic: Statistic
    """how rows become the measure; more is always more leakage"""
    groups: Array | None = None
    """the group of each row: rows of a group are resampled together; None: every row separately"""
    limits: tuple[float, float] = (-math.inf, math.inf)
    """the least and the largest value that the measure can have"""
    class_weight: float | None = None
    """how much each class (the first column) counts where a measure is taken class by class: ½ in a mean of two, 1 in
    pairs of one row from each; None: all rows count alike"""

    @cached_property
    def value(self) -> float:
        """The measure."""
        return float(self.statistic(self.rows, np.ones((1, len(self.rows))))[0])

    @cached_property
    def unit_of_row(self) -> Array:
        """The number of what is drawn together with each row: its group, or the row itself if there are few groups."""
        units = self.groups if self.groups is None else np.unique(self.groups, return_inverse=True)[1].reshape(-1)
        numbers: Array = np.arange(len(self.rows)) if units is None or units.max() + 1 < _FEWEST_GROUPS else units
        return numbers.astype(np.int64)

    @cached_property
    def units(self) -> int:
        """How many there are of them."""
        return int(self.unit_of_row.max()) + 1
