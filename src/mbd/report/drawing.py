"""How all figures look, and how they become PNG bytes; the same numbers give the same bytes.

Nothing is drawn on a screen, and no date or version is written into a file.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mbd.errors import MissingExtraError

if TYPE_CHECKING:
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
    try:
        import matplotlib as mpl  # noqa: PLC0415 -- part of an extra, and slow to import
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("drawing figures", "train", "matplotlib") from error
    png = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, png
        figure.savefig(png, format="png", metadata={"Software": None})
