"""Reconstruction attack: how much of m* itself can be recovered from the model while m* is missing.

    offered   the model's own reconstruction: G_m(X^{∖m}, P^m), or the recomposition of B_m(Z) + P^m. The attacker
              fits one scale factor (0: guess the mean of m*), so all information is the model's.
    learnt    ridge from the activations to the part of m* that the retained modalities do not predict, with m* fed and
              not fed. The rest belongs to the retained modalities; any network that is given them would pass it on.

R² = 1 − Σ‖x̂ − x‖² / Σ‖x − mean‖² on columns standardised as in the fit rows: 0 without information.
"""

import numpy as np
import torch

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.bootstrap import r_squared
from mbd.attacks.context import AttackContext
from mbd.attacks.extraction import Extraction
from mbd.attacks.kernels import OWN, fit_kernels
from mbd.attacks.target_model import TargetModel
from mbd.tensors import Array

NAME = "reconstruction"


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return R² of m* as offered, and of m*'s own part as learnt from activations, fed and not fed."""
    name = attack_context.modality
    offered = _offered(target_model, attack_context)
    evidence = [_explained("r2_offered", offered, attack_context.target[attack_context.score], attack_context)]
    fed, hidden = (target_model.extract(attack_context.rows, name, fed=fed) for fed in (True, False))
    not_fed = _learnt(hidden, attack_context)
    learnt = {"fed": not_fed if fed is hidden else _learnt(fed, attack_context), "not_fed": not_fed}
    for how, guess in learnt.items():
        evidence.append(_explained(f"r2_learnt_{how}", guess, attack_context.own[attack_context.score], attack_context))
    return evidence


def _explained(measure: str, guess: Array, truth: Array, attack_context: AttackContext) -> AttackEvidence:
    rows = np.column_stack([((guess - truth) ** 2).sum(1), (truth**2).sum(1)])
    return AttackEvidence(NAME, measure, 0.0, rows, r_squared, attack_context.groups, limits=(-np.inf, 1))


def _offered(target_model: TargetModel, attack_context: AttackContext) -> Array:
    """Return m* of each scored row by the reconstruction that does best on the fit rows, scaled to fit there."""
    best, guess = 0.0, np.zeros((len(attack_context.score), attack_context.target.shape[1]))
    target = attack_context.target[attack_context.fit]
    for offer in target_model.reconstruct(attack_context.rows, attack_context.modality).values():
        predicted = attack_context.standardise(offer)
        predicted = predicted - predicted[attack_context.fit].mean(0)
        fitted = predicted[attack_context.fit]
        scale = _scale(fitted, target)
        gain = float((target**2).sum() - ((scale * fitted - target) ** 2).sum())
        if gain > best:
            best, guess = gain, scale * predicted[attack_context.score]
    return guess


def _learnt(seen: Extraction, attack_context: AttackContext) -> Array:
    """Return the prediction of ridge from activations for m*'s own part of the scored rows, scaled to fit."""
    truth = torch.from_numpy(attack_context.own[attack_context.by_fold]).float()
    kernels = fit_kernels(seen.activations, OWN, torch.ones(len(truth)), attack_context)
    if kernels is None:
        return np.zeros((len(attack_context.score), truth.shape[1]))
    return _scale(kernels.out_of_fold.numpy(), truth.numpy()) * kernels.scored.numpy().astype(np.float64)


def _scale(predicted: Array, truth: Array) -> float:
    """Return the factor, at least 0, that brings a prediction closest to the truth."""
    return max(float((predicted * truth).sum()) / max(float((predicted**2).sum()), 1e-12), 0.0)


ATTACK = Attack(attack, "how much of the deleted modality can be reconstructed from the model")
