"""The Gaussian mechanism: how much noise hides a difference Δ, and what several such releases add up to.

A vector that moves by at most Δ (L2) is released with N(0, σ²) on each coordinate. With μ = Δ/σ it is
(ε, δ)-indistinguishable exactly if (Balle and Wang 2018)

    δ ≥ Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)

`analytic_sigma` is the least σ that meets this. The paper's σ = Δ √(2 ln(1.25/δ)) / ε is proven for ε ≤ 1 only.

Each release costs ρ = Δ²/2σ² = μ²/2 of zero-concentrated privacy, and costs add up. From a sum of ρ back to ε at δ:

    paper      ε = ρ + 2 √(ρ ln 1/δ)                          for any mechanism of that ρ
    rdp        the best order of Rényi divergence              for any mechanism of that ρ, tighter
    gaussian   the formula above at μ = √(2 Σρ)                exact, because Gaussians compose to one Gaussian

Only `analytic_sigma` and `epsilon_by_rdp` need `dp-accounting`; a verifier recomputes the rest without any package.
"""

import math

_SLACK = 1e-9  # relative; more than the search for σ leaves open, so that δ is met and not just approached
_STEPS = 200  # halvings after which a float64 interval cannot shrink further


def delta_of(epsilon: float, sigma: float, sensitivity: float) -> float:
    """Return the least δ for which noise σ on a vector of sensitivity Δ is (ε, δ)-indistinguishable."""
    return _delta(epsilon, sensitivity / sigma)


def analytic_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least σ that makes a vector of sensitivity Δ (ε, δ)-indistinguishable."""
    from dp_accounting import get_sigma_gaussian  # noqa: PLC0415 -- takes a second, and a verifier does without it

    return sensitivity * float(get_sigma_gaussian(epsilon, delta)) * (1 + _SLACK)


def classical_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the paper's σ."""
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def zcdp(sigma: float, sensitivity: float) -> float:
    """Return ρ, what a release costs."""
    return (sensitivity / sigma) ** 2 / 2


def epsilon_by_paper(rho: float, delta: float) -> float:
    """Return ε of a sum of costs by the paper's conversion."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def epsilon_by_rdp(rho: float, delta: float) -> float:
    """Return ε of a sum of costs by the best order of Rényi divergence."""
    from dp_accounting import ZCDpEvent  # noqa: PLC0415
    from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415

    return float(RdpAccountant().compose(ZCDpEvent(rho)).get_epsilon(delta))


def epsilon_by_gaussian(rho: float, delta: float) -> float:
    """Return ε of a sum of costs, all of them Gaussian releases: the upper end of the last interval of a bisection."""
    mu = math.sqrt(2 * rho)
    if _delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while _delta(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if _delta(middle, mu) > delta else (low, middle)
    return high


def _delta(epsilon: float, mu: float) -> float:
    if mu == 0:
        return 0.0
    # e^ε Φ(−b) overflows and underflows; since b² = a² + 2ε it is ½ e^(−a²/2) erfcx(b/√2) as well.
    a, b = mu / 2 - epsilon / mu, mu / 2 + epsilon / mu
    return max(0.0, 0.5 * math.erfc(-a / math.sqrt(2)) - 0.5 * math.exp(-a * a / 2) * _erfcx(b / math.sqrt(2)))


def _erfcx(x: float) -> float:
    """Return e^(x²) erfc(x) for x ≥ 0."""
    if x < 25:
        return math.exp(x * x) * math.erfc(x)
    square = 2 * x * x
    return (1 - 1 / square + 3 / square**2) / (x * math.sqrt(math.pi))
