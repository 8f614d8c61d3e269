"""The composed privacy loss as it is drawn, against what the accounting says."""

import numpy as np
import pytest

from mbd.privacy.gaussian import analytic_sigma, zcdp
from studies.montecarlo import check_composition, privacy_losses, sampled_epsilon


def test_what_is_drawn_is_what_the_theory_says() -> None:
    sigma = analytic_sigma(1.0, 1e-3, 2.0)
    found = check_composition([sigma] * 4, 2.0, 1e-3, samples=200_000)
    assert found.sampled == pytest.approx(found.gaussian, rel=0.05)
    assert found.gaussian[0] == pytest.approx(1.0, rel=1e-6)
    assert found.rho == pytest.approx([zcdp(sigma, 2.0) * k for k in (1, 2, 3, 4)])
    for exact, quantile, rdp, paper in zip(found.gaussian, found.sampled_quantile, found.rdp, found.paper, strict=True):
        assert exact < rdp < paper
        assert exact < quantile < paper


def test_too_little_noise_is_seen() -> None:
    sigma = analytic_sigma(1.0, 1e-3, 1.0)
    losses = privacy_losses([sigma * 0.8], 1.0, samples=100_000)
    assert sampled_epsilon(losses[0], 1e-3) > 1.2


def test_the_loss_is_normal_with_mean_rho_and_variance_two_rho() -> None:
    losses = privacy_losses([2.0, 5.0], 3.0, samples=200_000, seed=3)
    rho = np.cumsum([zcdp(2.0, 3.0), zcdp(5.0, 3.0)])
    assert losses.mean(axis=1) == pytest.approx(rho, rel=0.02)
    assert losses.var(axis=1) == pytest.approx(2 * rho, rel=0.02)


def test_the_sampled_epsilon_solves_its_definition() -> None:
    losses = np.random.default_rng(0).normal(0.5, 1.0, 5000)
    epsilon = sampled_epsilon(losses, 0.01)
    assert np.maximum(0, 1 - np.exp(epsilon - losses)).mean() == pytest.approx(0.01)
    assert sampled_epsilon(np.full(100, -1.0), 0.01) == 0


def test_the_same_seed_draws_the_same() -> None:
    one, same, other = (privacy_losses([1.0], 1.0, samples=100, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
