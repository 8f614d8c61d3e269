"""The ridge baseline of a data set: each modality alone and all together, fitted on train, scored on test."""

import numpy as np

from mbd.evaluation.metrics import classification_metrics, regression_metrics
from mbd.evaluation.ridge import fit_ridge
from mbd.features.rows import Collection, Rows
from mbd.tensors import Array


def ridge_baselines(collection: Collection) -> dict[str, dict[str, float]]:
    """Return the test metrics of ridge by modality and for `all`; rows without the modality are left out."""
    sets = {m: (m,) for m in collection.modalities} | {"all": tuple(collection.modalities)}
    return {name: ridge_baseline(collection, modalities) for name, modalities in sets.items()}


def ridge_baseline(collection: Collection, modalities: tuple[str, ...]) -> dict[str, float]:
    """Return the test metrics of ridge on the rows that have all of `modalities`."""
    (x, y), (x_test, y_test) = (_rows_with(collection.splits[split], modalities) for split in ("train", "test"))
    if len(x) < 2 or not len(x_test):
        return {}
    if collection.task == "classification":
        ridge = fit_ridge(x, np.eye(len(collection.classes))[y])
        return classification_metrics(y_test, ridge.predict(x_test).argmax(1))
    ridge = fit_ridge(x, y[:, None].astype(np.float64))
    return regression_metrics(y_test, ridge.predict(x_test)[:, 0])


def _rows_with(rows: Rows, modalities: tuple[str, ...]) -> tuple[Array, Array]:
    there = np.all([rows.available[m] for m in modalities], axis=0)
    return np.hstack([rows.features[m][there] for m in modalities]), rows.labels[there]
