"""Attack `membership`: predicts whether m* of a row was in the training data of the model.

Members are train rows, non-members the attacked rows. That a row was trained on shows in a model through its other
modalities and its label as well, and the reference has those too; so every score here is about m* alone. With ridge
maps fitted on the fit rows, without the model, as the expectation,

    own_i       the part of m* that the retained modalities do not predict (whitened)
    surprise_i  the part of the label that all modalities, or m* alone, do not predict

each signal measures whether the model has information about the unpredictable part:

    reconstruction   cos(x̂_i, own_i)                               x̂: the model's reconstruction of m*, not fed
    loss             ⟨f(o_i, x_i) − mean_d f(o_i, x_d), surprise_i⟩   x_d: m* of other rows, swapped in
    output           the same with m* alone as input

A model that m* cannot reach, or whose outputs are constant, scores 0 for every row: AUC ½, whatever else it memorised.
If the model has no x̂, the attacker fits a ridge map from its activations.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from mbd.attacks.attack import Attack, AttackEvidence, Statistic
from mbd.attacks.bootstrap import auc, tpr_at_fpr
from mbd.attacks.context import AttackContext, unit_rows
from mbd.attacks.target_model import TargetModel
from mbd.evaluation.ridge import DEVIATION_FLOOR, fit_gram, fit_ridge
from mbd.features.pooling import as_vectors
from mbd.features.rows import Rows
from mbd.tensors import Array

NAME = "membership"
_DONORS = 4
_MOST_ROWS = 640
"""rows that a map from all activations is fitted on at most"""
_SHRINK = 0.1
_TINY = 1e-9
_FAR_ABOVE_ROUNDING = 1e-4
"""λ as a share of the sum of eigenvalues, from which on single precision (rounding: 1e-7) finds the same map"""


@dataclass(frozen=True, eq=False)
class Population:
    """Members and non-members, and what is known of them without the model; `fit` is a mask."""

    train: Rows
    """the members"""
    rows: Rows
    """members, then the attacked rows"""
    member: Array
    fit: Array
    target: Array
    """m*, standardised"""
    own: Array
    """whitened, of length one (n × d)"""
    whiten: Array
    surprise: Array
    """of the label, given everything (n × outputs)"""
    surprise_alone: Array
    """of the label, given m* alone"""
    swapped: tuple[Array, ...]
    """for each row the position of another fit row, whose m* it is given; several times"""


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Predict membership by m* alone."""
    people = population(attack_context)
    signals = _signals(target_model, attack_context, people)
    together = _combined([signal for family in signals.values() for signal in family], people)
    score, groups = ~people.fit, people.rows.groups[~people.fit]

    def evidence(measure: str, values: Array, chance: float = 0.5, statistic: Statistic = auc) -> AttackEvidence:
        rows = np.column_stack([people.member[score], values[score]])
        return AttackEvidence(NAME, measure, chance, rows, statistic, groups, limits=(0, 1), class_weight=1)

    return [
        *(evidence(f"auc_{name}", _combined(family, people)) for name, family in signals.items()),
        evidence("auc_all", together),
        evidence("tpr_all", together, 0.01, tpr_at_fpr),
    ]


@lru_cache(maxsize=1)
def population(attack_context: AttackContext) -> Population:
    """Return members and non-members of a context; all target models share them."""
    draw, m = attack_context.draw(NAME), attack_context.modality
    train, outside = attack_context.train_rows(draw), attack_context.rows
    rows = Rows.joined([train, outside])
    outside_fit = np.isin(np.arange(len(outside)), attack_context.fit)
    fit = np.concatenate([_half(train.groups, draw), outside_fit])
    vectors = as_vectors(rows).features
    target = attack_context.standardise(vectors[m])
    retained = np.hstack([vectors[k] for k in attack_context.retained])
    own = target - _predicted(retained, target, fit)
    covariance = np.cov(own[fit].T).reshape(target.shape[1], -1)
    spread = float(np.trace(covariance)) / len(covariance) + _TINY
    covariance = (1 - _SHRINK) * covariance + _SHRINK * spread * np.eye(len(covariance))
    whiten = np.linalg.cholesky(np.linalg.inv(covariance))
    labels = _label_columns(rows.labels, len(attack_context.data.manifest.classes))
    everything = np.hstack([retained, vectors[m]])
    donors = np.flatnonzero(fit)
    return Population(
        train=train,
        rows=rows,
        member=np.arange(len(rows)) < len(train),
        fit=fit,
        target=target,
        own=unit_rows(own @ whiten, _TINY),
        whiten=whiten,
        surprise=labels - _predicted(everything, labels, fit),
        surprise_alone=labels - _predicted(target, labels, fit),
        swapped=tuple(draw.choice(donors, len(rows)) for _ in range(_DONORS)),
    )


