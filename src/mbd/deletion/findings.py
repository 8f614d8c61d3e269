"""The part of `deletion.json` about Algorithm 1: every threshold and count in effect."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mbd.deletion.saliency import Saliency
from mbd.deletion.selection import Selection
from mbd.features.contract import Split
from mbd.formats.features import Manifest
from mbd.formats.predicate import STABLE_ROWS
from mbd.params.deletion import SurgerySettings
from mbd.tensors import Array


def calibration_facts(manifest: Manifest, split: Split, found: Saliency) -> dict[str, Any]:
    """Return how many calibration rows were requested, exist and could be used."""
    return {
        "requested": manifest.calibration.requested,
        "rows": len(split),
        "rows_with_modality": dict(found.rows),
        "at_least_2000": min(found.rows.values()) >= STABLE_ROWS,
    }


def selection_facts(
    selection: Selection, weights: Mapping[str, Array], saliency: Mapping[str, Array], settings: SurgerySettings
) -> dict[str, Any]:
    """Return thresholds, counts, and the shares that the chosen parameters have of all weights."""
    return {
        "order": settings.order,
        "importance": settings.importance,
        "threshold": settings.threshold,
        "saliency_threshold": selection.saliency_threshold,
        "importance_threshold": selection.importance_threshold,
        "parameters": selection.parameters,
        "salient": selection.salient,
        "note": None if selection.salient else "no remaining parameter takes part in reconstructing the modality",
        "candidates": selection.candidates,
        "limit": selection.limit,
        "chosen": selection.chosen,
        "by_tensor": {name: len(positions) for name, positions in selection.indices.items()},
        "share_of_energy": _share({n: np.square(weights[n], dtype=np.float64) for n in saliency}, selection.indices),
        "share_of_saliency": _share(saliency, selection.indices),
    }


def _share(values: Mapping[str, Array], indices: Mapping[str, Array]) -> float:
    """Return the share that the chosen positions have of the sum of all values."""
    chosen = sum(float(values[name].ravel()[positions].sum()) for name, positions in indices.items())
    return chosen / sum(float(array.sum()) for array in values.values()) if indices else 0.0
