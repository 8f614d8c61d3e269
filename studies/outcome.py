"""What every study is: a question, tables, figures, and findings about what the paper claims.

A study is a module with `study(layout) -> Outcome`; `python -m studies.write NAME` writes it:

    study.json       everything, for machines; the same cells give the same bytes
    report.md        the same for reading
    NAME.png         figures

What differs from run to run (clock readings) never enters study.json: see `Outcome.readings`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mbd.evaluation.results import Spread
from mbd.files import STEP_FILE, to_json, write_file
from mbd.outputs import whole_folder

Verdict = Literal["holds", "does not hold", "not comparable"]
Cell = str | int | float | Spread | None


@dataclass(frozen=True)
class StudyTable:
    """A table; a Spread is shown as mean ± deviation, None as a dash."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int | Sequence[int] = 1
    """decimals of every column, or of each"""
    note: str = ""
    printed: bool = False
    """whether these are the paper's own numbers"""


@dataclass(frozen=True)
class Finding:
    """What became of one claim of the paper; `reason` gives the numbers and what we do instead."""

    claim: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class StudyOutcome:
    """One study."""

    name: str
    title: str
    question: str
    tables: Sequence[StudyTable]
    findings: Sequence[Finding]
    figures: Mapping[str, bytes] = field(default_factory=dict)
    """PNG by name"""
    data: Mapping[str, Any] = field(default_factory=dict)
    """what tables round or leave out, for machines"""
    readings: Sequence[StudyTable] = ()
    """tables of clock readings: shown, but not in study.json"""


def write_outcome(outcome: StudyOutcome, folder: Path) -> None:
    """Write a study, whole or not at all."""
    with whole_folder(folder, "study") as temporary:
        write_file(temporary / STEP_FILE, to_json({"step": "study"}))  # by which it may be written again
        write_file(temporary / "study.json", to_json(_plain(outcome)))
        write_file(temporary / "report.md", markdown(outcome, level=1))
        for name, png in outcome.figures.items():
            write_file(temporary / f"{name}.png", png)


def markdown(outcome: StudyOutcome, *, level: int, pictures: str = "") -> str:
    """Return a study as Markdown; `pictures` comes before the names of figures."""
    head = "#" * level
    parts = [f"{head} {outcome.title}", outcome.question]
    parts += [f"![{outcome.title}: {name.replace('-', ' ')}]({pictures}{name}.png)" for name in outcome.figures]
    for table in (*outcome.tables, *outcome.readings):
        mark = " (printed in the paper)" if table.printed else ""
        parts += [f"**{table.title}**{mark}", _table(table), *([table.note] if table.note else [])]
    parts += [f"- *{finding.claim}* **{finding.verdict}**: {finding.reason}" for finding in outcome.findings]
    parts.append(f"Made by `make study NAME={outcome.name}`.")
    return "\n\n".join(parts) + "\n"


def _table(table: StudyTable) -> str:
    lines = [list(table.header), ["---", *["---:"] * (len(table.header) - 1)]]
    digits = [table.digits] * len(table.header) if isinstance(table.digits, int) else table.digits
    lines += [[cell_text(cell, d) for cell, d in zip(row, digits, strict=True)] for row in table.rows]
    return "\n".join(f"| {' | '.join(text.replace('|', '&#124;') for text in line)} |" for line in lines)


def cell_text(cell: Cell, digits: int) -> str:
    """Return a cell as it is shown."""
    if cell is None:
        return "–"
    if isinstance(cell, Spread):
        more = "" if cell.deviation is None else f" ± {cell.deviation:.{digits}f}"
        return f"{cell.mean:.{digits}f}{more}"
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)


def _plain(outcome: StudyOutcome) -> dict[str, Any]:
    def value(cell: Cell) -> object:
        return {"mean": cell.mean, "deviation": cell.deviation} if isinstance(cell, Spread) else cell

    return {
        "name": outcome.name,
        "title": outcome.title,
        "question": outcome.question,
        "figures": list(outcome.figures),
        "tables": [
            {
                "title": table.title,
                "printed": table.printed,
                "note": table.note,
                "digits": table.digits if isinstance(table.digits, int) else list(table.digits),
                "header": list(table.header),
                "rows": [[value(cell) for cell in row] for row in table.rows],
            }
            for table in outcome.tables
        ],
        "findings": [vars(finding) for finding in outcome.findings],
        "data": dict(outcome.data),
    }