def _signals(target_model: TargetModel, attack_context: AttackContext, people: Population) -> dict[str, list[Array]]:
    """Return the signals of each row by family; higher for members."""
    offered = [matrix - matrix[people.fit].mean(0) for matrix in _reconstructions(target_model, attack_context, people)]
    loss, output = _effects(target_model, attack_context, people)
    return {
        "reconstruction": [(unit_rows(matrix @ people.whiten, _TINY) * people.own).sum(1) for matrix in offered]
        or [np.zeros(len(people.rows))],
        "loss": [(loss * people.surprise).sum(1)],
        "output_alone": [(output * people.surprise_alone).sum(1)],
    }


def _combined(signals: list[Array], people: Population) -> Array:
    """Return the weighted sum of signals, weighted by how well each separates members among the fit rows."""
    matrix = np.column_stack(signals)
    known, member = matrix[people.fit], people.member[people.fit]
    weights = np.maximum(known[member].mean(0) - known[~member].mean(0), 0) / np.maximum(known.var(0), _TINY)
    combined: Array = matrix @ (weights if weights.any() else 1 / np.maximum(known.std(0), _TINY))
    return combined


def _reconstructions(target_model: TargetModel, attack_context: AttackContext, people: Population) -> list[Array]:
    """Return x̂ of each row, standardised: the model's own, or else a ridge map from its activations."""
    offered = target_model.reconstruct(people.rows, attack_context.modality)
    if offered:
        return [attack_context.standardise(matrix) for matrix in offered.values()]
    inside = target_model.activations(people.train, attack_context.modality, fed=False)
    outside = target_model.extract(attack_context.rows, attack_context.modality, fed=False).activations
    if not inside:
        return []
    known = np.sort(attack_context.draw(NAME, "activations").permutation(np.flatnonzero(people.fit))[:_MOST_ROWS])
    members, others = known[people.member[known]], known[~people.member[known]] - len(people.train)
    fitted = {n: torch.from_numpy(np.concatenate([x[members], outside[n][others]])).float() for n, x in inside.items()}
    means = {name: x.mean(0) for name, x in fitted.items()}
    deviations = {n: (x.sub_(means[n]).square().mean(0)).sqrt_().clamp_(DEVIATION_FLOOR) for n, x in fitted.items()}
    x = torch.cat([x.div_(deviations[name]) for name, x in fitted.items()], dim=1).numpy()
    weights, _ = fit_gram(_decomposed(x @ x.T), people.target[known] - people.target[known].mean(0))
    solved = torch.from_numpy(weights)
    maps = {name: x.T @ solved / deviations[name][:, None] for name, x in fitted.items()}
    offset = sum(means[name] @ weight for name, weight in maps.items())
    both = [sum(torch.from_numpy(seen[n]).float() @ w for n, w in maps.items()) - offset for seen in (inside, outside)]
    return [np.concatenate(both).astype(np.float64)]


def _effects(target_model: TargetModel, attack_context: AttackContext, people: Population) -> tuple[Array, Array]:
    """Return by how much a row's own m* moves the output (n × outputs), with everything given and with m* alone."""
    m, rows = attack_context.modality, people.rows
    if not target_model.entries(rows, m):
        nothing = np.zeros_like(people.surprise)
        return nothing, nothing
    complete, alone = (target_model.answers(rows, m, alone=alone) for alone in (False, True))
    others = [target_model.answers(rows.swapped(m, index), m, alone=False) for index in people.swapped]
    # Given m* alone, a row that has the m* of another is that other row.
    return complete - np.mean(others, axis=0), alone - np.mean([alone[index] for index in people.swapped], axis=0)


def _predicted(inputs: Array, targets: Array, fit: Array) -> Array:
    ridge = fit_ridge(inputs[fit], targets[fit], _decomposed)
    if ridge.strength < _FAR_ABOVE_ROUNDING * inputs[fit].size:  # the sum of all eigenvalues
        ridge = fit_ridge(inputs[fit], targets[fit])
    return ridge.predict(inputs)


def _decomposed(gram: Array) -> tuple[Array, Array]:
    """Return eigenvalues and -vectors in single precision, in half the time."""
    values, vectors = torch.linalg.eigh(torch.from_numpy(gram).float())
    return values.numpy(), vectors.numpy()


def _label_columns(labels: Array, classes: int) -> Array:
    columns: Array = np.eye(classes)[labels] if classes else np.asarray(labels, np.float64)[:, None]
    return columns


def _half(groups: Array, draw: np.random.Generator) -> Array:
    """Return a mask of half of the groups; of half of the rows where there are too few groups."""
    names, index = np.unique(groups, return_inverse=True)
    if len(names) < 4:
        names, index = np.arange(len(groups)), np.arange(len(groups))
    half: Array = (draw.permutation(len(names)) % 2 == 0)[index]
    return half


ATTACK = Attack(attack, "whether the model shows which recordings of the deleted modality it was trained on")
