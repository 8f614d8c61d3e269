"""Method `surgery`: the structural cut, and the paper's Algorithm 1 on what it leaves.

    cut          removes all that belongs to m* or reads it (unless `cut` is off)
    saliency     s_q of m* in what is left, by the model before, on the calibration rows
    importance   L_q of what is salient
    selection    at most r·|W| candidates
    edit         w_q ← 0, or w_q + N(0, σ²) with the paper's σ = Δ √(2 ln(1.25/δ)) / ε and Δ = 2 ‖w_chosen‖
    rounding     as few bits of each number as the loss allows (:mod:`mbd.deletion.rounding`; not without the cut)

With a backbone whose generators share nothing, the cut removes every parameter with s_q > 0, and nothing is left to
edit. What is left of a module serves the retained modalities too, and the most salient weights are often those that
matter most: there the share r is halved until zeroing the candidates raises the loss without m* on the calibration
rows by no more than 0.1 %; if no share is small enough, nothing is edited, and the record says so.

Nothing here proves an (ε, δ): shared weights were trained with m*, and no bound is known on how far that moved them.
The guarantee is therefore `empirical`, whatever the edit.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from mbd.deletion.cut import Cut, cut_model, refuse_unread, requested
from mbd.deletion.importance import importance
from mbd.deletion.methods import DeletionOutcome, ModelBefore, Phases
from mbd.deletion.rounding import LARGEST_GROWTH, MeanLoss, round_released
from mbd.deletion.saliency import saliency
from mbd.deletion.selection import Selection, nothing_salient, select
from mbd.formats.deletion import DeletionTarget
from mbd.formats.guarantee import Guarantee
from mbd.formats.predicate import STABLE_ROWS
from mbd.params import Params
from mbd.params.deletion import DeletionSettings, SurgerySettings
from mbd.privacy.gaussian import analytic_sigma, classical_sigma
from mbd.privacy.noise import NoiseKey, one_time_key
from mbd.registry import BACKBONES, PluginError
from mbd.tensors import Array
from mbd.training.reproducibility import reproducible

AS_PRINTED = "as printed in the paper; the gate will refuse it"
NOT_CUT = "without the structural cut; the gate will refuse it"
CUT = "with the structural cut"
_HALVINGS = 8


def delete(
    request: DeletionTarget, before: ModelBefore, params: Params, *, key: NoiseKey | None = None
) -> DeletionOutcome:
    """Delete `request` from a model that can be cut; `key` replaces the fresh noise key in tests."""
    settings, phases = params.deletion.surgery, Phases()
    gone, split = requested(before.record, request.modalities), before.data.split("calibration")
    calibration = BACKBONES.get(before.record.backbone).calibration
    if calibration is None:
        raise PluginError(f"Algorithm 1 cannot measure a {before.record.backbone} model", key="deletion.method")
    with reproducible(params.training.threads):
        with phases.phase("cut"):
            left = cut_model(before.record, before.tensors, gone, split) if settings.cut else _not_cut(before, gone)
        with phases.phase("saliency"):
            saliencies = saliency(calibration(before.record, before.tensors, split), gone, left.tensors)
            salient = left.follow(saliencies.values)
        with phases.phase("selection"):
            names = [name for name, values in salient.items() if values.any()]
            after = calibration(left.record, left.tensors, split)
            proxies = importance(after, () if settings.cut else gone, settings, names) if names else {}
            loss_of = MeanLoss.of(left.record, split)
            selection = _select(salient, proxies, left.tensors, after.network, loss_of, settings)
        with phases.phase("edit"):
            indices = _under_all_names(selection.indices, after.network)
            edited, edit_facts = edit(left.tensors, indices, params.deletion, key)
        with phases.phase("rounding"):
            released, rounding = round_released(edited, loss_of, settings) if settings.cut else (edited, None)
    guarantee = Guarantee(kind="empirical", assumptions=(*left.warnings, *assumptions(gone, settings)))
    return DeletionOutcome(
        record=left.record.model_copy(update={"guarantee": guarantee, "sha256": ""}),
        tensors=released,
        indices=_joined(left.zeroed, indices),
        facts={
            "variant": variant(settings),
            "calibration": {
                "requested": before.data.manifest.calibration.requested,
                "rows": len(split),
                "rows_with_modality": dict(saliencies.rows),
                "at_least_2000": min(saliencies.rows.values()) >= STABLE_ROWS,
            },
            "cut": left.described(before.record) if settings.cut else None,
            "selection": selection_facts(selection, left.tensors, salient, settings),
            "edit": edit_facts,
            "without_saliency": list(saliencies.unknown),
        },
        phases=phases,
        rounding=rounding,
    )


def _not_cut(before: ModelBefore, gone: tuple[str, ...]) -> Cut:
    """Return the model as it is: the modality stays in it, and is only refused as input (studies only)."""
    refuse_unread(before.record, gone)
    record = before.record.model_copy(update={"revoked": (*before.record.revoked, *gone)})
    return Cut(record, dict(before.tensors), (), {}, dict)


def _under_all_names(indices: Mapping[str, Array], network: nn.Module) -> dict[str, Array]:
    """Return positions under every name of their weight in the state: a tied weight has several."""
    names: dict[int, list[str]] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), []).append(name)
    return {name: own for first, own in indices.items() for name in names[id(network.get_parameter(first))]}


def _select(
    salient: Mapping[str, Array],
    proxies: Mapping[str, Array],
    tensors: Mapping[str, Array],
    network: nn.Module,
    loss_of: MeanLoss,
    settings: SurgerySettings,
) -> Selection:
    """Return what is edited; after a cut no more than the loss allows."""
    if not settings.cut:
        return select(salient, proxies, settings)
    if nothing := nothing_salient(salient, settings):
        return nothing
    size, loss = sum(values.size for values in salient.values()), loss_of(tensors)
    for halving in range(_HALVINGS):
        share = settings.budget / 2**halving
        if share * size < 1:
            break
        selection = select(salient, proxies, settings.model_copy(update={"budget": share}))
        where = _under_all_names(selection.indices, network)
        zeros = {name: np.zeros(len(positions)) for name, positions in where.items()}
        if loss_of(_replaced(tensors, where, zeros)) <= (1 + LARGEST_GROWTH) * loss:
            return selection
    return Selection({}, size, sum(int((v > 0).sum()) for v in salient.values()), 0, 0, None, None)


def _joined(one: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, Array]:
    """Return the positions in either."""
    empty = np.zeros(0, np.int64)
    return {name: np.union1d(one.get(name, empty), other.get(name, empty)) for name in sorted({*one, *other})}


def variant(settings: SurgerySettings) -> str:
    """Return a description of the algorithm."""
    if settings.cut:
        return CUT
    return AS_PRINTED if settings.order == "importance" else NOT_CUT


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
