"""Reconstruction adversary: how much of m* itself can be had from what the model offers while m* is missing.

    offered   m* as the model makes it by itself: G_m(X^{∖m}, P^m), or what the recomposition makes of B_m(Z) + P^m. The
              adversary fits one number, how far to trust it (0: guess the mean of m*), so all knowledge is the model's.
    learnt    ridge from the activations to what m* holds beyond the retained modalities, m* fed and not fed. What the
              retained modalities tell anyway belongs to them; any network that is given them would pass it on.

R² = 1 − Σ‖x̂ − x‖² / Σ‖x − mean‖² on columns standardised as in the fit rows: 0 for who knows nothing. L_re of the paper
is the mean of ‖x̂ − x‖²/d on the same scale; a model that generates no m* can only be taken to say the mean.
"""

import numpy as np
import torch

from mbd.attacks.attack import Evidence
from mbd.attacks.bootstrap import mean, r_squared
from mbd.attacks.extraction import Extraction
from mbd.attacks.kernels import fit_kernels
from mbd.attacks.setting import Setting
from mbd.attacks.suspect import Suspect
from mbd.tensors import Array

NAME = "reconstruction"


def attack(suspect: Suspect, setting: Setting) -> list[Evidence]:
    """Return R² of m* as offered, and of what m* holds of its own as learnt from activations, fed and not fed."""
    name = setting.modality
    offered = _offered(suspect, setting)
    evidence = [_explained(f"R² of {name} as the model offers it", offered, setting.target[setting.score], setting)]
    fed, hidden = (suspect.extract(setting.rows, name, fed=fed) for fed in (True, False))
    learnt = {"not fed": _learnt(hidden, setting)}
    learnt["fed"] = learnt["not fed"] if fed is hidden else _learnt(fed, setting)
    for how in ("fed", "not fed"):
        measure = f"R² of {name}'s own part from activations, {name} {how}"
        evidence.append(_explained(measure, learnt[how], setting.own[setting.score], setting))
    return evidence


def losses(suspect: Suspect, setting: Setting) -> Evidence:
    """Return L_re of m* of each scored row, by the model's generator as it is (the mean of m* where it has none).

    The paper's ΔL_re is the difference of two suspects' means. This is no leakage measure: more is less leakage.
    """
    generated = suspect.reconstruct(setting.rows, setting.modality).get("generator")
    target = setting.target[setting.score]
    guess = np.zeros_like(target) if generated is None else setting.standardise(generated)[setting.score]
    rows = ((guess - target) ** 2).mean(1, keepdims=True)
    return Evidence(NAME, f"reconstruction loss of {setting.modality}", 1.0, rows, mean, setting.groups)


def _explained(measure: str, guess: Array, truth: Array, setting: Setting) -> Evidence:
    rows = np.column_stack([((guess - truth) ** 2).sum(1), (truth**2).sum(1)])
    return Evidence(NAME, measure, 0.0, rows, r_squared, setting.groups)


def _offered(suspect: Suspect, setting: Setting) -> Array:
    """Return m* of each scored row by the offer that does best on the fit rows, trusted as far as it deserves there."""
    best, guess = 0.0, np.zeros((len(setting.score), setting.target.shape[1]))
    target = setting.target[setting.fit]
    for offer in suspect.reconstruct(setting.rows, setting.modality).values():
        said = setting.standardise(offer)
        said = said - said[setting.fit].mean(0)
        fitted = said[setting.fit]
        trust = _trust(fitted, target)
        gain = float((target**2).sum() - ((trust * fitted - target) ** 2).sum())
        if gain > best:
            best, guess = gain, trust * said[setting.score]
    return guess


def _learnt(seen: Extraction, setting: Setting) -> Array:
    """Return what ridge tells of m*'s own part of the scored rows, from activations, trusted as far as it deserves."""
    truth = torch.from_numpy(setting.own[setting.fit]).float()
    found = fit_kernels(seen.activations, truth, torch.ones(len(truth)), setting)
    if found is None:
        return np.zeros((len(setting.score), truth.shape[1]))
    return _trust(found.out_of_fold.numpy(), truth.numpy()) * found.scored.numpy().astype(np.float64)


def _trust(said: Array, truth: Array) -> float:
    """Return the factor, at least 0, at which what was said comes closest to the truth."""
    return max(float((said * truth).sum()) / max(float((said**2).sum()), 1e-12), 0.0)
