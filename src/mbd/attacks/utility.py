"""Utility: each model on the retained modalities only, never on inputs that contain a deleted one.

The deleted model is compared with the reference and with the full model given the same modalities. Regression: Acc2 and
Pearson's r; classification: WA and UA (mean recall). The second metric of each pair exposes a constant model, which the
first would flatter if classes are uneven. The gate judges all retained modalities together; subsets are informational.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mbd.attacks.attack import AttackEvidence, Statistic
from mbd.attacks.audit_input import AuditInput
from mbd.attacks.bootstrap import accuracy
from mbd.attacks.target_model import Role, TargetModel
from mbd.blocks import in_blocks
from mbd.errors import DataError
from mbd.features.availability import fixed_patterns
from mbd.features.contract import Split
from mbd.formats.features import Task
from mbd.model.predictor import Model
from mbd.params.deletion import AttacksSettings
from mbd.tensors import Array


@dataclass(frozen=True)
class UtilityMeasurement:
    """One metric under one regime, of each model on the same rows."""

    metric: str
    regime: str
    margin: float
    decides: bool
    found: Mapping[Role, AttackEvidence]


def utility(
    audit: AuditInput, target_models: Mapping[Role, TargetModel], params: AttacksSettings
) -> list[UtilityMeasurement]:
    """Measure the utility of the models on the test rows."""
    test, task = audit.data.split("test"), audit.data.manifest.task
    utilities = []
    for pattern in sorted(fixed_patterns(audit.retained), key=len, reverse=True):
        rows = np.flatnonzero(np.any([test.available[m] for m in pattern], axis=0))
        if not len(rows):
            continue
        outputs, labels, groups = _outputs(target_models, test, rows, pattern), test.labels[rows], test.groups[rows]
        for metric, (statistic, margin) in _metrics(task, params).items():
            evidence = {r: _evidence(metric, task, labels, groups, output, statistic) for r, output in outputs.items()}
            utilities.append(UtilityMeasurement(metric, "+".join(pattern), margin, pattern == audit.retained, evidence))
    if not any(measured_utility.decides for measured_utility in utilities):
        raise DataError(
            "no test row has any of the retained modalities, so utility cannot be measured",
            file=audit.data.folder,
            hint="use a FeatureSet whose test rows have more than the deleted modalities",
        )
    return utilities


def _outputs(
    target_models: Mapping[Role, TargetModel], split: Split, rows: Array, pattern: tuple[str, ...]
) -> dict[Role, Array]:
    """Return what each model predicts for some rows, of which a block is in memory at a time."""
    models = {role: Model(target.record, target.backbone) for role, target in target_models.items()}
    parts: dict[Role, list[Array]] = {role: [] for role in models}
    for own in in_blocks(rows, sum(math.prod(x.shape[1:]) for x in split.features.values())):
        given = split.take(own)
        for role, model in models.items():
            parts[role].append(model.predict(given.inputs(pattern), {m: given.available[m] for m in pattern}))
    return {role: np.concatenate(found) for role, found in parts.items()}


def _metrics(task: Task, params: AttacksSettings) -> dict[str, tuple[Statistic, float]]:
    if task == "classification":
        return {"wa": (_percent_right, params.utility_margin), "ua": (_percent_recall, params.utility_margin)}
    return {"acc2": (_percent_right, params.utility_margin), "corr": (correlation, params.correlation_margin)}


def _evidence(
    metric: str, task: Task, truth: Array, groups: Array, output: Array, statistic: Statistic
) -> AttackEvidence:
    if task == "classification":
        pairs = np.stack([truth, output.argmax(1)], axis=1)
    elif metric == "acc2":
        pairs = np.stack([truth >= 0, output >= 0], axis=1)
    else:
        pairs = np.stack([truth, output], axis=1)
    limits = (-1.0, 1.0) if metric == "corr" else (0.0, 100.0)
    weight = 1 / len(np.unique(truth)) if metric == "ua" else None
    return AttackEvidence("utility", metric, 0.0, pairs.astype(np.float64), statistic, groups, limits, weight)


def _percent_right(rows: Array, weights: Array) -> Array:
    return 100 * accuracy(rows, weights)


def _percent_recall(rows: Array, weights: Array) -> Array:
    """Return the mean recall over the classes that occur."""
    own = rows[:, :1] == np.unique(rows[:, 0])
    hits, support = weights @ (own & (rows[:, :1] == rows[:, 1:])), weights @ own
    there = support > 0
    recalls = np.divide(hits, support, out=np.zeros(hits.shape), where=there)
    percent: Array = 100 * recalls.sum(1) / there.sum(1)
    return percent


def correlation(rows: Array, weights: Array) -> Array:
    """Return Pearson's r of two columns, 0 where one of them does not vary."""
    total = weights.sum(1)
    means = weights @ rows / total[:, None]
    squares = np.maximum(weights @ rows**2 / total[:, None] - means**2, 0)
    product = weights @ (rows[:, 0] * rows[:, 1]) / total - means[:, 0] * means[:, 1]
    scale = np.sqrt(squares[:, 0] * squares[:, 1])
    varies = scale > 1e-12 * np.abs(rows).max(initial=1) ** 2
    r: Array = np.divide(product, scale, out=np.zeros(len(weights)), where=varies)
    return r
