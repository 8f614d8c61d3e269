"""Modality saliency: how much each parameter contributes to reconstructing the deleted modality m*.

    s_q = 1/|B| Σ_{i∈B} |∂L_re^(m*)(i)/∂w_q|          L_re^(m)(i) = ‖X̂_i^m − X_i^m‖²

B are the calibration rows that have m*. For several modalities, their saliencies are added. A module of one's own that
reconstructs nothing has ‖f(x_i) − f(x_i without m*)‖² in place of L_re.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mbd.deletion.calibration import Calibration
from mbd.deletion.gradients import sum_over_samples
from mbd.errors import DataError
from mbd.tensors import Array


@dataclass(frozen=True)
class Saliency:
    """The saliency of parameters."""

    values: Mapping[str, Array]
    """s, by parameter"""
    rows: Mapping[str, int]
    """number of calibration rows, by modality"""
    unknown: tuple[str, ...] = ()
    """parameters whose gradients cannot be computed sample by sample; 0 is put down for them"""


def saliency(calibration: Calibration, modalities: Sequence[str], names: Collection[str] | None = None) -> Saliency:
    """Return the saliency of `modalities` in some parameters (None: all); zero if the network reconstructs nothing."""
    values = {
        name: np.zeros(tuple(parameter.shape))
        for name, parameter in calibration.network.named_parameters()
        if names is None or name in names
    }
    rows, unknown = dict.fromkeys(modalities, 0), set[str]()
    for modality in modalities:
        losses = calibration.about(modality)
        if losses is None:
            continue
        _refuse_no_rows(calibration, modality)
        batches = calibration.batches(having=modality)
        sums = sum_over_samples(calibration.network, losses, batches, ("absolute",), tuple(values))
        for name, total in sums.totals["absolute"].items():
            values[name] += total.cpu().numpy() / sums.rows
        rows[modality] = sums.rows
        unknown |= sums.unknown
    return Saliency(values, rows, tuple(sorted(unknown)))


def _refuse_no_rows(calibration: Calibration, modality: str) -> None:
    if not calibration.split.available[modality].any():
        raise DataError(
            f"no calibration row has {modality}, so its saliency cannot be measured",
            file=calibration.split.folder,
            key=modality,
            hint="use a FeatureSet whose calibration split has rows with this modality",
        )
