"""Cumulative privacy budget: what several noised releases of one lineage add up to, by theory and by sampling.

Every release has the paper's σ = Δ √(2 ln(1.25/δ)) / ε. After k of them ρ = k Δ²/2σ², and ε at δ is

    paper       ρ + 2 √(ρ ln 1/δ)
    RDP         the best order of Rényi divergence
    exact       the composed Gaussian mechanism
    sampled     from drawn privacy losses: what (ε, δ) means, and the quantile that the paper's figure shows

All of it is about noise whose Δ is known, as the certified method has it. It says nothing of zeroing.
"""

import math
from collections.abc import Mapping

from mbd.params import load_params
from mbd.privacy.gaussian import analytic_sigma, classical_sigma, delta_of, epsilon_by_paper, zcdp
from mbd.report.figures import COLOURS, figure_png
from studies import printed
from studies.claims import judged
from studies.layout import Layout
from studies.montecarlo import Composed, check_composition
from studies.outcome import Cell, Finding, StudyOutcome, StudyTable
from studies.plan import StudyPlan

_PROVEN = 1.0
"""ε up to which the paper's σ is proven"""
_AGREES = 0.05
"""relative difference that sampling may explain"""
_HIGHEST = 1e4
_SOME_DELTAS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def study(layout: Layout) -> StudyOutcome:
    """Add up budgets."""
    plan, delta = layout.plan, load_params().deletion.delta
    composed = {epsilon: compose(epsilon, delta, plan) for epsilon in plan.budget.epsilons}
    single = {epsilon: achieved(epsilon, delta) for epsilon in asked(plan)}
    return StudyOutcome(
        name="budget",
        title="Cumulative privacy budget",
        question=(
            f"One lineage is deleted from up to {plan.budget.deletions} times, each time with noise for ε at "
            f"δ = {delta:g}: what ε holds of all releases together?"
        ),
        tables=[_composed_table(composed), _sigma_table(single, delta)],
        findings=findings(composed, single, delta),
        figures={"budget": draw(composed)},
        data={
            "delta": delta,
            "samples": plan.budget.samples,
            "composed": {f"{epsilon:g}": vars(found) for epsilon, found in composed.items()},
        },
    )


def compose(epsilon: float, delta: float, plan: StudyPlan) -> Composed:
    """Return theory and samples of a sequence of releases, each noised for ε by the paper's formula."""
    sigmas = [classical_sigma(epsilon, delta, 1.0)] * plan.budget.deletions
    return check_composition(sigmas, 1.0, delta, samples=plan.budget.samples)


def asked(plan: StudyPlan) -> list[float]:
    """Return every ε that the plan or the paper asks for."""
    own = (plan.settings[name].get("deletion.epsilon") for name in plan.deletions)
    values = {*plan.budget.epsilons, *(float(e) for e in own if e), *(e for e in printed.DELETION if e)}
    return sorted(values)


def achieved(epsilon: float, delta: float) -> float:
    """Return the δ that the paper's σ really reaches at ε."""
    return delta_of(epsilon, classical_sigma(epsilon, delta, 1.0), 1.0)


def breaks_at(delta: float) -> float | None:
    """Return the least ε, above 1, from which on the paper's σ misses δ; None if there is none below 10⁴."""
    low, high = _PROVEN, _PROVEN
    while achieved(high, delta) <= delta:
        low, high = high, 2 * high
        if high > _HIGHEST:
            return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if achieved(middle, delta) <= delta else (low, middle)
    return high


def _composed_table(composed: Mapping[float, Composed]) -> StudyTable:
    rows: list[list[Cell]] = [
        [f"{epsilon:g}", str(k + 1), f"{found.rho[k]:.5f}", *(getattr(found, name)[k] for name in _WAYS)]
        for epsilon, found in composed.items()
        for k in range(len(found.rho))
    ]
    return StudyTable("ε of all releases together", ["ε of each", "releases", "ρ", *_WAYS.values()], rows, digits=3)


_WAYS = {
    "paper": "ε, paper",
    "rdp": "ε, RDP",
    "gaussian": "ε, exact",
    "sampled": "ε, sampled",
    "sampled_quantile": "sampled quantile",
}


def _sigma_table(single: Mapping[float, float], delta: float) -> StudyTable:
    rows: list[list[Cell]] = [
        [
            f"{epsilon:g}",
            classical_sigma(epsilon, delta, 1.0),
            analytic_sigma(epsilon, delta, 1.0),
            f"{reached:.2e}",
            "yes" if reached <= delta else "no",
        ]
        for epsilon, reached in single.items()
    ]
    header = ["ε", "σ/Δ, paper", "σ/Δ, least that is enough", "δ that the paper's σ reaches", f"at most {delta:g}"]
    return StudyTable("The paper's σ for one release", header, rows, digits=3)


def draw(composed: Mapping[float, Composed]) -> bytes:
    """Draw ε over the number of releases: the paper's conversion solid, the sampled quantile dashed, exact dotted."""
    with figure_png((6.4, 4.2)) as (figure, png):
        panel = figure.subplots()
        for colour, (epsilon, found) in zip(COLOURS * len(composed), composed.items(), strict=False):
            releases = range(1, len(found.rho) + 1)
            panel.plot(releases, found.paper, color=colour, label=f"ε = {epsilon:g} each: paper's conversion")
            panel.plot(releases, found.sampled_quantile, color=colour, linestyle="--", label="sampled quantile")
            panel.plot(releases, found.gaussian, color=colour, linestyle=":", label="exact")
        panel.set_xlabel("deletions of one lineage")
        panel.set_ylabel("ε of all together")
        panel.set_title("Cumulative privacy budget")
        figure.legend(loc="outside lower center", ncols=len(composed), fontsize=7)
    return png.getvalue()


