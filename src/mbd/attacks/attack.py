"""What every adversary takes and returns.

An adversary is a module `mbd.attacks.NAME` with `attack(suspect, setting) -> list[Evidence]`: the same measures in the
same order for every suspect, on the same rows. It fits whatever it fits on one half of the rows and scores the other
half; what it found is kept row by row, so that intervals, and differences between two suspects on the same rows, come
from one bootstrap (:mod:`mbd.attacks.bootstrap`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mbd.tensors import Array

Statistic = Callable[[Array, Array], Array]
"""(rows n × k, weights b × n) → b values: the measure under b weightings of the rows (all ones: the measure itself)"""


@dataclass(frozen=True)
class AttackEvidence:
    """What one adversary found about one suspect by one measure."""

    attack: str
    """pathway | whitebox | blackbox | reconstruction | membership | relearn | diff"""
    measure: str
    """what was measured, in a few plain words: "accuracy, audio fed", "AUC of the reconstruction error" …"""
    chance: float
    """what somebody who knows nothing reaches"""
    rows: Array
    """the evidence of each attacked row (n × k), in the order of the attacked rows"""
    statistic: Statistic
    """how rows become the measure; more is always more leakage"""
    groups: Array | None = None
    """the group of each row: the rows of a group are resampled together; None: each row for itself"""

    @property
    def value(self) -> float:
        """The measure."""
        return float(self.statistic(self.rows, np.ones((1, len(self.rows))))[0])
