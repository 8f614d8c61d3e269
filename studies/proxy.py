"""Proxy error and over-delete (the paper's Table A2 and scatter): what L_q says about the cost of removing w_q.

    swiftprune      ½ w² / (1 − χ)                the paper's
    gauss_newton    −w g + ½ w² h                 ours

beside the true increment ΔL_q, on a sample of what Algorithm 1 chooses and on one of all weights that predictions use.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mbd.evaluation.results import Spread, spread
from mbd.report.figures import COLOURS, figure_png
from mbd.tensors import Array
from studies import increments, printed
from studies.claims import judged, text
from studies.increments import CHOSEN, PROXIES, SAMPLES, Increments
from studies.layout import Layout
from studies.leave_one_out import BAND, TOLERANCE
from studies.outcome import Cell, Finding, StudyOutcome, StudyTable

Measured = Mapping[str, Mapping[int, Increments]]
"""by data set and seed"""
GREY = "#888888"
ENOUGH = 0.05
"""how far below the printed rank correlation one may be"""


@dataclass(frozen=True)
class Quality:
    """One proxy on one sample of one data set, over seeds; shares are in percent."""

    data: str
    sample: str
    proxy: str
    largest_error: Spread
    within: Spread
    over_delete: Spread
    over_delete_of_positive: Spread | None
    """among the parameters whose removal really costs something"""
    spearman: Spread | None
    upper: Spread
    """share of parameters for which the proxy is not below the increment"""


def study(layout: Layout) -> StudyOutcome:
    """Compare both proxies with what really happens."""
    cells = {data: layout.by_seed(layout.increments(data)) for data in layout.plan.compared}
    measured = {data: {s: increments.read(f) for s, f in own.items()} for data, own in cells.items()}
    qualities = [
        quality(data, sample, proxy, list(own.values()))
        for data, own in measured.items()
        for sample in SAMPLES
        for proxy in PROXIES
    ]
    main = next(iter(measured[layout.plan.main].values()))
    return StudyOutcome(
        name="proxy",
        title="Error of the importance proxies",
        question="Does the importance of a parameter predict what removing it costs?",
        tables=[_table(qualities), _printed_table()],
        findings=findings(qualities, main),
        figures={f"proxy-{sample}": scatter(main, sample) for sample in SAMPLES},
        data={data: {str(seed): dict(found.facts) for seed, found in own.items()} for data, own in measured.items()},
    )


def quality(data: str, sample: str, proxy: str, found: Sequence[Increments]) -> Quality:
    """Return what a proxy is worth, over seeds."""
    facts = [one.facts[sample][proxy] for one in found]
    pairs = [(one.values[sample][proxy], one.values[sample]["increment"]) for one in found]
    positive = [(p[d > 0], d[d > 0]) for p, d in pairs if (d > 0).any()]
    return Quality(
        data,
        sample,
        proxy,
        largest_error=spread([100 * (fact["largest_relative_error"] or 0.0) for fact in facts]),
        within=spread([100 * fact["share_within_8_percent"] for fact in facts]),
        over_delete=spread([100 * fact["overdelete_0.1"] for fact in facts]),
        over_delete_of_positive=_spread([100 * float((p > (1 + TOLERANCE) * d).mean()) for p, d in positive]),
        spearman=_spread([fact["spearman"] for fact in facts if fact["spearman"] is not None]),
        upper=spread([100 * float((p >= d).mean()) for p, d in pairs]),
    )


def _spread(values: Sequence[float]) -> Spread | None:
    return spread(values) if values else None


def _table(qualities: Iterable[Quality]) -> StudyTable:
    rows: list[list[Cell]] = [
        [
            q.data,
            SAMPLES[q.sample],
            q.proxy.replace("_", "–"),
            q.largest_error,
            q.within,
            q.over_delete,
            q.over_delete_of_positive,
            None if q.spearman is None else text(q.spearman, 3),
        ]
        for q in qualities
    ]
    band, gamma = f"within ±{100 * BAND:g} % (%)", f"OverDelete({TOLERANCE:g}) (%)"
    return StudyTable(
        "Both proxies beside true leave-one-out increments",
        ["data", "sample", "proxy", "max rel. error (%)", band, gamma, f"{gamma}, ΔL > 0", "Spearman ρ"],
        rows,
        note=(
            "OverDelete counts every parameter whose removal lowers the loss (ΔL < 0), whatever the proxy; so it is "
            "also given for those with ΔL > 0."
        ),
    )


def _printed_table() -> StudyTable:
    rows: list[list[Cell]] = [
        [
            printed.DATA[data],
            f"{row.chi_max:g}",
            row.max_relative_error,
            "yes" if row.within_bound else "no",
            row.over_delete,
            f"{row.spearman:.2f}",
        ]
        for data, row in printed.PROXY.items()
    ]
    header = ["data", "χ_max", "max rel. error (%)", "98 % within bound", "OverDelete(0.1) (%)", "Spearman ρ"]
    return StudyTable("Table A2", header, rows, printed=True)


def scatter(found: Increments, sample: str) -> bytes:
    """Draw both proxies over the true increments of one model."""
    values = found.values[sample]
    facts = {name: found.facts[sample][name] for name in PROXIES}
    return proxy_scatter(values["increment"], {name: values[name] for name in PROXIES}, facts)


def findings(qualities: Sequence[Quality], main: Increments) -> list[Finding]:
    """Return what became of the paper's claims, which are about what Algorithm 1 chooses."""
    paper, ours = ([q for q in qualities if (q.sample, q.proxy) == (CHOSEN, proxy)] for proxy in PROXIES)
    return [
        _error(paper, ours),
        _inside(paper, ours),
        _over_delete(paper),
        _order(paper, ours),
        _upper(paper, main),
        _printed_numbers(),
    ]


