"""Studies as they were written to disk, read back for the page and for the handbook."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbd.files import read_json
from studies.outcome import Finding, Verdict

ORDER = (
    "full-modality",
    "missing-patterns",
    "missing-rates",
    "ablation",
    "corruption",
    "loss-curves",
    "tsne",
    "deletion",
    "trade-off",
    "sensitivity",
    "runtime",
    "proxy",
    "budget",
    "peers",
)
"""the order of the paper: what the model is worth, then what its deletion is worth; last what the paper leaves out"""
VERDICTS: Sequence[Verdict] = ("holds", "does not hold", "not comparable")
_PRINTED = " (printed in the paper)"


@dataclass(frozen=True)
class ShownFigure:
    """A table as Markdown, with the line above it and the one below."""

    title: str
    printed: bool
    table: str
    note: str


@dataclass(frozen=True)
class Study:
    """One study of one result folder."""

    folder: Path
    name: str
    title: str
    question: str
    findings: tuple[Finding, ...]
    figures: tuple[Path, ...]
    tables: tuple[ShownFigure, ...]

    @property
    def command(self) -> str:
        """What makes it, on synthetic data."""
        return f"make study NAME={self.name}"


def read_studies(root: Path) -> list[Study]:
    """Read every study below `root`, in the order of the paper; others come last, by name."""
    folders = {file.parent.name: file.parent for file in (root / "studies").glob("*/study.json")}
    names = [*(name for name in ORDER if name in folders), *sorted(set(folders) - set(ORDER))]
    return [_read(folders[name]) for name in names]


def count(findings: Sequence[Finding]) -> dict[Verdict, int]:
    """Return how often each verdict was given."""
    return {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in VERDICTS}


def counted(findings: Sequence[Finding]) -> str:
    """Return how often each verdict was given, as part of a sentence."""
    found = count(findings)
    holds, fails, rest = found["holds"], found["does not hold"], found["not comparable"]
    return (
        f"{holds} {'holds' if holds == 1 else 'hold'}, {fails} {'does' if fails == 1 else 'do'} not hold, "
        f"and {rest} cannot be compared"
    )


def _read(folder: Path) -> Study:
    content: dict[str, Any] = read_json(folder / "study.json")
    return Study(
        folder=folder,
        name=content["name"],
        title=content["title"],
        question=content["question"],
        findings=tuple(Finding(**finding) for finding in content["findings"]),
        figures=tuple(folder / f"{name}.png" for name in content["figures"]),
        tables=tuple(_tables((folder / "report.md").read_text("utf-8").split("\n\n"))),
    )


def _tables(blocks: Sequence[str]) -> list[ShownFigure]:
    """Find the tables of a report, with what is written around them; clock readings are only there."""
    found = []
    for place, block in enumerate(blocks):
        if block.startswith("| "):
            title, after = blocks[place - 1], blocks[place + 1] if place + 1 < len(blocks) else ""
            note = "" if after.startswith(("**", "- *", "Made by")) else after
            printed = title.endswith(_PRINTED)
            found.append(ShownFigure(title.removesuffix(_PRINTED).strip("*"), printed, block, note))
    return found
