"""A forest plot as HTML: a line of text and an SVG strip for each measure, all on one scale.

Positions along a strip are percentages of its width, so it fits a phone and a sheet of paper without shrinking its
text. Colour never carries meaning alone: every model has its own shape, and each strip has a description in words.
"""

from collections.abc import Iterator, Sequence
from html import escape

from mbd.formats.leakage import Interval
from mbd.report.page.content import MeasureRow, Plot, estimate

ROLES = ("before", "after", "reference")
_SHAPES = {
    "before": '<rect x="-4" y="-4" width="8" height="8"/>',
    "after": '<circle r="4.5"/>',
    "reference": '<path d="M0 -5.5 5.5 0 0 5.5 -5.5 0Z"/>',
}
_LINES = {"before": 8, "after": 20, "reference": 32}
TITLES = {"before": "before the deletion", "after": "released model", "reference": "reference: never saw it"}
_LOWEST = -0.25
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def plot_html(plot: Plot, identity: str) -> str:
    """Return the strips of a plot with their legend; `identity` begins the ids in it."""
    scale = Scale(plot.measures)
    strips = "".join(_strip(measure, scale, f"{identity}-{n}") for n, measure in enumerate(plot.measures))
    return f'{_legend()}<ol class="strips">{_axis(scale)}{strips}</ol>'


class Scale:
    """From 0 to 1, extended to the intervals of the measures, but never below −0.25: R² has no lower limit."""

    def __init__(self, measures: Sequence[MeasureRow]) -> None:
        intervals = [m for measure in measures for m in (measure.before, measure.after, measure.reference) if m]
        self.low = max(_LOWEST, min([0.0, *(interval.low for interval in intervals)]))
        self.high = max([1.0, *(interval.high for interval in intervals)])

    def clamp(self, value: float) -> float:
        """Return a value, or the edge of the scale that it lies beyond."""
        return min(max(value, self.low), self.high)

    def position(self, value: float) -> float:
        """Return the position of a value in percent of the width."""
        return 100 * (self.clamp(value) - self.low) / (self.high - self.low)

    def percent(self, value: float) -> str:
        """Return the position as an SVG length."""
        return f"{self.position(value):.2f}%"


def _strip(measure: MeasureRow, scale: Scale, identity: str) -> str:
    label = escape(measure.label)
    values = "; ".join(f"{TITLES[role]} {estimate(getattr(measure, role))}" for role in ROLES)
    return (
        f'<li><p class="label">{label} <span class="decision {escape(measure.decision)}">{escape(measure.outcome)}'
        f'</span></p><svg role="img" width="100%" height="40" aria-labelledby="{identity}-t {identity}-d">'
        f'<title id="{identity}-t">{label}</title>'
        f'<desc id="{identity}-d">{escape(values)}; chance {measure.chance:.3g}; {escape(measure.outcome)}</desc>'
        f"{''.join(_drawn(measure, scale))}</svg></li>\n"
    )


def _drawn(measure: MeasureRow, scale: Scale) -> Iterator[str]:
    if measure.reference and measure.tolerance is not None:
        middle = measure.reference.value
        left, right = (scale.position(middle + sign * measure.tolerance) for sign in (-1, 1))
        yield f'<rect class="band" x="{left:.2f}%" y="0" width="{right - left:.2f}%" height="40"/>'
    chance = scale.percent(measure.chance)
    yield f'<line class="chance" x1="{chance}" x2="{chance}" y1="0" y2="40"/>'
    for role in ROLES:
        interval: Interval | None = getattr(measure, role)
        if interval:
            yield _point(interval, role, scale)


def _point(found: Interval, role: str, scale: Scale) -> str:
    line = _LINES[role]
    return (
        f'<g class="{role}"><line x1="{scale.percent(found.low)}" x2="{scale.percent(found.high)}" y1="{line}" '
        f'y2="{line}"/><svg x="{scale.percent(found.value)}" y="{line}" overflow="visible">{_SHAPES[role]}</svg></g>'
    )


def _axis(scale: Scale) -> str:
    marks = "".join(
        f'<line x1="{scale.percent(tick)}" x2="{scale.percent(tick)}" y1="14" y2="20"/>'
        f'<text x="{scale.percent(tick)}" y="11">{tick:g}</text>'
        for tick in _TICKS
    )
    return f'<li class="axis" aria-hidden="true"><svg width="100%" height="20">{marks}</svg></li>\n'


def _legend() -> str:
    entries = "".join(
        f'<li><svg width="16" height="16" aria-hidden="true"><g class="{role}"><svg x="8" y="8" overflow="visible">'
        f"{_SHAPES[role]}</svg></g></svg> {TITLES[role]}</li>"
        for role in ROLES
    )
    return f'<ul class="legend">{entries}</ul>\n'