def findings(composed: Mapping[float, Composed], single: Mapping[float, float], delta: float) -> list[Finding]:
    """Return what became of the paper's claims."""
    return [
        _valid(composed),
        _tighter(composed),
        _sampled(composed),
        _classical(single, delta, breaks_at(delta)),
        _derivable(delta),
    ]


def _valid(composed: Mapping[float, Composed]) -> Finding:
    below = sum(p < g for found in composed.values() for p, g in zip(found.paper, found.gaussian, strict=True))
    loose = max(p / g for found in composed.values() for p, g in zip(found.paper, found.gaussian, strict=True))
    tight = max(r / g for found in composed.values() for r, g in zip(found.rdp, found.gaussian, strict=True))
    return Finding(
        "ε = ρ + 2√(ρ ln 1/δ) is a valid conversion for any δ.",
        judged(not below),
        f"It is below the exact ε in {below} of {sum(len(f.rho) for f in composed.values())} cases, and up to "
        f"{100 * (loose - 1):.0f} % above it; the best Rényi order is up to {100 * (tight - 1):.0f} % above. Our "
        "ledger adds up ρ and reports all three.",
    )


def _tighter(composed: Mapping[float, Composed]) -> Finding:
    first = {epsilon: found.paper[0] / epsilon for epsilon, found in composed.items()}
    last = {epsilon: found.paper[-1] / (epsilon * len(found.paper)) for epsilon, found in composed.items()}
    several = [
        value < (k + 1) * epsilon for epsilon, found in composed.items() for k, value in enumerate(found.paper) if k
    ]
    return Finding(
        "Accounting by zCDP is tighter than adding up ε.",
        judged(all(several)),
        f"For one release it gives {min(first.values()):.3f}–{max(first.values()):.3f} times the ε asked for; for "
        f"{max(len(f.paper) for f in composed.values())} releases {min(last.values()):.2f}–{max(last.values()):.2f} "
        "times the sum of the ε.",
    )


def _sampled(composed: Mapping[float, Composed]) -> Finding:
    exact = [abs(s / g - 1) for f in composed.values() for s, g in zip(f.sampled, f.gaussian, strict=True) if g]
    quantile = [q / p for f in composed.values() for q, p in zip(f.sampled_quantile, f.paper, strict=True)]
    return Finding(
        "The sampled quantile of the privacy loss follows the theoretical curve from below.",
        judged(max(quantile) <= 1 + _AGREES),
        f"The quantile is {min(quantile):.2f}–{max(quantile):.2f} times the paper's conversion. It is not ε: the ε "
        f"that (ε, δ) defines, sampled, differs from the exact one by at most {100 * max(exact):.1f} %.",
    )


def _classical(single: Mapping[float, float], delta: float, limit: float | None) -> Finding:
    kept = all(reached <= delta for reached in single.values())
    most = max(classical_sigma(e, delta, 1.0) / analytic_sigma(e, delta, 1.0) for e in single)
    return Finding(
        "σ = Δ√(2 ln(1.25/δ))/ε gives (ε, δ), for any ε.",
        judged(kept and limit is None),
        f"It is proven for ε ≤ {_PROVEN:g} only. "
        + (f"At δ = {delta:g} it misses δ from ε = {limit:.2f} on" if limit else f"At δ = {delta:g} no ε misses δ")
        + f"; at the ε used here, up to {max(single):g}, it {'does not' if kept else 'does'}. Where it is enough it is "
        f"up to {100 * (most - 1):.0f} % more noise than needed: we take the least σ that the exact formula allows.",
    )


def _derivable(delta: float) -> Finding:
    shown = sorted({row.epsilon for row in printed.SENSITIVITY})
    asked_for = next(row.epsilon for row in printed.SENSITIVITY if row.default)

    def back(d: float) -> float:
        """Return ε after σ was made for it and converted back; Δ cancels out."""
        return epsilon_by_paper(zcdp(classical_sigma(asked_for, d, 1.0), 1.0), d)

    values = {
        round(epsilon_by_paper(zcdp(classical_sigma(asked_for, delta, s), s), delta), 12) for s in (0.1, 1.0, 10.0)
    }
    derivable = len(shown) == len(values) and all(
        math.isclose(a, b, abs_tol=0.005) for a, b in zip(shown, sorted(values), strict=True)
    )
    return Finding(
        f"ε = {shown[0]:.2f}–{shown[-1]:.2f} in the sensitivity scan is computed by zCDP composition.",
        judged(derivable),
        f"For ε = {asked_for:g} asked for, σ and the conversion give {back(delta):.4f} at δ = {delta:g}, whatever Δ "
        f"is: r, η_s and |B| cannot move it, and the scan prints {len(shown)} different values. (Other δ, the same in "
        f"all rows: {min(map(back, _SOME_DELTAS)):.3f}–{max(map(back, _SOME_DELTAS)):.3f}.) At ε ≤ 1 Algorithm 1 "
        "zeroes, so there is no noise from which any ε could follow.",
    )
