"""The part of `deletion.json` about a surgery: every threshold, count and quantity in effect."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mbd.deletion.importance import Importance
from mbd.deletion.quantities import candidate_bound, rank_correlation, relative_error_bound
from mbd.deletion.saliency import Saliency
from mbd.deletion.selection import Selection
from mbd.features.contract import Split
from mbd.formats.features import Manifest
from mbd.formats.model import ModelRecord
from mbd.params.deletion import SurgerySettings
from mbd.tensors import Array

STABLE_ROWS = 2000
"""number of calibration rows from which the paper calls its proxies stable"""

LOW_ESTIMATE = (
    "M is a low estimate: the largest third derivative along three directions, on a few rows. The true M, and with it "
    "relative_proxy_error_bound, may be larger, so the latter is not a bound."
)

_LARGEST_SAMPLE = 20_000
_QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)


def calibration_facts(manifest: Manifest, split: Split, found: Saliency) -> dict[str, Any]:
    """Return how many calibration rows were requested, exist and could be used."""
    rows = len(split)
    return {
        "requested": manifest.calibration.requested,
        "rows": rows,
        "rows_with_modality": dict(found.rows),
        "at_least_2000": min(found.rows.values()) >= STABLE_ROWS,
    }


def cut_facts(before: ModelRecord, after: ModelRecord, found: Saliency, left: Mapping[str, Array]) -> dict[str, Any]:
    """Return what the cut removed, and what share of all saliency went with it."""
    narrower = {
        name: before.tensors[name].shape[-1] - entry.shape[-1]
        for name, entry in after.tensors.items()
        if entry.shape != before.tensors[name].shape
    }
    total, kept = (sum(float(v.sum()) for v in values.values()) for values in (found.values, left))
    return {
        "tensors_removed": sorted(set(before.tensors) - set(after.tensors)),
        "columns_removed": narrower,
        "numbers_before": _size(before),
        "numbers_after": _size(after),
        "share_of_saliency_removed": 1 - kept / total if total else None,
    }


@dataclass(frozen=True)
class Chosen:
    """The weights, saliencies and proxies from which a selection was made."""

    weights: Mapping[str, Array]
    saliency: Mapping[str, Array]
    importance: Importance
    selection: Selection

    def facts(self, settings: SurgerySettings) -> dict[str, Any]:
        """Return thresholds, counts, and the shares that the chosen parameters have of all weights."""
        selection, indices = self.selection, self.selection.indices
        return {
            "order": settings.order,
            "threshold": settings.threshold,
            "saliency_threshold": selection.saliency_threshold,
            "importance_threshold": selection.importance_threshold,
            "parameters": selection.parameters,
            "salient": selection.salient,
            "note": None if selection.salient else "no remaining parameter takes part in reconstructing the modality",
            "candidates": selection.candidate_count,
            "limit": selection.limit,
            "chosen": selection.chosen,
            "by_tensor": {name: len(positions) for name, positions in indices.items()},
            "share_of_energy": self._share(self.weights, power=2),
            "share_of_saliency": self._share(self.saliency),
        }

    def proxy_facts(self, settings: SurgerySettings) -> dict[str, Any]:
        """Return both proxies, for the candidates or, if there are none, for all parameters."""
        one, other, chi = (
            self._sample(values)
            for values in (self.importance.swiftprune, self.importance.gauss_newton, self.importance.chi)
        )
        return {
            "used": settings.importance,
            "rows": self.importance.rows,
            "sample": one.size,
            "swiftprune": _quantiles(one),
            "gauss_newton": _quantiles(other),
            "rank_correlation": rank_correlation(one, other),
            "largest_chi": float(chi.max()),
            "clipped_chi": int((chi >= settings.chi_max).sum()),
        }

    def paper_facts(self, settings: SurgerySettings, third_derivative: float) -> dict[str, Any]:
        """Return the quantities that the paper argues with."""
        weights, chi = self._candidates(self.weights), self._candidates(self.importance.chi)
        return {
            "lipschitz_estimate": self.importance.largest_gradient,
            "largest_layer_input": self.importance.largest_input,
            "candidate_set_bound": candidate_bound(
                self.selection.candidate_count, self.selection.parameters, settings.budget
            ),
            "third_derivative_estimate": third_derivative,
            "third_derivative_note": LOW_ESTIMATE,
            "relative_proxy_error_bound": relative_error_bound(third_derivative, weights, chi),
        }

    def _candidates(self, values: Mapping[str, Array]) -> Array:
        parts = [self._flat(values, name)[positions] for name, positions in self.selection.candidates.items()]
        return np.concatenate([np.zeros(0), *parts])

    def _sample(self, values: Mapping[str, Array]) -> Array:
        """Return every n-th value, so that sorting is fast."""
        if self.selection.candidates:
            candidates = self._candidates(values)
            return candidates[:: -(-candidates.size // _LARGEST_SAMPLE)]
        step = -(-self.selection.parameters // _LARGEST_SAMPLE)
        return np.concatenate([self._flat(values, name)[::step] for name in self.saliency])

    def _flat(self, values: Mapping[str, Array], name: str) -> Array:
        return np.broadcast_to(values[name], self.saliency[name].shape).reshape(-1)

    def _share(self, values: Mapping[str, Array], power: int = 1) -> float:
        """Return the share that the chosen positions have of Σ values^power."""
        if not self.selection.indices:
            return 0.0
        powers = {name: values[name].astype(np.float64).ravel() ** power for name in self.saliency}
        chosen = sum(float(powers[name][positions].sum()) for name, positions in self.selection.indices.items())
        return chosen / sum(float(array.sum()) for array in powers.values())


def _quantiles(values: Array) -> dict[str, float]:
    return {f"{q:g}": float(np.quantile(values, q)) for q in _QUANTILES}


def _size(record: ModelRecord) -> int:
    return sum(int(np.prod(entry.shape)) for entry in record.tensors.values())
