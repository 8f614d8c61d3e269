"""Method `surgery` on a module of one's own: Algorithm 1 after a cut that probing found.

    saliency     s_q of m*, on the model before (:mod:`mbd.deletion.module_calibration`)
    cut          removes, or sets to zero, all that exists for m* alone (:mod:`mbd.deletion.module`)
    importance   L_q of the rest
    selection    the candidates of the rest, as in :mod:`mbd.deletion.selection`
    edit         as many of them, up to r·|W|, as the loss allows
    rounding     as for any surgery

What is left after the cut serves the retained modalities too, and the most salient weights are often those that matter
most. So the share r is halved until zeroing the candidates raises the loss without m* on the calibration rows by no
more than 0.1 %; if no share is small enough, nothing is edited, and the record says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mbd.deletion.findings import Chosen, calibration_facts
from mbd.deletion.importance import Importance, importance
from mbd.deletion.module import cut_module, refilled, refuse_other_predictions
from mbd.deletion.module_calibration import ModuleCalibration, aliases
from mbd.deletion.outcome import DeletionOutcome, ModelBefore, Phases
from mbd.deletion.rounding import LARGEST_GROWTH, MeanLoss, round_released
from mbd.deletion.saliency import saliency
from mbd.deletion.selection import Selection, nothing_salient, select
from mbd.deletion.surgery import CUT, assumptions, edit
from mbd.errors import UsageError
from mbd.features.contract import Split
from mbd.features.rows import Rows
from mbd.formats.guarantee import Guarantee
from mbd.formats.model import ModelRecord
from mbd.params import Params
from mbd.params.deletion import SurgerySettings
from mbd.privacy.noise import NoiseKey
from mbd.tensors import Array
from mbd.training.reproducibility import reproducible

_HALVINGS = 8
_ROWS = 1024


@dataclass(frozen=True)
class _Weights:
    """The weights after the cut, and what zeroing some of them costs."""

    tensors: Mapping[str, Array]
    names: Mapping[str, tuple[str, ...]]
    """all names of a weight, by its first"""
    loss_of: MeanLoss

    def everywhere(self, indices: Mapping[str, Array]) -> dict[str, Array]:
        """Return positions under every name of their weight."""
        return {name: where for first, where in indices.items() for name in self.names[first]}

    def loss(self, indices: Mapping[str, Array]) -> float:
        """Return the loss without m*, with zeros at these positions."""
        changed = dict(self.tensors)
        for name, where in self.everywhere(indices).items():
            changed[name] = np.array(changed[name])
            changed[name].reshape(-1)[where] = 0
        return self.loss_of(changed)


def delete_from_module(
    gone: tuple[str, ...], before: ModelBefore, params: Params, *, key: NoiseKey | None = None
) -> DeletionOutcome:
    """Delete modalities from a module; `key` replaces the fresh noise key in tests."""
    settings, phases = params.deletion.surgery, Phases()
    _refuse_without_cut(settings)
    split = before.data.split("calibration")
    with reproducible(params.training.threads):
        with phases.phase("saliency"):
            measured = ModuleCalibration.of(before.record, before.tensors, split)
            found = saliency(measured, gone)
        with phases.phase("cut"):
            cut = cut_module(before.record, before.tensors, gone)
            salient = cut.follow(found.values)
        with phases.phase("statistics"):
            refuse_other_predictions(before.record, before.tensors, cut, split)
            tensors = refilled(cut, split)
        with phases.phase("importance"):
            after = ModuleCalibration.of(cut.record, tensors, split)
            proxies = importance(after, (), settings.chi_max)
        with phases.phase("selection"):
            loss_of = MeanLoss(cut.record, _usable(split, cut.record))
            weights = _Weights(tensors, aliases(after.network), loss_of)
            selection, share = _selection(salient, proxies, weights, settings)
        with phases.phase("edit"):
            indices = weights.everywhere(selection.indices)
            edited, edit_facts = edit(tensors, indices, params.deletion, key)
        with phases.phase("rounding"):
            released, rounding = round_released(cut.record, edited, before.data, settings)
    chosen = Chosen({name: tensors[name] for name in salient}, salient, proxies, selection)
    guarantee = Guarantee(kind="empirical", assumptions=(*cut.warnings, *assumptions(gone, settings)))
    return DeletionOutcome(
        record=cut.record.model_copy(update={"guarantee": guarantee}),
        tensors=released,
        indices=_joined(cut.zeroed, indices),
        facts={
            "variant": CUT,
            "calibration": calibration_facts(before.data.manifest, split, found),
            "cut": cut.facts(before.record),
            "selection": {**chosen.facts(settings), "share_that_the_loss_allows": share},
            "importance": chosen.proxy_facts(settings),
            "edit": edit_facts,
            "without_closed_form": sorted({*found.by_vmap, *proxies.by_vmap}),
            "without_saliency": list(found.unknown),
        },
        phases=phases,
        rounding=rounding,
    )


def _refuse_without_cut(settings: SurgerySettings) -> None:
    if not settings.cut:
        raise UsageError(
            "without the cut a module still takes the modality, and the gate would refuse it",
            key="deletion.surgery.cut",
            value=False,
            hint="leave it on",
        )


def _selection(
    salient: Mapping[str, Array], proxies: Importance, weights: _Weights, settings: SurgerySettings
) -> tuple[Selection, float]:
    """Return what is edited, and which share of all weights the loss allows."""
    used = proxies.swiftprune if settings.importance == "swiftprune" else proxies.gauss_newton
    size = sum(values.size for values in salient.values())
    if nothing := nothing_salient(salient, settings):
        return nothing, 0.0
    loss = weights.loss({})
    for halving in range(_HALVINGS):
        share = settings.budget / 2**halving
        if share * size < 1:
            break
        selection = select(salient, used, settings.model_copy(update={"budget": share}))
        if weights.loss(selection.indices) <= (1 + LARGEST_GROWTH) * loss:
            return selection, share
    return Selection({}, size, sum(int((v > 0).sum()) for v in salient.values()), {}, 0, None, None), 0.0


def _usable(split: Split, record: ModelRecord) -> Rows:
    """Return the first calibration rows that the model can answer for."""
    rows = split.take(slice(_ROWS))
    return rows.take(np.any([rows.available[m] for m in record.inputs], axis=0))


def _joined(one: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, Array]:
    """Return the positions in either."""
    empty = np.zeros(0, np.int64)
    return {name: np.union1d(one.get(name, empty), other.get(name, empty)) for name in sorted({*one, *other})}
