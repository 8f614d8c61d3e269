"""Runtime: a deletion by its phases, against training without the modality.

Seconds depend on the machine, so they are readings beside the study. What can be compared anywhere is work: how often a
row goes through the network and gradients come back, times the parameters that they go through.

    surgery       |B| rows through G_m and P^m (saliency); |B| rows, 1 + K gradients each, through all that predictions
                  without the modality use (importance; K: outputs of the head)
    certified     the train rows, in every epoch of fine-tuning, through the whole model
    exact         nothing: modules are dropped
    retraining    the train rows, in every epoch, through the whole model (the lattice is fitted in closed form)
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from mbd.evaluation.results import Spread, spread
from mbd.features.contract import FeatureSet
from mbd.files import STEP_FILE, read_json
from mbd.formats.deletion import DeletionRecord
from mbd.formats.files import MODEL
from mbd.formats.model import ModelRecord
from mbd.training.trained import HISTORY
from studies import printed
from studies.audits import Kind, kind_of
from studies.cell import backbone_of
from studies.claims import judged
from studies.layout import Layout
from studies.outcome import Cell, Finding, StudyOutcome, StudyTable

COMPARABLE = 0.5
"""share of the printed ratio from which on it counts as reached"""
_ARITHMETIC = 0.05


@dataclass(frozen=True)
class Work:
    """What a deletion or a training computes, counted."""

    name: str
    rows: int
    """rows it looks at"""
    epochs: int | None
    passes: int | None
    """rows × gradients; None where there are no gradients"""
    products: int | None
    """rows × gradients × the parameters that they go through"""

    def against(self, retraining: "Work") -> float | None:
        """Return how many times this work retraining is, where both are counted and not nothing."""
        return retraining.products / self.products if retraining.products and self.products else None


def study(layout: Layout) -> StudyOutcome:
    """Set deletions beside retraining."""
    plan = layout.plan
    records = {name: next(iter(layout.deletions(name).values())) for name in plan.deletions}
    rows = FeatureSet.open(layout.features(plan.main)).manifest.splits["train"].rows
    retraining = {b: _retraining(_first(layout, layout.references(b)), rows, b) for b in plan.backbones}
    deletions = {}
    for name, record in records.items():
        before = _model(_first(layout, layout.models(plan.main, backbone_of(name))))
        deletions[name] = deletion_work(name, record, before, _model(_first(layout, layout.deleted(name))), rows)
    ratios = {name: work.against(retraining[backbone_of(name)]) for name, work in deletions.items()}
    return StudyOutcome(
        name="runtime",
        title="Runtime overhead",
        question=f"How much less is it to delete {plan.revoked} than to train without it?",
        tables=[_table(deletions, retraining, ratios), _printed_table()],
        findings=findings(deletions, retraining, {name: kind_of(record) for name, record in records.items()}),
        data={
            "work": {work.name: vars(work) for work in (*retraining.values(), *deletions.values())},
            "ratios": ratios,
        },
        readings=[_phases_table(layout), _clock_table(layout)],
    )


def _first(layout: Layout, folder: Path) -> Path:
    return next(iter(layout.by_seed(folder).values()))


def _model(folder: Path) -> ModelRecord:
    return ModelRecord.model_validate(read_json(folder / MODEL))


def _size(record: ModelRecord, parts: Sequence[str] = ("",)) -> int:
    """Return the number of parameters in tensors whose names begin with one of `parts`; scalings are none."""
    return sum(
        prod(entry.shape)
        for name, entry in record.tensors.items()
        if name.startswith(tuple(parts)) and not name.endswith(("mean", "scale"))
    )


def _retraining(folder: Path, rows: int, backbone: str) -> Work:
    epochs = read_epochs(folder)
    passes = rows * epochs if epochs else None
    return Work(f"retraining, {backbone}", rows, epochs, passes, passes and passes * _size(_model(folder)))


def read_epochs(folder: Path) -> int | None:
    """Return how many epochs a training took; None where its history is not one of epochs."""
    with (folder / HISTORY).open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    return len(lines) if "epoch" in lines[0] else None


def deletion_work(name: str, record: DeletionRecord, before: ModelRecord, after: ModelRecord, train_rows: int) -> Work:
    """Count what a deletion computes, from its record and those of the models before and after it."""
    facts = record.facts
    if record.method == "exact":
        return Work(name, 0, None, 0, 0)
    if record.method == "certified":
        epochs = int(facts["finetuning"]["epochs"])
        passes = train_rows * epochs
        return Work(name, train_rows, epochs, passes, passes * _size(after))
    generators = {m: (f"modality.{m}.generator.", f"modality.{m}.property") for m in record.request.modalities}
    with_modality = facts["calibration"]["rows_with_modality"]
    saliency = sum(with_modality[m] * _size(before, parts) for m, parts in generators.items())
    importance = int(facts["calibration"]["rows"]) if facts["selection"]["salient"] else 0
    used = _size(after, ("fusion.", "head.", *(part for parts in generators.values() for part in parts)))
    return Work(
        name,
        int(facts["calibration"]["rows"]),
        None,
        sum(with_modality.values()) + importance,
        saliency + importance * used,
    )


def _table(
    deletions: Mapping[str, Work], retraining: Mapping[str, Work], ratios: Mapping[str, float | None]
) -> StudyTable:
    rows: list[list[Cell]] = [[*_cells(work), None] for work in retraining.values()]
    rows += [[*_cells(work), ratios[name]] for name, work in deletions.items()]
    return StudyTable(
        "Work, counted",
        ["", "rows", "epochs", "rows × gradients", "× parameters", "retraining is … times that"],
        rows,
    )


def _cells(work: Work) -> list[Cell]:
    return [work.name, work.rows, work.epochs, work.passes, None if work.products is None else f"{work.products:.2e}"]


def _printed_table() -> StudyTable:
    run = printed.RUNTIME
    rows: list[list[Cell]] = [
        ["saliency", f"{run.saliency:g} s"],
        ["sensitivity bound", f"{run.sensitivity:g} s"],
        ["surgery", f"{run.surgery:g} s"],
        ["deletion in total", f"{run.total:g} s"],
        ["training without the modality", f"{run.retraining / 3600:g} h"],
        ["ratio", f"{run.ratio:g}"],
    ]
    return StudyTable("Runtime on one RTX-3090", ["", "time"], rows, printed=True)


def _phases_table(layout: Layout) -> StudyTable:
    rows: list[list[Cell]] = []
    for name in layout.plan.deletions:
        found = [step["phases_seconds"] for step in _timed(layout, layout.deleted(name))]
        for phase in found[0] if found else ():
            rows.append([name, phase, spread([seconds[phase] for seconds in found])])
    return StudyTable(
        "Seconds of each phase of a deletion, on this machine", ["deletion", "phase", "s"], rows, digits=3
    )


def _clock_table(layout: Layout) -> StudyTable:
    training = {b: _seconds(layout, layout.references(b)) for b in layout.plan.backbones}
    rows: list[list[Cell]] = [[f"retraining, {b}", seconds, None] for b, seconds in training.items()]
    for name in layout.plan.deletions:
        seconds = _seconds(layout, layout.deleted(name))
        whole = training[backbone_of(name)]
        rows.append([name, seconds, whole.mean / seconds.mean if whole and seconds else None])
    return StudyTable(
        "Seconds of the whole command, on this machine",
        ["", "s", "retraining is … times that"],
        rows,
        note="With reading, checking and writing of files; several commands may have run at once. – is what DVC has "
        "brought back from its cache instead of running it.",
    )


def _seconds(layout: Layout, folder: Path) -> Spread | None:
    found = _timed(layout, folder)
    return spread([step["duration_seconds"] for step in found]) if found else None


def _timed(layout: Layout, folder: Path) -> list[dict[str, Any]]:
    """Read the clock of every cell that has run here; DVC's cache does not keep it."""
    files = [cell / STEP_FILE for cell in layout.by_seed(folder).values()]
    return [read_json(file) for file in files if file.is_file()]


