"""Importance: what removing one parameter would cost the prediction, by one of two proxies.

    swiftprune     ½ w² / (1 − χ_q),  χ_q = min(x_q² / S, χ_max)          the paper's
    gauss_newton   −w g + ½ w² h                                          what ΔL_q = L(W − w_q e_q) − L(W) really is,
                                                                          to second order

x_q is what w_q is multiplied with, S = Σ x² over the inputs of its row (a bias is multiplied with 1), both summed over
the calibration rows; a parameter of no Linear layer, or that no prediction uses, has χ = 0. g and h are the gradient
and the Gauss–Newton diagonal of the mean supervised loss. The rows come without the deleted modality, as the model will
be used.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from mbd.deletion.calibration import Calibration
from mbd.deletion.gradients import Form, sum_over_samples
from mbd.errors import DataError
from mbd.model.contract import evaluating
from mbd.params.deletion import SurgerySettings
from mbd.tensors import Array


def importance(
    calibration: Calibration,
    hidden: Collection[str],
    settings: SurgerySettings,
    names: Collection[str] | None = None,
) -> dict[str, Array]:
    """Return the importance of parameters (None: all) to predictions without the `hidden` modalities."""
    if settings.importance == "swiftprune":
        return swiftprune(calibration, hidden, settings.chi_max, names)
    return gauss_newton(calibration, hidden, names)


def swiftprune(
    calibration: Calibration, hidden: Collection[str], chi_max: float, names: Collection[str] | None = None
) -> dict[str, Array]:
    """Return the paper's proxy."""
    ratios = activation_ratios(calibration, hidden)
    return {
        name: np.square(w, dtype=np.float64) / 2 / (1 - np.minimum(ratios.get(name, np.zeros(())), chi_max))
        for name, w in _weights(calibration.network, names).items()
    }


def gauss_newton(
    calibration: Calibration, hidden: Collection[str], names: Collection[str] | None = None
) -> dict[str, Array]:
    """Return the second-order proxy."""
    squares: list[Form] = ["square"] * calibration.outputs
    forms: tuple[Form, ...] = ("plain", *squares)
    batches, weights = calibration.batches(hidden=hidden), _weights(calibration.network, names)
    sums = sum_over_samples(calibration.network, calibration.prediction(hidden), batches, forms, tuple(weights))
    _refuse_no_rows(calibration, sums.rows)
    diagonal = {}
    for name, w in weights.items():
        g, h = (sums.totals[form].get(name, torch.zeros(w.shape)).cpu().numpy() / sums.rows for form in forms[:2])
        diagonal[name] = np.square(w, dtype=np.float64) / 2 * h - w * g
    return diagonal


def activation_ratios(calibration: Calibration, hidden: Collection[str]) -> dict[str, Array]:
    """Return χ before it is clipped, by parameter of a Linear layer that predictions use."""
    network, losses, rows = calibration.network, calibration.prediction(hidden), 0
    names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
    squares: dict[nn.Linear, tuple[Tensor, int]] = {}
    with evaluating(network), torch.no_grad(), _summed_inputs(network, squares):
        for batch in calibration.batches(hidden=hidden):
            rows += len(losses(network, batch))
    _refuse_no_rows(calibration, rows)
    ratios = {}
    for layer, (own, uses) in squares.items():
        entries, biased = own.cpu().numpy(), layer.bias is not None
        row = max(float(entries.sum()) + uses * biased, float(np.finfo(float).tiny))
        ratios[names[layer.weight]] = entries / row
        if biased:
            ratios[names[layer.bias]] = np.array(uses / row)
    return ratios


@contextmanager
def _summed_inputs(network: nn.Module, squares: dict[nn.Linear, tuple[Tensor, int]]) -> Iterator[None]:
    """Within: Σ x² over all that a Linear layer is given, and how often that was, are added up."""

    def add(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        inputs = given[0].flatten(0, -2)
        own, uses = inputs.square().sum(0, dtype=torch.float64), len(inputs)
        if isinstance(layer, nn.Linear):
            before, used = squares.get(layer, (torch.zeros_like(own), 0))
            squares[layer] = before + own, used + uses

    with ExitStack() as hooks:
        for part in network.modules():
            if isinstance(part, nn.Linear):
                hooks.callback(part.register_forward_pre_hook(add).remove)
        yield


def _weights(network: nn.Module, names: Collection[str] | None) -> Mapping[str, Array]:
    return {n: p.detach().cpu().numpy() for n, p in network.named_parameters() if names is None or n in names}


def _refuse_no_rows(calibration: Calibration, rows: int) -> None:
    if not rows:
        raise DataError(
            "no calibration row has any of the retained modalities, so importance cannot be measured",
            file=calibration.split.folder,
            hint="use a FeatureSet whose calibration rows have more than the deleted modalities",
        )
