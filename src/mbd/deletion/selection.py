"""Selection of the parameters to edit: two thresholds give the candidates, of which the first k are taken.

    candidates   s_q ≥ η_s  and  L_q ≤ η_L
    k            ⌊r·|W|⌋
    order        by L_q ascending (as printed in the paper), or by s_q descending

η_s and η_L are set in the parameters (`absolute`), or are quantiles of s and L among the parameters with s > 0
(`quantile`), which do not depend on the scale of the loss. Ties are broken by tensor name, then position.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import NoReturn

import numpy as np

from mbd.errors import UsageError
from mbd.params.deletion import SurgerySettings
from mbd.tensors import Array


@dataclass(frozen=True)
class Selection:
    """The selected parameters and how they were selected."""

    indices: Mapping[str, Array]
    """flat positions by tensor, ascending; only tensors with at least one"""
    parameters: int
    """|W|"""
    salient: int
    """parameters with s > 0"""
    candidates: int
    """how many parameters pass both thresholds"""
    limit: int
    """k"""
    saliency_threshold: float | None
    """η_s as applied; None if nothing is salient"""
    importance_threshold: float | None
    """η_L as applied; None if nothing is salient"""

    @property
    def chosen(self) -> int:
        """Number of selected parameters."""
        return sum(len(positions) for positions in self.indices.values())


def select(saliency: Mapping[str, Array], importance: Mapping[str, Array], params: SurgerySettings) -> Selection:
    """Select the parameters to edit; of a tensor in which nothing is salient, the importance is not needed.

    Raises:
        UsageError: The budget is less than one parameter, or no parameter is a candidate.

    """
    names = sorted(saliency)
    known = {name: importance.get(name, np.zeros(values.shape)) for name, values in saliency.items()}
    s, importances = (_flat(values, names) for values in (saliency, known))
    limit, salient = floor(params.budget * s.size), s > 0
    if not limit:
        raise UsageError(
            f"the budget is less than one parameter: {params.budget:g} of {s.size}",
            key="deletion.surgery.budget",
            value=params.budget,
            hint="raise it (at most 0.05)",
        )
    eta_s, eta_l = _thresholds(s[salient], importances[salient], params)
    # With η_s = 0 the first condition alone would admit parameters that do not act on the modality (s = 0).
    candidates = np.flatnonzero((s >= eta_s) & salient & (importances <= eta_l))
    if not candidates.size:
        _refuse_empty(s[salient], importances[salient], (eta_s, eta_l), params)
    first = importances[candidates] if params.order == "importance" else -s[candidates]
    chosen = candidates[np.argsort(first, kind="stable")[:limit]]
    sizes = {name: saliency[name].size for name in names}
    return Selection(
        indices=_by_tensor(np.sort(chosen), sizes),
        parameters=s.size,
        salient=int(salient.sum()),
        candidates=candidates.size,
        limit=limit,
        saliency_threshold=eta_s,
        importance_threshold=eta_l,
    )


def nothing_salient(saliency: Mapping[str, Array], params: SurgerySettings) -> Selection | None:
    """Return the empty selection if no parameter is salient, otherwise None."""
    if any(values.any() for values in saliency.values()):
        return None
    size = sum(values.size for values in saliency.values())
    return Selection({}, size, 0, 0, floor(params.budget * size), None, None)


def _thresholds(s: Array, importances: Array, params: SurgerySettings) -> tuple[float, float]:
    if params.threshold == "absolute":
        return params.saliency_threshold, params.importance_threshold
    if not s.size:
        return 0.0, 0.0
    return (
        float(np.quantile(s, params.saliency_quantile)),
        float(np.quantile(importances, params.importance_quantile)),
    )


def _refuse_empty(s: Array, importances: Array, thresholds: tuple[float, float], params: SurgerySettings) -> NoReturn:
    if not s.size:
        raise UsageError(
            "no parameter is salient: none contributes to reconstructing the modality, so surgery has nothing to edit",
            hint="keep deletion.surgery.cut=true, or train with model.joint.reconstruction=true",
        )
    quantiles = ", ".join(f"{q:g}: {np.quantile(s, q):.3g}" for q in (0.5, 0.9, 0.99, 1))
    least = ", ".join(f"{q:g}: {np.quantile(importances, q):.3g}" for q in (0, 0.5, 0.9, 1))
    raise UsageError(
        f"no parameter has a saliency of at least η_s = {thresholds[0]:.3g} and an importance of at most "
        f"η_L = {thresholds[1]:.3g}: of {s.size} salient parameters, {int((s >= thresholds[0]).sum())} pass the first "
        f"threshold and {int((importances <= thresholds[1]).sum())} the second. Saliency has the scale of the loss "
        "and of the features, so a fixed threshold does not fit every model",
        key=f"deletion.surgery.threshold={params.threshold}",
        value=f"quantiles of saliency {quantiles}; of importance {least}",
        hint="set deletion.surgery.threshold=quantile (saliency_quantile=0.9, importance_quantile=1), or thresholds "
        "within these quantiles",
    )


def _flat(values: Mapping[str, Array], names: list[str]) -> Array:
    return np.concatenate([np.asarray(values[name], np.float64).ravel() for name in names])


def _by_tensor(positions: Array, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Split ascending positions in the concatenation of all tensors into positions within each tensor."""
    starts = np.concatenate([[0], np.cumsum(list(sizes.values()))])
    bounds = np.searchsorted(positions, starts)
    return {
        name: (positions[low:high] - start).astype(np.int64)
        for name, start, low, high in zip(sizes, starts, bounds, bounds[1:], strict=False)
        if high > low
    }
