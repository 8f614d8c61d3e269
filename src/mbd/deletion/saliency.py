"""Modality saliency: how much each parameter contributes to reconstructing the deleted modality m*.

    s_q = 1/|B| Σ_{i∈B} |∂L_re^(m*)(i)/∂w_q|          L_re^(m)(i) = ‖X̂_i^m − X_i^m‖²

B are the calibration rows that have m*. For several modalities, their saliencies are added. A module of one's own that
reconstructs nothing has ‖f(x_i) − f(x_i without m*)‖² in place of L_re.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mbd.deletion.gradients import Losses, Sums
from mbd.deletion.module_calibration import Measured
from mbd.errors import DataError
from mbd.tensors import Array


@dataclass(frozen=True)
class Saliency:
    """The saliency of every parameter."""

    values: Mapping[str, Array]
    """s, by parameter"""
    rows: Mapping[str, int]
    """number of calibration rows, by modality"""
    by_vmap: tuple[str, ...]
    """parameters whose gradients have no closed form here and were computed by vmap"""
    unknown: tuple[str, ...] = ()
    """parameters whose gradients cannot be computed sample by sample; 0 is put down for them"""


def saliency(calibration: Measured, modalities: Sequence[str]) -> Saliency:
    """Return the saliency of `modalities`; zero everywhere if the network reconstructs nothing."""
    network = calibration.network
    values = {name: np.zeros(tuple(p.shape)) for name, p in network.named_parameters()}
    rows, by_vmap, unknown = dict.fromkeys(modalities, 0), set[str](), set[str]()
    for modality in modalities:
        losses = calibration.about(modality)
        if losses is None:
            continue
        sums = _sums(calibration, losses, modality)
        for name, total in sums.totals["absolute"].items():
            values[name] += total.cpu().numpy() / sums.rows
        rows[modality] = sums.rows
        by_vmap |= sums.by_vmap
        unknown |= sums.unknown
    return Saliency(values, rows, tuple(sorted(by_vmap)), tuple(sorted(unknown)))


def _sums(calibration: Measured, losses: Losses, modality: str) -> Sums:
    """Return Σ_i |∂L(i)/∂w_q| for one modality."""
    if not calibration.rows_with(modality):
        raise DataError(
            f"no calibration row has {modality}, so its saliency cannot be measured",
            file=calibration.split.folder,
            key=modality,
            hint="use a FeatureSet whose calibration split has rows with this modality",
        )
    return calibration.sums(losses, ("absolute",), having=modality)