def _error(paper: Sequence[Quality], ours: Sequence[Quality]) -> Finding:
    worst, other = (max(own, key=lambda q: q.largest_error.mean) for own in (paper, ours))
    return Finding(
        f"The proxy errs by at most {printed.PROXY_BOUND:g} % of itself.",
        judged(worst.largest_error.mean <= printed.PROXY_BOUND),
        f"The largest relative error is {text(worst.largest_error, 0)} % ({worst.data}); ½w² has no term for what the "
        f"weight does to the loss. Single parameters next to zero defeat any proxy: {text(other.largest_error, 0)} % "
        "of Gauss–Newton.",
    )


def _inside(paper: Sequence[Quality], ours: Sequence[Quality]) -> Finding:
    worst, other = (min(own, key=lambda q: q.within.mean) for own in (paper, ours))
    return Finding(
        f"{printed.PROXY_SCATTER.inside:g} % of the parameters lie within ±{printed.PROXY_SCATTER.band:g} %.",
        judged(worst.within.mean >= printed.PROXY_SCATTER.inside),
        f"{text(worst.within)} % do ({worst.data}); of Gauss–Newton, {text(other.within)} %.",
    )


def _over_delete(paper: Sequence[Quality]) -> Finding:
    worst = max(paper, key=lambda q: q.over_delete.mean)
    positive = worst.over_delete_of_positive
    return Finding(
        f"OverDelete({TOLERANCE:g}) is at most {printed.OVER_DELETE_BOUND:g} %.",
        judged(worst.over_delete.mean <= printed.OVER_DELETE_BOUND),
        f"It is {text(worst.over_delete)} % ({worst.data})"
        + (f", and {text(positive)} % of the parameters whose removal costs anything" if positive else "")
        + ". We do not select by this proxy: what is removed is what belongs to the modality (the cut).",
    )


