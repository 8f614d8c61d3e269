"""The budget arithmetic of a certificate, computed again from σ, Δ and δ with nothing but `math`.

    δ(ε, σ, Δ) = Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ)      must not exceed the δ that is claimed
    ρ          = Δ²/2σ²                                      must be the ρ that is claimed
    Δ          = 2C                                          any two vectors of norm at most C
    Σρ         = ρ before + ρ,   ε(Σρ, δ)                    what the lineage has spent, within its limit

An exact deletion claims ε = δ = 0 and has no noise; an empirical one claims neither.
"""

import math
from dataclasses import dataclass
from typing import Literal

from mbd.certificate.verdict import Check, failed, passed
from mbd.privacy.gaussian import delta_of, epsilon_by_gaussian, zcdp

BUDGET = "budget arithmetic"
_RELATIVE = 1e-6  # room for rounding, far below anything that would change a claim


@dataclass(frozen=True)
class Spending:
    """What a lineage is said to have spent."""

    rho: float
    rho_before: float
    rho_after: float
    epsilon_before: float
    epsilon_after: float
    delta: float
    limit: float


@dataclass(frozen=True)
class BudgetClaim:
    """What a certificate says in numbers."""

    kind: Literal["empirical", "certified", "exact"]
    epsilon: float | None
    delta: float | None
    sigma: float | None = None
    sensitivity: float | None = None
    radius: float | None = None
    rho: float | None = None
    spending: Spending | None = None


def budget_check(claim: BudgetClaim) -> Check:
    """Recompute everything that can be recomputed."""
    wrong = {"empirical": _empirical, "exact": _exact, "certified": _certified}[claim.kind](claim)
    if wrong:
        return failed(BUDGET, wrong)
    if claim.kind == "certified":
        return passed(
            BUDGET,
            f"σ = {claim.sigma:.6g} at Δ = {claim.sensitivity:g} gives (ε = {claim.epsilon:g}, δ = {claim.delta:g}); "
            f"ρ = {claim.rho:.6g} and what the lineage has spent add up",
        )
    return passed(BUDGET, "ε = 0 and no noise" if claim.kind == "exact" else "no ε is claimed, and none is proven")


def _empirical(claim: BudgetClaim) -> str | None:
    if claim.epsilon is not None or claim.delta is not None:
        return "an empirical deletion proves no ε, and the certificate states one"
    return "an empirical deletion spends no budget, and the certificate states one" if claim.spending else None


def _exact(claim: BudgetClaim) -> str | None:
    if claim.epsilon != 0 or claim.delta != 0:
        return "an exact deletion has ε = δ = 0, and the certificate states something else"
    return "an exact deletion has no noise, and the certificate states some" if claim.sigma is not None else None


def _certified(claim: BudgetClaim) -> str | None:
    epsilon, delta, sigma, sensitivity, rho = (
        _positive(value) for value in (claim.epsilon, claim.delta, claim.sigma, claim.sensitivity, claim.rho)
    )
    if epsilon is None or delta is None or delta >= 1 or sigma is None or sensitivity is None or rho is None:
        return "a certified deletion needs ε, δ, σ, Δ and ρ, all positive and finite"
    reached = delta_of(epsilon, sigma, sensitivity)
    if reached > delta * (1 + _RELATIVE):
        return f"σ = {sigma:g} at Δ = {sensitivity:g} and ε = {epsilon:g} gives δ = {reached:.6g}, not {delta:g}"
    if not _equal(rho, zcdp(sigma, sensitivity)):
        return f"ρ = Δ²/2σ² is {zcdp(sigma, sensitivity):.9g}, not {rho:.9g}"
    if claim.radius is None or not _equal(sensitivity, 2 * claim.radius):
        return f"Δ = {sensitivity:g} is not twice the clipping radius {claim.radius}"
    return _spending(claim.spending, rho, delta)


def _spending(spending: Spending | None, rho: float, delta: float) -> str | None:
    if spending is None:
        return "a certified deletion is charged to its lineage's budget, and no charge is stated"
    if not _equal(spending.rho, rho) or not _equal(spending.rho_after, spending.rho_before + spending.rho):
        return "ρ of the lineage does not add up: before + this deletion is not after"
    if spending.rho_before < 0 or spending.delta != delta:
        return "the lineage's budget is stated for another δ, or is negative"
    for stated, total in (
        (spending.epsilon_before, spending.rho_before),
        (spending.epsilon_after, spending.rho_after),
    ):
        if not _equal(stated, epsilon_by_gaussian(total, delta)):
            return f"Σρ = {total:g} at δ = {delta:g} is ε = {epsilon_by_gaussian(total, delta):.6g}, not {stated:.6g}"
    if spending.epsilon_after > spending.limit * (1 + _RELATIVE):
        return f"the lineage has spent ε = {spending.epsilon_after:.4g}, more than its limit {spending.limit:g}"
    return None


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=1e-12)