def findings(deletions: Mapping[str, Work], retraining: Mapping[str, Work], kinds: Mapping[str, Kind]) -> list[Finding]:
    """Return what became of the paper's claims; clock readings decide nothing."""
    order = ("printed", "uncut", "surgery")
    own = next((name for kind in order for name in deletions if kinds[name] == kind), None)
    found = [_arithmetic()]
    if own is not None and "joint" in retraining:
        found.append(_reduction(deletions[own], retraining["joint"], deletions, kinds))
        found.append(_width())
    return found


def _arithmetic() -> Finding:
    run = printed.RUNTIME
    total, times = run.saliency + run.sensitivity + run.surgery, run.retraining / run.total
    right = total == run.total and abs(times / run.ratio - 1) <= _ARITHMETIC
    return Finding(
        f"{run.total:g} s of three phases against {run.retraining / 3600:g} h are a reduction by ≈ {run.ratio:g}.",
        judged(right),
        f"The printed phases add up to {total:g} s, and the printed times have the ratio {times:.0f}.",
    )


def _reduction(work: Work, training: Work, deletions: Mapping[str, Work], kinds: Mapping[str, Kind]) -> Finding:
    claim = f"Deleting takes ≈ 1/{printed.RUNTIME.ratio:g} of training without the modality."
    times = work.against(training)
    if times is None or not work.products or not training.products or not training.epochs:
        return Finding(claim, "not comparable", "There are no gradients to be counted on one of the two sides.")
    epochs = printed.RUNTIME.ratio / times * training.epochs
    exact = [name for name in deletions if kinds[name] == "exact"]
    instead = f" {exact[0]} computes no gradient at all: it drops modules." if exact else ""
    return Finding(
        claim,
        judged(times >= COMPARABLE * printed.RUNTIME.ratio),
        f"Counted as rows × gradients × parameters, training takes {training.products:.2g} and {work.name} "
        f"{work.products:.2g}: a ratio of {times:.1f}; {100 * COMPARABLE:g} % of the printed one count as reached. "
        f"The printed ratio would need {epochs:.0f} epochs on these {training.rows} train rows, and the model here is "
        f"trained for {training.epochs}. The ratio shows how long training takes, not how cheap a deletion "
        f"is.{instead}",
    )


def _width() -> Finding:
    return Finding(
        "As the model grows wider, the gap widens.",
        "not comparable",
        "One width was measured. Both sides of the count grow with the parameters that gradients go through, so it "
        "gives no reason for a gap that widens.",
    )