def _order(paper: Sequence[Quality], ours: Sequence[Quality]) -> Finding:
    known = [(q.spearman, q.data) for q in paper if q.spearman is not None]
    claim = f"The proxy orders parameters as their true increments do (Spearman {printed.PROXY_SCATTER.spearman:g})."
    if not known:
        return Finding(claim, "not comparable", "The increments do not vary, so they have no order.")
    worst, data = min(known, key=lambda pair: pair[0].mean)
    best = [q.spearman.mean for q in ours if q.spearman is not None]
    return Finding(
        claim,
        judged(worst.mean >= printed.PROXY_SCATTER.spearman - ENOUGH),
        f"Spearman's ρ is {text(worst, 2)} ({data})."
        + (f" −w·g + ½w²·(Gauss–Newton diagonal) has at least {min(best):.3f}; it is offered beside." if best else ""),
    )


def _upper(paper: Sequence[Quality], main: Increments) -> Finding:
    least = min(paper, key=lambda q: q.upper.mean)
    sample = main.values[CHOSEN]
    median = {name: float(np.median(np.abs(values))) for name, values in sample.items()}
    return Finding(
        "The proxy is an upper bound of the true increment.",
        judged(least.upper.mean == 100),
        f"It is in {text(least.upper)} % of the parameters ({least.data}). But its median is "
        f"{median['swiftprune']:.1e} where that of |ΔL| is {median['increment']:.1e}: a bound so "
        "far away says nothing about what is bounded.",
    )


def _printed_numbers() -> Finding:
    errors = {data: row.max_relative_error for data, row in printed.PROXY.items()}
    rates = {data: row.over_delete for data, row in printed.PROXY.items()}
    beyond = [f"{printed.DATA[d]} {e:g} % error" for d, e in errors.items() if e > printed.PROXY_BOUND]
    beyond += [f"{printed.DATA[d]} {r:g} % over-delete" for d, r in rates.items() if r > printed.OVER_DELETE_BOUND]
    return Finding(
        f"Table A2 shows errors of at most {printed.PROXY_BOUND:g} % and over-delete of at most "
        f"{printed.OVER_DELETE_BOUND:g} %.",
        judged(not beyond),
        f"Printed beyond these bounds: {', '.join(beyond)}." if beyond else "All printed numbers are within them.",
    )


def proxy_scatter(increments: Array, proxies: Mapping[str, Array], facts: Mapping[str, Mapping[str, float]]) -> bytes:
    """Draw each proxy over the true increments, with y = x and ±8 % around it; both axes to the fourth root."""
    with figure_png((4.1 * len(proxies) + 0.4, 4.2)) as (figure, png):
        axes = figure.subplots(1, len(proxies), squeeze=False).ravel()
        for panel, (name, proxy) in zip(axes, proxies.items(), strict=True):
            reach = float(max(np.abs(increments).max(), np.abs(proxy).max(), 1e-30))
            line = np.sign(np.linspace(-1, 1, 201)) * np.linspace(-1, 1, 201) ** 4 * reach
            panel.fill_between(_root(line), _root(0.92 * line), _root(1.08 * line), color=COLOURS[5], alpha=0.35)
            panel.plot(_root(line), _root(line), color=GREY, linestyle="--", linewidth=1)
            panel.scatter(_root(increments), _root(proxy), s=9, color=COLOURS[0], alpha=0.5, linewidths=0)
            ticks = np.array([-1, -0.1, 0, 0.1, 1]) * 10 ** np.floor(np.log10(reach))
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_ticks(_root(ticks), [f"{tick:.0e}" if tick else "0" for tick in ticks])
            rho = facts[name]["spearman"]
            rank = "" if rho is None else f"Spearman ρ = {rho:.3f}, "
            panel.set_title(f"{name.replace('_', '–')}\n", fontsize=10)
            inside = f"{100 * facts[name]['share_within_8_percent']:.0f} % within ±8 %"
            panel.text(0, 1.02, rank + inside, transform=panel.transAxes, color="#666666")
            panel.set_xlabel("true increment ΔL")
        axes[0].set_ylabel("proxy")
    return png.getvalue()


def _root(values: Array) -> Array:
    """Spread values near zero: increments span many powers of ten on both sides of it."""
    return np.asarray(np.sign(values) * np.abs(values) ** 0.25)
