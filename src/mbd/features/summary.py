"""What a person wants to know of feature data at first sight: sizes, labels, and how far ridge gets.

The baselines are fitted on train and scored on test, for each modality alone and for all together.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mbd.features.rows import Collection

_BINS = 13


def label_statistics(collection: Collection) -> dict[str, Any]:
    """Return, for each split, the labels' statistics (regression) or counts by class (classification)."""
    if collection.task == "classification":
        return {
            split: dict(
                zip(
                    collection.classes,
                    np.bincount(rows.labels, minlength=len(collection.classes)).tolist(),
                    strict=True,
                )
            )
            for split, rows in collection.splits.items()
        }
    return {
        split: {
            "mean": round(float(rows.labels.mean()), 4),
            "std": round(float(rows.labels.std()), 4),
            "min": round(float(rows.labels.min()), 4),
            "max": round(float(rows.labels.max()), 4),
            "non_negative_percent": round(float(100 * (rows.labels >= 0).mean()), 2),
            "zero": int((rows.labels == 0).sum()),
        }
        for split, rows in collection.splits.items()
    }


def label_histogram(collection: Collection, label_range: tuple[float, float]) -> str:
    """Return the share of labels in each bin or class, a column for each split, as CSV for a plot."""
    if collection.task == "classification":
        names: Sequence[str] = collection.classes
        counts = [np.bincount(rows.labels, minlength=len(names)) for rows in collection.splits.values()]
    else:
        edges = np.linspace(*label_range, _BINS + 1)
        names = [f"{middle:.2f}" for middle in (edges[:-1] + edges[1:]) / 2]
        counts = [np.histogram(rows.labels, bins=edges)[0] for rows in collection.splits.values()]
    shares = np.array([count / count.sum() for count in counts]).T
    lines = [f"{name},{','.join(f'{share:.4f}' for share in row)}" for name, row in zip(names, shares, strict=True)]
    return "\n".join([f"label,{','.join(collection.splits)}", *lines]) + "\n"


def availability(collection: Collection) -> dict[str, dict[str, float]]:
    """Return the percentage of rows that have each modality, for each split."""
    return {
        split: {m: round(float(100 * bits.mean()), 2) for m, bits in rows.available.items()}
        for split, rows in collection.splits.items()
    }
