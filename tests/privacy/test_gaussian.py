"""The Gaussian mechanism against its own formula, an independent implementation, and the integral it comes from."""

import math
import subprocess
import sys

import pytest
from dp_accounting import get_epsilon_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from mbd.privacy.gaussian import (
    analytic_sigma,
    classical_sigma,
    delta_of,
    epsilon_by_gaussian,
    epsilon_by_paper,
    epsilon_by_rdp,
    zcdp,
)

EPSILONS = st.floats(0.01, 100)
DELTAS = st.floats(1e-12, 0.1)
SENSITIVITIES = st.floats(1e-3, 1e3)


@settings(deadline=None, max_examples=100)
@given(EPSILONS, DELTAS, SENSITIVITIES)
def test_analytic_sigma_achieves_delta_and_no_smaller_one_does(
    epsilon: float, delta: float, sensitivity: float
) -> None:
    sigma = analytic_sigma(epsilon, delta, sensitivity)
    assert delta_of(epsilon, sigma, sensitivity) <= delta
    assert delta_of(epsilon, sigma * (1 - 1e-5), sensitivity) > delta


@settings(deadline=None, max_examples=100)
@given(st.floats(0.05, 50), DELTAS)
def test_epsilon_is_the_one_that_dp_accounting_finds(sigma: float, delta: float) -> None:
    epsilon = epsilon_by_gaussian(zcdp(sigma, 1.0), delta)
    assert epsilon == pytest.approx(get_epsilon_gaussian(sigma, delta), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.1, 0.3), (1.0, 0.27), (1.0, 2.0), (8.0, 1.7)])
def test_delta_is_the_excess_of_one_density_over_the_other(epsilon: float, mu: float) -> None:
    def excess(x: float) -> float:
        return float(max(0.0, norm.pdf(x - mu) - math.exp(epsilon) * norm.pdf(x)))

    kink = mu / 2 + epsilon / mu
    integral = quad(excess, kink, kink + 40, epsabs=1e-14)[0]
    assert delta_of(epsilon, 1.0, mu) == pytest.approx(integral, rel=1e-6)


@pytest.mark.parametrize("epsilon", [700.0, 5000.0, 1e6])
def test_large_epsilon_neither_overflows_nor_loses_delta(epsilon: float) -> None:
    sigma = analytic_sigma(epsilon, 1e-5, 1.0)
    assert delta_of(epsilon, sigma, 1.0) == pytest.approx(1e-5, rel=1e-3)


def test_the_papers_sigma_is_enough_at_one_and_too_little_beyond() -> None:
    assert classical_sigma(1.0, 1e-5, 2.0) == pytest.approx(2 * math.sqrt(2 * math.log(125000)))
    assert delta_of(1.0, classical_sigma(1.0, 1e-5, 2.0), 2.0) < 1e-5
    assert delta_of(20.0, classical_sigma(20.0, 1e-5, 2.0), 2.0) > 1e-4
    assert classical_sigma(1.0, 1e-5, 2.0) > 1.29 * analytic_sigma(1.0, 1e-5, 2.0)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.5, 20), min_size=1, max_size=6), DELTAS)
def test_gaussians_compose_to_one_gaussian(sigmas: list[float], delta: float) -> None:
    total = sum(zcdp(sigma, 1.0) for sigma in sigmas)
    one = 1 / math.sqrt(sum(1 / sigma**2 for sigma in sigmas))
    assert zcdp(one, 1.0) == pytest.approx(total)
    assert epsilon_by_gaussian(total, delta) == pytest.approx(get_epsilon_gaussian(one, delta), rel=1e-6, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.floats(1e-3, 10), st.floats(1e-10, 1e-3))
def test_each_conversion_is_tighter_than_the_one_before(rho: float, delta: float) -> None:
    paper, rdp, exact = (f(rho, delta) for f in (epsilon_by_paper, epsilon_by_rdp, epsilon_by_gaussian))
    assert exact <= rdp <= paper


def test_no_cost_is_no_epsilon() -> None:
    assert epsilon_by_gaussian(0.0, 1e-5) == 0
    assert epsilon_by_paper(0.0, 1e-5) == 0


def test_a_verifier_recomputes_the_budget_without_any_package() -> None:
    script = (
        "import sys; from mbd.privacy.gaussian import delta_of, epsilon_by_gaussian, zcdp\n"
        "print(delta_of(1.0, 7.461263284, 2.0), epsilon_by_gaussian(zcdp(7.461263284, 2.0), 1e-5))\n"
        "assert not {'numpy', 'scipy', 'dp_accounting', 'torch'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    delta, epsilon = map(float, done.stdout.split())
    assert delta == pytest.approx(1e-5, rel=1e-6)
    assert epsilon == pytest.approx(1.0, rel=1e-6)
