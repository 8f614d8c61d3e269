"""Pictures of an audit as PNG: the forest plot of its measures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mbd.formats.leakage import Interval, LeakageRecord
from mbd.report.drawing import COLOURS, figure_png
from mbd.report.page.audit import audit_plots
from mbd.report.page.content import Plot
from mbd.report.page.plot import ROLES, TITLES, Scale
from mbd.tensors import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        label=TITLES[role],
        linestyle="none",
        markersize=4.5,
        elinewidth=1.2,
        color=_STYLES[role]["color"],
        marker=_STYLES[role]["marker"],
    )
