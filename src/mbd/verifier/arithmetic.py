"""The budget arithmetic of a certificate, computed again from σ, Δ and δ with nothing but `math`.

    δ(ε, σ, Δ) = Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ)      must not exceed the δ that is claimed
    ρ          = Δ²/2σ²                                      must be the ρ that is claimed
    Δ          = 2C                                          any two vectors of norm at most C
    Σρ         = ρ before + ρ,   ε(Σρ, δ)                    what the lineage has spent, within its limit

An exact deletion claims ε = δ = 0 and has no noise; where nothing is proven, neither is claimed.
"""

import math
from collections.abc import Callable

from mbd.formats.guarantee import Guarantee, LineageBudget
from mbd.formats.predicate import Budget, Noise
from mbd.verifier.verdict import Check, failed, passed

BUDGET = "budget arithmetic"
_RELATIVE = 1e-6  # room for rounding, far below anything that would change a claim


def check_budget(guarantee: Guarantee, budget: Budget | None, noise: Noise | None) -> Check:
    """Recompute everything that can be recomputed."""
    if guarantee.kind == "certified":
        wrong = _certified(guarantee, budget)
    elif guarantee.kind == "exact":
        wrong = _exact(guarantee, noise)
    else:
        wrong = _unproven(guarantee, budget)
    if wrong:
        return failed(BUDGET, wrong)
    if budget:
        return passed(
            BUDGET,
            f"σ = {budget.sigma:.6g} at Δ = {budget.sensitivity:g} gives (ε = {guarantee.epsilon:g}, "
            f"δ = {guarantee.delta:g}); ρ = {budget.rho:.6g} and the budget of the lineage add up",
        )
    return passed(BUDGET, "ε = 0 and no noise" if guarantee.kind == "exact" else "no ε is claimed, and none is proven")


def _unproven(guarantee: Guarantee, budget: Budget | None) -> str | None:
    if guarantee.epsilon is not None or guarantee.delta is not None:
        return f"an {guarantee.kind} deletion proves no ε, and the certificate states one"
    return f"an {guarantee.kind} deletion spends no budget, and the certificate states one" if budget else None


def _exact(guarantee: Guarantee, noise: Noise | None) -> str | None:
    if guarantee.epsilon != 0 or guarantee.delta != 0:
        return "an exact deletion has ε = δ = 0, and the certificate states something else"
    return "an exact deletion has no noise, and the certificate states some" if noise else None


def _certified(guarantee: Guarantee, budget: Budget | None) -> str | None:
    if budget is None or guarantee.epsilon is None or guarantee.delta is None:
        return "a certified deletion is charged to the budget of its lineage, and no charge is stated"
    from mbd.privacy.gaussian import delta_of, epsilon_by_gaussian, zcdp  # noqa: PLC0415 -- no other kind has a budget

    epsilon, delta, sigma, sensitivity = guarantee.epsilon, guarantee.delta, budget.sigma, budget.sensitivity
    reached = delta_of(epsilon, sigma, sensitivity)
    if reached > delta * (1 + _RELATIVE):
        return f"σ = {sigma:g} at Δ = {sensitivity:g} and ε = {epsilon:g} gives δ = {reached:.6g}, not {delta:g}"
    if not _equal(budget.rho, zcdp(sigma, sensitivity)):
        return f"ρ = Δ²/2σ² is {zcdp(sigma, sensitivity):.9g}, not {budget.rho:.9g}"
    if not _equal(sensitivity, 2 * budget.clip_radius):
        return f"Δ = {sensitivity:g} is not twice the clipping radius {budget.clip_radius:g}"
    return _lineage(budget.lineage, budget.rho, delta, epsilon_by_gaussian)


def _lineage(
    lineage: LineageBudget, rho: float, delta: float, epsilon_by: Callable[[float, float], float]
) -> str | None:
    if not _equal(lineage.rho_after, lineage.rho_before + rho):
        return "ρ of the lineage does not add up: before + this deletion is not after"
    if lineage.delta != delta:
        return "the budget of the lineage is stated for another δ"
    for stated, total in (
        (lineage.epsilon_before, lineage.rho_before),
        (lineage.epsilon_after, lineage.rho_after),
    ):
        if not _equal(stated, epsilon_by(total, delta)):
            return f"Σρ = {total:g} at δ = {delta:g} is ε = {epsilon_by(total, delta):.6g}, not {stated:.6g}"
    if lineage.epsilon_after > lineage.limit * (1 + _RELATIVE):
        return f"the lineage has spent ε = {lineage.epsilon_after:.4g}, more than its limit {lineage.limit:g}"
    return None


def _equal(stated: float, computed: float) -> bool:
    return math.isclose(stated, computed, rel_tol=_RELATIVE, abs_tol=1e-12)
