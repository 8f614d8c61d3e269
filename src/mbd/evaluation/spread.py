"""Several seeds of one method, and two methods against each other.

mean ± deviation, the deviation with n − 1 in the denominator, and the paired two-tailed t-test over seeds. Where these
have no value they are null, never a made-up number:

- one seed has no deviation, and fewer than two pairs have no t-test;
- pairs without any difference have t = 0 and p = 1;
- pairs whose difference is always the same, and not zero, have neither t nor p: the formula gives p = 0, which three
  seeds that happen to agree on a counted metric do not show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mbd.errors import MissingExtraError


@dataclass(frozen=True)
class Spread:
    """A number over seeds."""

    mean: float
    deviation: float | None
    seeds: int


@dataclass(frozen=True)
class Comparison:
    """What the paired two-tailed t-test says of `ours − theirs`."""

    difference: float
    t: float | None
    p: float | None
    pairs: int


def spread(values: Sequence[float]) -> Spread:
    """Return mean and deviation of one value for each seed."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(float(np.mean(values)), deviation, len(values))


def paired_t_test(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Compare two methods seed by seed; the two sequences have the same order of seeds."""
    differences = np.subtract(ours, theirs, dtype=np.float64)
    if len(differences) != len(ours) or len(differences) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} values are no pairs")
    mean, pairs = float(differences.mean()), len(differences)
    if pairs < 2:
        return Comparison(mean, None, None, pairs)
    if not differences.any():
        return Comparison(0.0, 0.0, 1.0, pairs)
    if np.ptp(differences) <= 1e-12 * np.abs(differences).max():
        return Comparison(mean, None, None, pairs)
    try:
        from scipy.stats import ttest_rel  # noqa: PLC0415 -- slow to import, and part of an extra
    except ImportError as error:
        raise MissingExtraError("the t-test", "train", "scipy") from error
    result = ttest_rel(ours, theirs)
    return Comparison(mean, float(result.statistic), float(result.pvalue), pairs)
