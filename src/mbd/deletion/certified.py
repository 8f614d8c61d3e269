"""Method `certified`: (ε, δ) bounds what remains of the old weights, and fine-tuning restores utility.

    W₁ = cut(W)                           no tensor reads m* any more
    W₂ = W₁ · min(1, C / ‖W₁‖)            all tensors that have seen a revoked modality, as one vector
    W₃ = W₂ + N(0, σ²)                    σ for (ε, δ) and Δ = 2C by the analytic Gaussian mechanism
    W₄ = W₃ / σ · (spread of a fresh start)
    W₅ = fine-tuned on the retained modalities; the scaling of inputs and labels is fitted to them again

The guarantee is complete with W₃: the later steps do not read m* and cannot weaken it. It holds for any two weight
vectors, so it also removes what the old weights learned from the *retained* modalities: for x with ‖x‖ ≤ C

    I(x; x + N(0, σ²)) ≤ C²/2σ² = ρ/4 nats      0.013 bits at ε = 1, 0.5 bits at ε = 8 (δ = 1e-5)

whatever C is, and any other mechanism that hides arbitrary pairs at the same ρ (noise in several steps, in blocks, on a
smaller trunk) keeps at most ρ nats. Hence W₄ gets the size of fresh weights, and all utility comes from fine-tuning.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mbd.deletion.cut import cut
from mbd.deletion.methods import DeletionOutcome, ModelBefore, Phases
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.formats.guarantee import Guarantee
from mbd.formats.model import ModelRecord
from mbd.params import Params
from mbd.params.deletion import DeletionSettings
from mbd.privacy.gaussian import (
    analytic_sigma,
    classical_sigma,
    delta_of,
    epsilon_by_gaussian,
    epsilon_by_paper,
    epsilon_by_rdp,
    zcdp,
)
from mbd.privacy.noise import NoiseKey, Sensitivity, clip, of_ball, one_time_key
from mbd.registry import BACKBONES, PluginError
from mbd.tensors import Array
from mbd.training.trained import data_record


def delete(
    request: DeletionTarget, before: ModelBefore, params: Params, *, key: NoiseKey | None = None
) -> DeletionOutcome:
    """Delete `request` from a joint model or a module; `key` replaces the fresh noise key in tests."""
    settings, phases = params.deletion, Phases()
    _refuse_not_cut(before)
    sensitivity = of_ball(settings.certified.radius)
    sigma = analytic_sigma(settings.epsilon, settings.delta, sensitivity.value)
    with phases.phase("cut"):
        record, tensors = cut(before.record, before.tensors, request.modalities)
        exposed = {
            name: tensors[name] for name, entry in record.tensors.items() if set(entry.sees) & set(record.revoked)
        }
        _refuse_non_finite(exposed)
    escrow = Path(settings.certified.escrow) if settings.certified.escrow else None
    with phases.phase("noise"), one_time_key(escrow, key, settings.noise_seed) as secret:
        # independent N(0, σ²) on each coordinate (float64)
        clipped = clip(exposed, settings.certified.radius)
        noised = {name: array + sigma * secret.gaussian(name, array.shape) for name, array in clipped.items()}
        commitment = secret.commitment
    with phases.phase("fine-tuning"):
        retained = _without(before.data, record.revoked)
        backbone, asked = BACKBONES.get(record.backbone), settings.certified.finetune_epochs
        if backbone.finetune is None:
            raise PluginError(f"the backbone {record.backbone} cannot be fine-tuned", key="deletion.method")
        start = tensors | backbone.fresh_start(record, noised, sigma, params.training.seed)
        epochs = backbone.finetune_epochs if asked is None else asked
        tensors, history = backbone.finetune(record, start, retained, params, epochs=epochs)
    guarantee = _guarantee(record, sensitivity, settings)
    record = record.model_copy(update={"data": data_record(retained), "guarantee": guarantee})
    return DeletionOutcome(
        record=record,
        tensors=tensors,
        indices={name: np.arange(array.size) for name, array in tensors.items()},
        facts={
            **accounting(settings),
            "clip_radius": settings.certified.radius,
            "sensitivity": {"value": sensitivity.value, "reason": sensitivity.reason},
            "noise": {
                "commitment": commitment,
                "stream": "ChaCha20, Box-Muller in float64",
                "key": "public" if settings.noise_seed is not None else "in escrow" if escrow else "destroyed",
            },
            "noised_parameters": sum(array.size for array in exposed.values()),
            "tensors_without_noise": sorted(set(tensors) - set(exposed)),
            "finetuning": {
                "asked": epochs,
                "epochs": len(history),
                "history": history,
            },
        },
        phases=phases,
    )


def cost(settings: DeletionSettings) -> float:
    """Return ρ, the cost of one such deletion for its lineage."""
    return zcdp(analytic_sigma(settings.epsilon, settings.delta, 1.0), 1.0)


def accounting(settings: DeletionSettings) -> dict[str, Any]:
    """Return σ, ρ and ε, each by every formula for it."""
    epsilon, delta = settings.epsilon, settings.delta
    sensitivity = of_ball(settings.certified.radius).value
    sigma, classical = analytic_sigma(epsilon, delta, sensitivity), classical_sigma(epsilon, delta, sensitivity)
    rho = zcdp(sigma, sensitivity)
    return {
        "sigma": sigma,
        "sigma_by": "analytic Gaussian mechanism (dp-accounting get_sigma_gaussian)",
        "classical_sigma": classical,
        "classical_sigma_is_proven": epsilon <= 1,
        "delta_achieved": delta_of(epsilon, sigma, sensitivity),
        "delta_of_classical_sigma": delta_of(epsilon, classical, sensitivity),
        "rho": rho,
        "epsilon_by_analytic": epsilon_by_gaussian(rho, delta),
        "epsilon_by_rdp": epsilon_by_rdp(rho, delta),
        "epsilon_by_paper": epsilon_by_paper(rho, delta),
        "information_bits_at_most": rho / 4 / math.log(2),
    }


def fresh_start(record: ModelRecord, noised: Mapping[str, Array], sigma: float, seed: int) -> dict[str, Array]:
    """Scale noised tensors to the size of fresh weights: matrices spread by 1/√(3 inputs), vectors zero (float32)."""
    del record, seed
    return {
        name: (array * (0.0 if array.ndim < 2 else 1 / (sigma * math.sqrt(3 * max(array.shape[-1], 1))))).astype(
            np.float32
        )
        for name, array in noised.items()
    }


def _without(data: FeatureSet, modalities: tuple[str, ...]) -> FeatureSet:
    """Return the data as if it had no such modalities: their files are not opened."""
    kept = {m: dim for m, dim in data.manifest.modalities.items() if m not in modalities}
    return replace(data, manifest=data.manifest.model_copy(update={"modalities": kept}))


def _guarantee(record: ModelRecord, sensitivity: Sensitivity, settings: DeletionSettings) -> Guarantee:
    if settings.noise_seed is None:
        assumptions = _assumptions(record, sensitivity, settings)
        return Guarantee(kind="certified", epsilon=settings.epsilon, delta=settings.delta, assumptions=assumptions)
    return Guarantee(
        kind="empirical",
        assumptions=(
            "The noise comes from deletion.noise_seed, which is recorded: anyone can draw it again and subtract it. "
            "Nothing is proven about this model; it serves to measure the cost of such a deletion.",
        ),
    )


def _assumptions(record: ModelRecord, sensitivity: Sensitivity, settings: DeletionSettings) -> tuple[str, ...]:
    names, epsilon, delta = ", ".join(record.revoked), settings.epsilon, settings.delta
    return (
        "The guarantee compares this deletion with the same deletion from any other weights of the same architecture, "
        f"including those of a model that never saw {names}. For every set of models, the probabilities of releasing "
        f"one of them differ by at most a factor e^{epsilon:g} and an addition of {delta:g}.",
        sensitivity.reason,
        f"The vector contains every tensor whose provenance in model.json names {names}, and the provenance is "
        "correct. Mean and deviation that scale inputs and labels, and a linear map beside networks, are recomputed "
        "from the retained data.",
        "Noise is Gaussian and independent on each coordinate: the key stream of ChaCha20 under a fresh key is treated "
        "as random, and float64 arithmetic as exact.",
        "The steps after the noise (rescaling, fine-tuning, choice of the best epoch) read only the noised vector, the "
        "retained modalities and the labels, so they are post-processing.",
        f"Which rows exist, their splits and labels are not part of {names}. They remain visible, as do the "
        "architecture, the parameters of training and of this deletion, and what the retained modalities themselves "
        f"reveal about {names}. No parameter was chosen by looking at {names}.",
        "The guarantee covers the released weights and everything computed from them. The norm before clipping is not "
        "published, because no noise hides it. A digest of the old weights, if a record lists one, identifies them to "
        "those who already have them and reveals nothing to others.",
        "The key of the noise is in escrow; the guarantee holds against everyone who does not have it."
        if settings.certified.escrow
        else "The key of the noise was overwritten in memory after use and stored nowhere.",
    )


def _refuse_not_cut(before: ModelBefore) -> None:
    if built_in := [m for m in before.record.modalities if m in before.record.revoked]:
        raise UsageError(
            f"{built_in[0]} was revoked from this model but not cut out, so the model cannot be fine-tuned without it",
            key="deletion.method",
            value="certified",
            hint="delete all of these modalities from the model before that deletion",
        )


def _refuse_non_finite(tensors: dict[str, Array]) -> None:
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise DataError(
                "a weight is not a finite number, so it cannot be clipped", key=name, hint="train the model again"
            )
