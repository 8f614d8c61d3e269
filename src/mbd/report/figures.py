"""Figures of training, evaluation and audits, as PNG bytes."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from mbd.evaluation.metrics import TITLES
from mbd.evaluation.regimes import Condition
from mbd.evaluation.results import EvaluatedMethod, Results
from mbd.formats.leakage import Interval, LeakageRecord
from mbd.report.page.audit import audit_plots
from mbd.report.page.content import Plot
from mbd.report.page.plot import ROLES, Scale
from mbd.report.page.plot import TITLES as ROLE_TITLES
from mbd.tensors import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_INK = "#222222"
_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": _INK,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.dpi": 150,
    "savefig.dpi": 150,
}


@contextmanager
def figure_png(size: tuple[float, float]) -> Iterator[tuple["Figure", io.BytesIO]]:
    """Give a figure to draw on and the buffer that has its PNG afterwards."""
    import matplotlib as mpl  # noqa: PLC0415 -- part of an extra, and slow to import
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    png = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, png
        figure.savefig(png, format="png", metadata={"Software": None})


History = Mapping[str, Array]
"""values by column: `epoch` and each loss term"""

_GREYS = ("#444444", "#777777", "#a0a0a0")
_DASHES = ((0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
_TERMS = {
    "total": "$L$, total",
    "task": "$L_\\mathrm{task}$",
    "reconstruction": "$L_\\mathrm{re}$, reconstruction",
    "property": "$L_\\mathrm{pe}$, property",
    "contrastive": "$L_\\mathrm{con}$, contrast",
    "orthogonality": "$L_\\mathrm{or}$, orthogonality",
    "invariance": "$L_\\mathrm{inv}$, invariance",
    "decomposition": "$\\hat{L}_\\mathrm{re}$, decomposition",
    "alignment": "$L_\\mathrm{app}$, alignment",
    "valid_mae": "MAE on valid",
    "valid_cross_entropy": "cross-entropy on valid",
}


def loss_curves(histories: Sequence[History], title: str) -> bytes:
    """Draw each loss term over the epochs in its own panel: a thin line per seed, a thick line for their mean."""
    terms = [name for name in histories[0] if name != "epoch"]
    columns = min((3, 4, 5), key=lambda c: (-len(terms) % c, c))
    rows = -(-len(terms) // columns)
    with figure_png((2.5 * columns, 2.0 * rows + 0.5)) as (figure, png):
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, term in zip(axes, terms, strict=False):
            _curve(panel, histories, term)
            panel.set_title(_TERMS.get(term, term.replace("_", " ")))
        for panel in axes[len(terms) :]:
            panel.set_visible(False)
        for panel in axes[max(0, len(terms) - columns) : len(terms)]:
            panel.set_xlabel("epoch")
        figure.supylabel("mean over the rows of an epoch", fontsize=9)
        seeds = f"{len(histories)} seeds, mean in bold" if len(histories) > 1 else "1 seed"
        figure.suptitle(f"{title}: losses over epochs ({seeds})", x=0.01, ha="left")
    return png.getvalue()


def _curve(panel: "Axes", histories: Sequence[History], term: str) -> None:
    """Draw one term. Seeds may stop at different epochs; the mean is over those that still run."""
    longest = max((h["epoch"] for h in histories), key=len)
    values = np.full((len(histories), len(longest)), np.nan)
    for row, history in enumerate(histories):
        if term in history:
            values[row, : len(history[term])] = history[term]
    known = np.isfinite(values).any(0)
    if len(histories) > 1:
        panel.plot(longest, values.T, color=COLOURS[0], alpha=0.3, linewidth=0.8)
    panel.plot(longest[known], np.nanmean(values[:, known], axis=0), color=COLOURS[0])
    panel.set_xlim(longest[0], max(longest[-1], longest[0] + 1))
    panel.locator_params(axis="x", integer=True)


def metric_over_rates(results: Results) -> bytes:
    """Draw the primary metric over the missing rate η, with its standard deviation; baselines are grey and dashed."""
    regimes = [*results.regimes("full"), *results.regimes("rate")]
    rates = [regime.rate or 0.0 for regime in regimes]
    with figure_png((6.4, 4.0)) as (figure, png):
        panel = figure.subplots()
        for method, style in _styles(results.methods):
            spreads = [method.spread(Condition(regime.name), results.primary) for regime in regimes]
            means = np.array([s.mean if s else np.nan for s in spreads])
            deviations = np.array([(s and s.deviation) or 0.0 for s in spreads])
            panel.plot(rates, means, label=method.name, **style)
            if deviations.any():
                panel.fill_between(
                    rates, means - deviations, means + deviations, color=style["color"], alpha=0.15, linewidth=0
                )
        panel.set_xlabel("missing rate η (share of inputs hidden)")
        panel.set_ylabel(f"{TITLES[results.primary]} (%)")
        panel.set_xticks(rates, [f"{rate:.2g}" for rate in rates])
        panel.set_title(f"{TITLES[results.primary]} over the missing rate")
        figure.legend(loc="outside lower center", ncols=min(len(results.methods), 4))
    return png.getvalue()


def metric_by_pattern(results: Results) -> bytes:
    """Draw the primary metric for each fixed pattern: a point per method, with an error bar of one deviation."""
    regimes = [*results.regimes("fixed"), *results.regimes("full")]
    positions = np.arange(len(regimes))
    with figure_png((6.4, 1.6 + 0.42 * len(regimes))) as (figure, png):
        panel = figure.subplots()
        shifts = np.linspace(-0.3, 0.3, len(results.methods)) if len(results.methods) > 1 else [0.0]
        for shift, (method, style) in zip(shifts, _styles(results.methods), strict=True):
            spreads = [method.spread(Condition(regime.name), results.primary) for regime in regimes]
            means = [s.mean if s else np.nan for s in spreads]
            deviations = [(s and s.deviation) or 0.0 for s in spreads]
            panel.errorbar(
                means,
                positions + shift,
                xerr=deviations if any(deviations) else None,
                label=method.name,
                color=style["color"],
                marker=style["marker"],
                markersize=5,
                linestyle="none",
                elinewidth=1.2,
            )
        for position in positions[::2]:
            panel.axhspan(position - 0.5, position + 0.5, color="#f5f5f5", zorder=0)
        panel.grid(False, axis="y")
        panel.set_ylim(len(regimes) - 0.5, -0.5)
        panel.set_yticks(positions, [regime.name for regime in regimes])
        panel.set_xlabel(f"{TITLES[results.primary]} (%)")
        panel.set_title(f"{TITLES[results.primary]} by available modalities")
        figure.legend(loc="outside lower center", ncols=min(len(results.methods), 4))
    return png.getvalue()


def _styles(methods: Sequence[EvaluatedMethod]) -> Iterator[tuple[EvaluatedMethod, dict[str, Any]]]:
    models = baselines = 0
    for method in methods:
        if method.baseline:
            style = {"color": _GREYS[baselines % 3], "linestyle": _DASHES[baselines % 3], "linewidth": 1.2}
            yield method, style | {"marker": "x+1"[baselines % 3], "markersize": 4}
            baselines += 1
        else:
            yield method, {"color": COLOURS[models % 6], "marker": "os^Dv*"[models % 6], "markersize": 4}
            models += 1


_STYLES = {
    "before": {"color": COLOURS[1], "marker": "s"},
    "after": {"color": COLOURS[0], "marker": "o"},
    "reference": {"color": COLOURS[2], "marker": "D"},
}
_SHIFTS = {"before": -0.24, "after": 0.0, "reference": 0.24}
_GREY = "#888888"
_BAND = "#d9e6dd"
_REFUSED = "#b00020"


def draw_leakage(record: LeakageRecord) -> dict[str, bytes]:
    """Return the forest plots of an audit by name."""
    return {plot.name: forest_plot(plot) for plot in audit_plots(record)}


def forest_plot(plot: Plot) -> bytes:
    """Draw each measure on each model with its interval, the tolerance around the reference, and chance."""
    measures, scale = plot.measures, Scale(plot.measures)
    rows = np.arange(len(measures))
    with figure_png((9.6, 1.5 + 0.4 * len(measures))) as (figure, png):
        panel = figure.subplots()
        for role in ROLES:
            _points(panel, rows + _SHIFTS[role], [getattr(measure, role) for measure in measures], role, scale)
        for row, measure in enumerate(measures):
            label = "chance" if not row else None
            panel.plot([measure.chance] * 2, [row - 0.4, row + 0.4], color=_GREY, linewidth=1.2, ls="--", label=label)
            if measure.reference and measure.tolerance is not None:
                middle, tolerance = measure.reference.value, measure.tolerance
                left, right = scale.clamp(middle - tolerance), scale.clamp(middle + tolerance)
                panel.fill_between([left, right], row - 0.4, row + 0.4, color=_BAND, linewidth=0, zorder=0)
        panel.grid(False, axis="y")
        margin = 0.02 * (scale.high - scale.low)
        panel.set_xlim(scale.low - margin, scale.high + margin)
        panel.set_ylim(len(measures) - 0.5, -0.5)
        panel.set_yticks(rows, [measure.label for measure in measures], fontsize=8)
        for tick, measure in zip(panel.get_yticklabels(), measures, strict=True):
            if measure.decision == "refused":
                tick.set_color(_REFUSED)
                tick.set_fontweight("bold")
        panel.set_xlabel("more is more leakage; shaded: tolerance around the reference")
        figure.suptitle(plot.title, x=0.01, ha="left", fontweight="bold", fontsize=10)
        figure.legend(loc="outside lower center", ncols=4)
    return png.getvalue()


def _points(panel: "Axes", rows: Array, found: Sequence[Interval | None], role: str, scale: Scale) -> None:
    known = [(row, interval) for row, interval in zip(rows, found, strict=True) if interval is not None]
    if not known:
        return
    values, low, high = (
        np.array([scale.clamp(getattr(interval, side)) for _, interval in known]) for side in ("value", "low", "high")
    )
    panel.errorbar(
        values,
        [row for row, _ in known],
        xerr=np.maximum([values - low, high - values], 0),
        label=ROLE_TITLES[role],
        linestyle="none",
        markersize=4.5,
        elinewidth=1.2,
        color=_STYLES[role]["color"],
        marker=_STYLES[role]["marker"],
    )
