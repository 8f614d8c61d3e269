"""Modality saliency: how much each parameter has to do with reconstructing the modality that goes.

    s_q = 1/|B| Σ_{i∈B} |∂L_re^(m*)(i)/∂w_q|          L_re^(m)(i) = ‖X̂_i^m − X_i^m‖²

B are the calibration rows that have m*. For several modalities the saliencies of each are added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mbd.deletion.calibration import Calibration, reconstruction
from mbd.deletion.gradients import Sums
from mbd.errors import DataError
from mbd.tensors import Array


@dataclass(frozen=True)
class Saliency:
    """s of every parameter, the rows it was measured on, and the parameters that had no closed form."""

    values: Mapping[str, Array]
    rows: Mapping[str, int]
    by_vmap: tuple[str, ...]


def saliency(calibration: Calibration, modalities: Sequence[str]) -> Saliency:
    """Return the saliency of `modalities`; a network without generators has none."""
    network = calibration.network
    values = {name: np.zeros(tuple(p.shape)) for name, p in network.named_parameters()}
    if not network.shape.reconstruction:
        return Saliency(values, dict.fromkeys(modalities, 0), ())
    rows, by_vmap = {}, set[str]()
    for modality in modalities:
        sums = reconstruction_sums(calibration, modality)
        for name, total in sums.totals["absolute"].items():
            values[name] += total.cpu().numpy() / sums.rows
        rows[modality] = sums.rows
        by_vmap |= sums.by_vmap
    return Saliency(values, rows, tuple(sorted(by_vmap)))


def reconstruction_sums(calibration: Calibration, modality: str) -> Sums:
    """Return Σ_i |∂L_re(i)/∂w_q| for one modality."""
    if not calibration.rows_with(modality):
        raise DataError(
            f"no calibration row has {modality}, so nothing can be measured about it",
            file=calibration.split.folder,
            key=modality,
            hint="use a FeatureSet whose calibration split has rows with this modality",
        )
    return calibration.sums(reconstruction(modality), ("absolute",), having=modality)
