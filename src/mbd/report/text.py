"""Plain text for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return aligned columns: the first to the left, the others to the right."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        return "  " + "  ".join([first, *rest]).rstrip()

    return "\n".join(line(row) for row in cells)


def features_summary(summary: Mapping[str, Any]) -> str:
    """Return a FeatureSet's summary for reading."""
    modalities = summary["modalities"]
    parts = [
        f"{summary['name']}: {summary['task']}, " + ", ".join(f"{name} {dim}" for name, dim in modalities.items()),
        "",
        table(
            ["split", "rows", *(f"{m} there %" for m in modalities)],
            [[s, n, *summary["available_percent"][s].values()] for s, n in summary["rows"].items()],
        ),
        "",
        _by_row("labels", summary["labels"]),
        "",
        _by_row("ridge on test", summary["ridge"]),
    ]
    if summary["notes"]:
        parts += ["", *(f"note: {name}: {_note(value)}" for name, value in summary["notes"].items())]
    return "\n".join(parts)


def _by_row(title: str, values: Mapping[str, Mapping[str, object]]) -> str:
    columns = list(dict.fromkeys(key for row in values.values() for key in row))
    return table([title, *columns], [[name, *(row.get(c, "–") for c in columns)] for name, row in values.items()])


def _note(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
