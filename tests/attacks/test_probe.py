"""The probe finds planted leaks at the rate they were planted with, linear or not, and nothing in noise."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mbd.attacks.attack import AttackEvidence
from mbd.attacks.context import AttackContext
from mbd.attacks.probe import _draw_networks, _forward, _gradient, _parts, guess
from mbd.attacks.whitebox import accuracy_of
from mbd.tensors import Array
from tests.attacks.models import context_of, interval


def found(views: list[dict[str, Array]], attack_context: AttackContext) -> list[AttackEvidence]:
    return [
        accuracy_of(scores, attack_context, "whitebox", "accuracy") for scores in guess(views, attack_context, "test")
    ]


@pytest.mark.parametrize("strength", [0.65, 0.8, 0.95])
def test_a_planted_bit_is_found_as_often_as_it_is_there(model_workspace: Path, strength: float) -> None:
    attack_context, rng = context_of(model_workspace), np.random.default_rng(0)
    truth = attack_context.attribute.values
    bits = [np.where(rng.random(len(truth)) < strength, truth, 1 - truth) for _ in range(12)]
    views = [
        {"layer.0": rng.standard_normal((len(truth), 30)), "layer.1": np.column_stack([bit, -bit])} for bit in bits
    ]
    values = [evidence.value for evidence in found(views, attack_context)]
    assert np.mean(values) == pytest.approx(strength, abs=0.04)


def test_a_leak_that_no_linear_probe_sees_is_found(model_workspace: Path) -> None:
    attack_context, rng = context_of(model_workspace), np.random.default_rng(0)
    sign = 2 * attack_context.attribute.values - 1
    one = rng.standard_normal(len(sign))
    other = np.abs(rng.standard_normal(len(sign))) * np.sign(one) * sign
    (evidence,) = found([{"layer": np.column_stack([one, other])}], attack_context)
    assert evidence.value > 0.8


@pytest.mark.slow
def test_intervals_of_noise_cover_chance_in_about_95_of_100(model_workspace: Path) -> None:
    attack_context, rng = context_of(model_workspace, rows=120, resamples=400), np.random.default_rng(0)
    views = [{"layer": rng.standard_normal((120, 5))} for _ in range(200)]
    intervals = [interval(evidence, attack_context.params) for evidence in found(views, attack_context)]
    assert 178 <= sum(one.low <= 0.5 <= one.high for one in intervals) <= 199
    assert np.mean([one.value for one in intervals]) == pytest.approx(0.5, abs=0.015)


def test_what_does_not_vary_reveals_nothing(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    (evidence,) = found([{"layer": np.full((480, 3), 7.0)}], attack_context)
    assert evidence.value == 0.5


def test_of_models_that_add_nothing_to_the_inputs_each_is_read_the_same(model_workspace: Path) -> None:
    attack_context, rng = context_of(model_workspace), np.random.default_rng(0)
    views = [{**attack_context.known, "layer": rng.standard_normal((480, 20))} for _ in range(4)]
    values = [evidence.rows.tolist() for evidence in found(views, attack_context)]
    plain = found([attack_context.known], attack_context)[0].rows.tolist()
    assert sum(rows == plain for rows in values) >= 3


def test_a_rare_value_is_not_drowned_by_a_common_one(model_workspace: Path) -> None:
    attack_context, rng = context_of(model_workspace), np.random.default_rng(0)
    rare = rng.random(480) < 0.15
    attack_context.attribute.values[:] = rare
    (evidence,) = found(
        [{"layer": np.column_stack([rare + rng.standard_normal(480), rng.standard_normal(480)])}], attack_context
    )
    assert 0.6 < evidence.value < 0.8
    assert 0.2 < evidence.rows[:, 1].mean() < 0.55


def test_the_gradient_that_is_written_out_is_the_one_that_torch_records() -> None:
    rng = np.random.default_rng(0)
    x, f, error = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((2, 16, 50), (6, 50), (6, 50)))
    weights = _draw_networks(6, 16, rng).double()
    weights = (weights + torch.from_numpy(rng.standard_normal(weights.shape))).requires_grad_()
    rectified, output = _forward(_parts(weights), x, f)
    (recorded,) = torch.autograd.grad((output * error).sum(), weights)
    torch.testing.assert_close(_gradient(_parts(weights.detach()), x, f, rectified.detach(), error), recorded)
