"""Backbone `additive`: a ridge regression for each modality; a score is the mean over the modalities of a row.

No tensor has seen more than one modality, so the built-in method `exact` works on it: what is left after dropping the
tensors of a modality is, byte for byte, what training without that modality gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.plugins import (
    Array,
    Backbone,
    ColumnRange,
    FeatureSet,
    ModelRecord,
    Params,
    Positive,
    Settings,
    Trained,
    data_record,
    describe,
    recorded_training,
)


class AdditiveSettings(Settings):
    """What can be set as model.options."""

    strength: Positive = 1.0
    """ridge penalty"""


def train(feature_set: FeatureSet, params: Params, *, work: Path, progress: bool) -> Trained:
    """Fit each modality to the labels by itself."""
    options = AdditiveSettings.model_validate(params.model.options)
    manifest, rows = feature_set.manifest, feature_set.split("train").load()
    tensors, provenance = {}, {}
    for name, dim in feature_set.modalities.items():
        there = rows.available[name]
        x = np.hstack([np.asarray(rows.features[name][there], np.float64), np.ones((int(there.sum()), 1))])
        weights = np.linalg.solve(x.T @ x + options.strength * np.eye(dim + 1), x.T @ rows.labels[there])
        tensors[f"weights.{name}"] = weights[:dim].astype(np.float32)
        tensors[f"offset.{name}"] = weights[dim:].astype(np.float32)
        columns = (ColumnRange(start=0, stop=dim, reads=name),)
        provenance[f"weights.{name}"] = describe(tensors[f"weights.{name}"], (name,), belongs_to=name, columns=columns)
        provenance[f"offset.{name}"] = describe(tensors[f"offset.{name}"], (name,), belongs_to=name)
    record = ModelRecord(
        backbone="additive",
        spec={**options.model_dump(mode="json"), "training": recorded_training(params.training)},
        task=manifest.task,
        classes=manifest.classes,
        label_range=manifest.label_range,
        modalities=feature_set.modalities,
        seed=str(params.training.seed),
        data=data_record(feature_set),
        tensors=provenance,
        sha256="",
    )
    return Trained(record, tensors, history=[])


@dataclass(frozen=True)
class AdditiveModel:
    """The model with its weights."""

    tensors: Mapping[str, Array]

    def activations(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> dict[str, Array]:
        """Return the score of each modality: what a white-box attack sees inside the model."""
        return {
            m: ((x @ self.tensors[f"weights.{m}"] + self.tensors[f"offset.{m}"]) * available[m])[:, None]
            for m, x in features.items()
        }

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
        """Return the mean of the scores of the modalities that are there."""
        scores = np.hstack(list(self.activations(features, available).values()))
        count = np.sum([available[m] for m in features], axis=0)
        mean: Array = scores.sum(1) / count
        return mean


def load(record: ModelRecord, tensors: Mapping[str, Array]) -> AdditiveModel:
    """Return the model of a record and its tensors."""
    return AdditiveModel({name: np.asarray(tensors[name]) for name in record.tensors})


ADDITIVE = Backbone(train, load, separable=True, settings=AdditiveSettings)
