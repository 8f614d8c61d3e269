"""Plain text for the terminal."""

from collections.abc import Sequence


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


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
