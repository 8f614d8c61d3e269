"""Tiny cells, made by the very commands that `python -m studies.cell` runs."""

import csv
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

from mbd.cli import group
from studies import cell
from studies.layout import Layout
from studies.outcome import Finding, StudyOutcome, write_outcome
from studies.plan import StudyBudget, StudyPlan

ROWS = {"train": 160, "valid": 48, "test": 64, "calibration": 64}
DIMS = {"text": 12, "audio": 6, "visual": 8}
TINY = {"model.joint.hidden": 16, "model.joint.embedding": 8, "model.joint.property_dim": 8, "training.epochs": 2}
OFF = {
    "no-property": {"model.joint.property_pathway": False},
    "no-reconstruction": {"model.joint.reconstruction": False},
    "no-fusion": {"model.joint.fusion": False},
    "no-property-no-reconstruction": {"model.joint.property_pathway": False, "model.joint.reconstruction": False},
    "bare": {
        "model.joint.property_pathway": False,
        "model.joint.reconstruction": False,
        "model.joint.fusion": False,
    },
}


def small_plan(
    data: str = "mosi",
    *,
    name: str = "synthetic",
    dims: dict[str, int] | None = None,
    classes: int = 0,
    seeds: tuple[int, ...] = (0, 1, 2),
    variants: tuple[str, ...] = tuple(OFF),
) -> StudyPlan:
    """A plan about one small data set."""
    dims = dims or DIMS
    source = "features.source.synthetic"
    settings: dict[str, dict[str, Any]] = {
        data: {f"{source}.dims": dims, f"{source}.rows": ROWS, f"{source}.classes": classes},
        "joint": {"model.backbone": "joint", **TINY},
        "lattice": {"model.backbone": "lattice", "model.lattice.landmarks": 16, "model.lattice.folds": 3},
        **{variant: {**TINY, **OFF[variant]} for variant in variants},
    }
    return StudyPlan(
        name=name,
        source="nowhere",
        main=data,
        compared=(data,),
        revoked=list(dims)[1],
        seeds=seeds,
        backbones=("joint", "lattice"),
        variants=variants,
        deletions=("surgery", "exact"),
        calibrations=(32, 64),
        scans=("budget-0_01",),
        budget=StudyBudget(samples=1000, deletions=3, epsilons=(1.0,)),
        settings=settings,
    )


def run(kind: str, layout: Layout, *names: str) -> None:
    """Run one cell, in this process; an evaluation without its figures, which take most of its time."""
    more = ["--set", "evaluation.figures=false"] if kind == "evaluate" else []
    group([*cell.CELLS[kind](layout, *names), *more], prog_name="mbd", standalone_mode=False)


def make_cells(layout: Layout) -> Layout:
    """Make features, models and evaluations of a plan, where no `params.yaml` has a say."""
    plan = layout.plan
    layout.root.mkdir(parents=True, exist_ok=True)
    with chdir(layout.root):
        run("features", layout, plan.main)
        for model in (*plan.backbones, *plan.variants):
            for seed in plan.seeds:
                run("train", layout, plan.main, model, str(seed))
        run("evaluate", layout, plan.main)
        run("evaluate", layout, "ablation")
    return layout


def in_folder(folder: Path, plan: StudyPlan) -> Layout:
    """Return the layout of a plan below `folder`."""
    return Layout(plan, folder / plan.name)


def with_scores(layout: Layout, group: str, folder: Path, change: Callable[[dict[str, str]], None]) -> Layout:
    """Copy a layout with the lines of an evaluation's `regimes.csv` changed."""
    shutil.copytree(layout.root, folder / layout.plan.name)
    other = Layout(layout.plan, folder / layout.plan.name)
    file = other.evaluation(group) / "regimes.csv"
    with file.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    for line in lines:
        change(line)
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return other


def verdict(outcome: StudyOutcome, words: str) -> str:
    """Return the verdict on the one claim that has these words in it."""
    return finding(outcome, words).verdict


def finding(outcome: StudyOutcome, words: str) -> Finding:
    """Return the one finding whose claim has these words in it."""
    (found,) = [finding for finding in outcome.findings if words in finding.claim]
    return found


def written(outcome: StudyOutcome, folder: Path) -> dict[str, bytes]:
    """Write an outcome, and return the bytes of every file."""
    write_outcome(outcome, folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}
