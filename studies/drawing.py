"""Figures that several studies share: dots by row, and lines over a rate; the paper's numbers are hollow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mbd.evaluation.results import Spread
from mbd.report.figures import COLOURS, figure_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREYS = ("#555555", "#808080", "#a5a5a5")
PRINTED = ("#8c4a79", "#b3719f", "#d3a3c4")
_DASHES = ((0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
_MARKERS = {"model": "os^v*h", "baseline": "x+.", "printed": "Ds^"}


@dataclass(frozen=True)
class Series:
    """One method: a number for each row, None where there is none."""

    name: str
    values: Sequence[Spread | float | None]
    kind: Literal["model", "baseline", "printed"] = "model"
    style: dict[str, Any] = field(default_factory=dict)

    @property
    def means(self) -> list[float]:
        """The numbers, NaN where there is none."""
        return [
            value.mean if isinstance(value, Spread) else float("nan") if value is None else value
            for value in self.values
        ]

    @property
    def deviations(self) -> list[float]:
        """The deviations over seeds, 0 where there is none."""
        return [(value.deviation or 0.0) if isinstance(value, Spread) else 0.0 for value in self.values]


def dots(rows: Sequence[str], series: Sequence[Series], *, title: str, xlabel: str, zero: bool = False) -> bytes:
    """Draw a dot for each row and method, with a bar for the deviation over seeds; `zero` marks where x is 0."""
    places = np.arange(len(rows))
    height = max(0.42, 0.085 * len(series))
    with figure_png((6.8, 1.7 + height * len(rows))) as (figure, png):
        panel = figure.subplots()
        shifts = np.linspace(-0.32, 0.32, len(series)) if len(series) > 1 else np.zeros(1)
        for shift, one in zip(shifts, _styled(series), strict=True):
            style = {name: value for name, value in one.style.items() if name not in ("linestyle", "linewidth")}
            bars = one.deviations if any(one.deviations) else None
            panel.errorbar(
                one.means, places + shift, xerr=bars, label=one.name, linestyle="none", elinewidth=1.2, **style
            )
        for place in places[::2]:
            panel.axhspan(place - 0.5, place + 0.5, color="#f5f5f5", zorder=0)
        if zero:
            panel.axvline(0, color="#888888", linewidth=1)
        panel.grid(False, axis="y")
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.set_yticks(places, rows)
        panel.set_xlabel(xlabel)
        panel.set_title(title)
        figure.legend(loc="outside lower center", ncols=min(len(series), 4))
    return png.getvalue()


def lines(x: Sequence[float], series: Sequence[Series], *, title: str, xlabel: str, ylabel: str) -> bytes:
    """Draw a line for each method over x, with a band for the deviation over seeds."""
    with figure_png((6.8, 4.4)) as (figure, png):
        panel: Axes = figure.subplots()
        for one in _styled(series):
            means, deviations = np.array(one.means), np.array(one.deviations)
            panel.plot(x, means, label=one.name, **one.style)
            if deviations.any():
                band = {"color": one.style["color"], "alpha": 0.15, "linewidth": 0}
                panel.fill_between(x, means - deviations, means + deviations, **band)
        panel.set(xlabel=xlabel, ylabel=ylabel)
        panel.set_xticks(x, [f"{value:.2g}" for value in x])
        panel.set_title(title)
        figure.legend(loc="outside lower center", ncols=min(len(series), 4))
    return png.getvalue()


def _styled(series: Sequence[Series]) -> list[Series]:
    """Give every series its colour and marker: models in colour, baselines grey, the paper's hollow."""
    seen = {"model": 0, "baseline": 0, "printed": 0}
    styled = []
    for one in series:
        place = seen[one.kind]
        seen[one.kind] += 1
        markers = _MARKERS[one.kind]
        style: dict[str, Any] = {"marker": markers[place % len(markers)], "markersize": 5}
        if one.kind == "model":
            style |= {"color": COLOURS[place % len(COLOURS)]}
        elif one.kind == "baseline":
            style |= {"color": _GREYS[place % 3], "linestyle": _DASHES[place % 3], "linewidth": 1.2}
        else:
            style |= {"color": PRINTED[place % 3], "markerfacecolor": "white", "linewidth": 1.2}
        styled.append(Series(one.name, one.values, one.kind, style | one.style))
    return styled


@dataclass(frozen=True)
class Panel:
    """A metric: for each row its value and the ends of its interval."""

    title: str
    values: Sequence[tuple[float, float, float]]


def intervals(rows: Sequence[str], panels: Sequence[Panel], *, title: str, across: int) -> bytes:
    """Draw a panel for each metric, a dot and its interval for each row; a band marks the interval of the first."""
    down = -(-len(panels) // across)
    with figure_png((3.0 * across, (0.9 + 0.24 * len(rows)) * down + 0.3)) as (figure, png):
        grid = figure.subplots(down, across, sharey=True, squeeze=False)
        places = np.arange(len(rows))
        for panel, drawn in zip(grid.ravel(), panels, strict=False):
            value, low, high = np.array(drawn.values).T
            panel.axvspan(low[0], high[0], color="#f0f0f0", zorder=0)
            for place in places:
                colour = COLOURS[place % len(COLOURS)]
                panel.plot([low[place], high[place]], [place, place], color=colour, linewidth=1.2)
                panel.plot(value[place], place, "o", color=colour, markersize=5)
            panel.grid(False, axis="y")
            panel.set_title(drawn.title)
            panel.set_ylim(len(rows) - 0.5, -0.5)
            panel.set_yticks(places, rows)
        for panel in grid.ravel()[len(panels) :]:
            panel.set_axis_off()
        figure.suptitle(title)
    return png.getvalue()
