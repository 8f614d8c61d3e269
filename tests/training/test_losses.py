"""Every loss against the paper's formula, written out sample by sample."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from mbd.training.objective import (
    alignment_loss,
    contrastive_loss,
    invariance_loss,
    orthogonality_loss,
    reconstruction_loss,
    task_loss,
)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_reconstruction_is_the_squared_distance_for_each_dimension() -> None:
    loss = reconstruction_loss(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 1.0]]))
    assert loss.tolist() == [2.0, 5.0]


def test_task_is_the_squared_error_or_the_cross_entropy() -> None:
    assert task_loss(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0, 2.0]), "regression").tolist() == [4.0, 0.0]
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    expected = -math.log(math.exp(0) / (math.exp(2) + math.exp(0) + math.exp(-1)))
    assert float(task_loss(logits, torch.tensor([1]), "classification")) == pytest.approx(expected)


def test_orthogonality_has_no_negative_values() -> None:
    specific, invariant = torch.tensor([[1.0, 2.0], [1.0, 0.0]]), torch.tensor([[-1.0, -1.0], [0.0, 5.0]])
    assert orthogonality_loss(specific, invariant, "squared").tolist() == [9.0, 0.0]
    assert orthogonality_loss(specific, invariant, "absolute").tolist() == [3.0, 0.0]


def test_invariance_is_the_distance_from_the_batch_mean() -> None:
    assert invariance_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([0.0, 0.0])).tolist() == [5.0]


def test_alignment_costs_nothing_within_the_margin() -> None:
    embedding = torch.tensor([0.3, 0.4])
    assert float(alignment_loss(embedding, torch.zeros(2), 0.25)) == pytest.approx(0.0, abs=1e-7)
    assert float(alignment_loss(embedding, torch.zeros(2), 0.05)) == pytest.approx(0.2)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 5), st.floats(0.05, 2), st.integers(0, 10**6))
def test_contrastive_is_nce_over_the_rows_that_have_the_modality(
    rows: int, width: int, temperature: float, seed: int
) -> None:
    translated = functional.normalize(draw(seed, rows, width), dim=1)
    specific = functional.normalize(draw(seed + 1, rows, width), dim=1)
    eligible = draw(seed + 2, rows) > 0
    loss = contrastive_loss(translated, specific, specific, eligible, temperature)
    for i in range(rows):
        if not eligible[i]:
            continue
        scores = [float(translated[i] @ specific[j]) / temperature for j in range(rows) if eligible[j]]
        own = float(translated[i] @ specific[i]) / temperature
        assert float(loss[i]) == pytest.approx(-math.log(math.exp(own) / sum(map(math.exp, scores))), abs=1e-9)


def test_contrastive_without_any_candidate_stays_finite_with_its_gradient() -> None:
    translated = torch.ones(2, 3, requires_grad=True)
    loss = contrastive_loss(translated, translated, translated, torch.zeros(2, dtype=torch.bool), 0.1)
    (loss * 0).sum().backward()  # type: ignore[no-untyped-call]
    assert loss.isfinite().all()
    assert translated.grad is not None
    assert (translated.grad == 0).all()
