"""Method `surgery`: the paper's Algorithm 1, and the structural cut that makes it effective.

    saliency     s_q of the reconstruction of m*, on the calibration rows
    cut          removes all that belongs to m* or reads it (unless `cut` is off)
    importance   L_q of the rest
    selection    at most r·|W| candidates of the rest
    edit         w_q ← 0, or w_q + N(0, σ²) with the paper's σ = Δ √(2 ln(1.25/δ)) / ε and Δ = 2 ‖w_chosen‖
    rounding     as few bits of each number as the loss allows (:mod:`mbd.deletion.rounding`; not without the cut)

With a backbone whose generators share nothing, the cut removes every parameter with s_q > 0, and nothing is left to
edit. Nothing here proves an (ε, δ): shared weights were trained with m*, and no bound is known on how far that moved
them. The guarantee is therefore `empirical`, whatever the edit.

A module of one's own is cut by probing; see :mod:`mbd.deletion.module_surgery`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mbd.deletion.calibration import Calibration
from mbd.deletion.cut import cut, cut_arrays, requested
from mbd.deletion.findings import Chosen, calibration_facts, cut_facts
from mbd.deletion.importance import importance
from mbd.deletion.outcome import DeletionOutcome, ModelBefore, Phases
from mbd.deletion.quantities import third_derivative
from mbd.deletion.rounding import round_released
from mbd.deletion.saliency import saliency
from mbd.deletion.selection import nothing_salient, select
from mbd.errors import UsageError
from mbd.formats.deletion import DeletionTarget
from mbd.formats.guarantee import Guarantee
from mbd.formats.model import ModelRecord
from mbd.model.joint import from_tensors
from mbd.params import Params
from mbd.params.deletion import DeletionSettings, SurgerySettings
from mbd.privacy.gaussian import analytic_sigma, classical_sigma
from mbd.privacy.noise import NoiseKey, one_time_key
from mbd.registry import BACKBONES
from mbd.tensors import Array
from mbd.training.distributed import join_group
from mbd.training.reproducibility import choose_device, reproducible

AS_PRINTED = "as printed in the paper; the gate will refuse it"
NOT_CUT = "without the structural cut; the gate will refuse it"
CUT = "with the structural cut"


def delete(
    request: DeletionTarget, model_before: ModelBefore, params: Params, *, key: NoiseKey | None = None
) -> DeletionOutcome:
    """Delete `request` from a joint model or a module; `key` replaces the fresh noise key in tests."""
    settings, phases = params.deletion.surgery, Phases()
    gone = requested(model_before.record, request.modalities)
    if BACKBONES.is_path(model_before.record.backbone):
        from mbd.deletion.module_surgery import delete_from_module  # noqa: PLC0415 -- it uses what is below

        return delete_from_module(gone, model_before, params, key=key)
    group = join_group()
    device = choose_device(params.training.device, group.local_rank)

    def calibration(record: ModelRecord, tensors: Mapping[str, Array]) -> Calibration:
        network = from_tensors(record, tensors).network.to(device)
        return Calibration(model_before.data.split("calibration"), network, record.task, group)

    with reproducible(params.training.threads):
        with phases.phase("load"):
            before = calibration(model_before.record, model_before.tensors)
        with phases.phase("saliency"):
            found = saliency(before, gone)
        with phases.phase("cut"):
            record, tensors = _released(model_before, gone, settings)
            after = calibration(record, tensors) if settings.cut else before
            salient = cut_arrays(model_before.record, found.values, gone) if settings.cut else found.values
            nothing = nothing_salient(salient, settings) if settings.cut else None
        with phases.phase("importance"):
            proxies = importance(after, gone, settings.chi_max)
        with phases.phase("selection"):
            used = proxies.swiftprune if settings.importance == "swiftprune" else proxies.gauss_newton
            selection = nothing or select(salient, used, settings)
            selected = _selected(model_before, before, found.values, gone, settings) if settings.cut else {}
        with phases.phase("edit"):
            edited, edit_facts = edit(tensors, selection.indices, params.deletion, key)
        with phases.phase("rounding"):
            released, rounding = round_released(record, edited, model_before.data, settings)
        with phases.phase("quantities"):
            bound = third_derivative(after, gone, params.training.seed)
            chosen = Chosen(tensors, salient, proxies, selection)
            facts = {
                "variant": variant(settings),
                "calibration": calibration_facts(model_before.data.manifest, before.split, found),
                "cut": cut_facts(model_before.record, record, found, salient) | selected if settings.cut else None,
                "selection": chosen.facts(settings),
                "importance": chosen.proxy_facts(settings),
                "paper": chosen.paper_facts(settings, bound),
                "edit": edit_facts,
                "without_closed_form": sorted({*found.by_vmap, *proxies.by_vmap}),
            }
    return DeletionOutcome(record, released, selection.indices, facts, phases, rounding)


def _selected(
    model_before: ModelBefore,
    calibration: Calibration,
    salient: Mapping[str, Array],
    gone: tuple[str, ...],
    settings: SurgerySettings,
) -> dict[str, int]:
    """Return how many parameters Algorithm 1 selects before the cut, and how many of these the cut removes."""
    proxies = importance(calibration, gone, settings.chi_max)
    used = proxies.swiftprune if settings.importance == "swiftprune" else proxies.gauss_newton
    masks = {name: np.zeros(values.shape, bool) for name, values in salient.items()}
    try:
        indices = select(salient, used, settings).indices
    except UsageError:  # no parameter is a candidate
        indices = {}
    for name, positions in indices.items():
        masks[name].reshape(-1)[positions] = True
    count, left = (
        sum(int(mask.sum()) for mask in part.values()) for part in (masks, cut_arrays(model_before.record, masks, gone))
    )
    return {"selected": count, "selected_removed": count - left}


def variant(settings: SurgerySettings) -> str:
    """Return a description of the algorithm."""
    if settings.cut:
        return CUT
    return AS_PRINTED if settings.order == "importance" else NOT_CUT


def _released(
    model_before: ModelBefore, gone: tuple[str, ...], settings: SurgerySettings
) -> tuple[ModelRecord, dict[str, Array]]:
    """Return the model to edit; without the cut, the modality stays in the model and is only refused as input."""
    if settings.cut:
        record, tensors = cut(model_before.record, model_before.tensors, gone)
    else:
        revoked = (*model_before.record.revoked, *gone)
        record, tensors = model_before.record.model_copy(update={"revoked": revoked}), dict(model_before.tensors)
    guarantee = Guarantee(kind="empirical", assumptions=assumptions(gone, settings))
    return record.model_copy(update={"guarantee": guarantee, "sha256": ""}), tensors


def edit(
    tensors: Mapping[str, Array], indices: Mapping[str, Array], settings: DeletionSettings, key: NoiseKey | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the tensors with the chosen positions zeroed or noised, and the record of the edit."""
    chosen = {name: np.asarray(tensors[name]).ravel()[positions] for name, positions in indices.items()}
    if settings.surgery.edit == "zero" or not indices:
        return _replaced(tensors, indices, {name: np.zeros_like(old) for name, old in chosen.items()}), {
            "kind": "zero",
            "note": "zeroing is not random, so it has no ε",
        }
    norm = float(np.sqrt(sum(float(old.astype(np.float64) @ old.astype(np.float64)) for old in chosen.values())))
    sensitivity = 2 * norm
    sigma = classical_sigma(settings.epsilon, settings.delta, sensitivity)
    with one_time_key(key=key, public_seed=settings.noise_seed) as secret:
        noised = {name: old + sigma * secret.gaussian(name, old.shape) for name, old in chosen.items()}
        commitment = secret.commitment
    return _replaced(tensors, indices, noised), {
        "kind": "noise",
        "sigma": sigma,
        "sigma_by": "the paper's formula",
        "analytic_sigma": analytic_sigma(settings.epsilon, settings.delta, sensitivity),
        "epsilon_asked_for": settings.epsilon,
        "delta_asked_for": settings.delta,
        "sensitivity": {"value": sensitivity, "reason": _SENSITIVITY},
        "noise": {
            "commitment": commitment,
            "stream": "ChaCha20, Box-Muller in float64",
            "key": "destroyed" if settings.noise_seed is None else "public",
        },
    }


