"""Importance: what removing one parameter would cost the prediction, by two proxies.

    swiftprune     ½ w² / (1 − χ_q),  χ_q = min(x_q² / S, χ_max)          the paper's
    gauss_newton   −w g + ½ w² h                                          what ΔL_q = L(W − w_q e_q) − L(W) really is,
                                                                          to second order

x_q is what w_q is multiplied with, S = Σ x² over the inputs of its row (a bias is multiplied with 1), both summed over
the calibration rows; a parameter that no prediction uses has χ = 0. g and h are the gradient and the Gauss–Newton
diagonal of the mean supervised loss. The rows come without the deleted modality, as the model will be used.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from mbd.deletion.gradients import Sums
from mbd.deletion.module_calibration import Measured
from mbd.deletion.per_sample import Form
from mbd.errors import DataError
from mbd.tensors import Array


@dataclass(frozen=True)
class Importance:
    """Both proxies and χ of every parameter, and what the supervised loss is bounded by."""

    swiftprune: Mapping[str, Array]
    gauss_newton: Mapping[str, Array]
    chi: Mapping[str, Array]
    largest_gradient: float
    """max_i ‖∇ℓ_i‖, the paper's estimate of the Lipschitz constant L"""
    largest_input: float
    """max_i ‖x_i‖ over the inputs of all layers, the paper's estimate of B_act"""
    rows: int
    """rows on which all this was measured"""
    by_vmap: tuple[str, ...]


def importance(calibration: Measured, hidden: Collection[str], chi_max: float) -> Importance:
    """Return the importance of every parameter to predictions without the `hidden` modalities."""
    network = calibration.network
    squares: list[Form] = ["square" for _ in range(calibration.outputs)]
    sums = calibration.sums(calibration.prediction(hidden), ("plain", *squares), hidden=hidden)
    if not sums.rows:
        raise DataError(
            "no calibration row has any of the retained modalities, so importance cannot be measured",
            file=calibration.split.folder,
            hint="use a FeatureSet whose calibration rows have more than the deleted modalities",
        )
    swiftprune, gauss_newton, ratios = {}, {}, {}
    for name, parameter in network.named_parameters():
        w: Array = parameter.detach().cpu().numpy()
        ratios[name] = np.minimum(_chi(sums, name), chi_max)
        g, h = (_mean(sums, form, name) for form in ("plain", "square"))
        if g is None or h is None:
            swiftprune[name], gauss_newton[name] = w * w / 2 / (1 - ratios[name]), np.zeros(w.shape)
        else:
            halves = np.square(w, dtype=np.float64) / 2
            swiftprune[name], gauss_newton[name] = halves / (1 - ratios[name]), halves * h - w * g
    return Importance(
        swiftprune,
        gauss_newton,
        ratios,
        largest_gradient=sums.largest_gradient,
        largest_input=sums.largest_input,
        rows=sums.rows,
        by_vmap=tuple(sorted(sums.by_vmap)),
    )


def _chi(sums: Sums, name: str) -> Array:
    if name not in sums.energies:
        return np.zeros(())
    own, row = (tensor.cpu().numpy() for tensor in (sums.energies[name].own, sums.energies[name].row))
    shares: Array = own / np.maximum(row, np.finfo(float).tiny)
    return shares


def _mean(sums: Sums, form: Form, name: str) -> Array | None:
    total = sums.totals.get(form, {}).get(name)
    return None if total is None else total.cpu().numpy() / sums.rows