def _replaced(
    tensors: Mapping[str, Array], indices: Mapping[str, Array], values: Mapping[str, Array]
) -> dict[str, Array]:
    edited = dict(tensors)
    for name, positions in indices.items():
        flat = np.array(tensors[name]).ravel()
        flat[positions] = values[name]
        edited[name] = flat.reshape(tensors[name].shape)
    return edited


def assumptions(gone: tuple[str, ...], settings: SurgerySettings) -> tuple[str, ...]:
    """Return what the guarantee rests on."""
    names = ", ".join(gone)
    structure = (
        f"Every tensor of {names} alone, and every input column that reads it, was removed: the model has no input for "
        f"{names}."
        if settings.cut
        else f"Nothing was removed: the model still has parameters and inputs of {names}; it only refuses the input."
    )
    return (
        structure,
        f"The remaining weights were trained together with {names}. How far that moved them is not bounded, so "
        "neither zeroing nor noise on chosen coordinates makes the model (ε, δ)-indistinguishable from one that never "
        f"saw {names}, and no ε is claimed.",
        f"Whether {names} can be recovered from the model is measured by the attacks, each compared with a model "
        "trained without it.",
        "The calibration rows, from which the edited coordinates were chosen, are neither train nor test rows.",
    )


_SENSITIVITY = (
    "Δ = 2‖w‖ of the chosen weights: if the weights of a model that never saw the modality have at most the same norm "
    "at these positions, the two differ by at most Δ there. This is assumed, not proven; the positions and the norm "
    "depend on the data; and at all other positions the two models may differ without limit."
)
