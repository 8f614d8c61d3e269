"""Tiny deletions with everything that the studies about them read, made by the very commands of the cells."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mbd.cli import group
from mbd.errors import GateRefusedError
from mbd.evaluation.results import spread
from mbd.formats.leakage import Interval, LeakageRecord
from mbd.params import load_params
from studies import cell, increments, thresholds
from studies.calibrated import calibrated
from studies.cell import scans
from studies.deleted import DeletedLine
from studies.layout import Layout
from studies.outcome import Finding, StudyOutcome, write_outcome
from studies.plan import StudyPlan
from tests.studies.cells import run

UNCUT = {"deletion.method": "surgery", "deletion.surgery.cut": False}
PRINTED = {
    **UNCUT,
    "deletion.surgery.order": "importance",
    "deletion.surgery.edit": "noise",
    "deletion.surgery.saliency_quantile": 0.0,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "surgery": {"deletion.method": "surgery"},
    "uncut": UNCUT,
    "printed-1": {**PRINTED, "deletion.epsilon": 1},
    "printed-4": {**PRINTED, "deletion.epsilon": 4},
    "certified-1": {"deletion.method": "certified", "deletion.epsilon": 1, "deletion.certified.finetune_epochs": 3},
    "exact": {"deletion.method": "exact"},
    "budget-0_01": {**UNCUT, "deletion.surgery.budget": 0.01},
}
_QUICK = (
    "attacks.variants=[]",
    "attacks.relearn_rows=[8]",
    "attacks.figures=false",
    "attacks.resamples=100",
)


def with_deletions(
    plan: StudyPlan, *deletions: str, scans: tuple[str, ...] = (), calibrations: tuple[int, ...] = ()
) -> StudyPlan:
    """Return a plan with these deletions and scans."""
    return plan.model_copy(
        update={
            "deletions": deletions,
            "scans": scans,
            "calibrations": calibrations,
            "variants": (),
            "settings": plan.settings | SETTINGS,
        }
    )


def make_deletions(layout: Layout) -> Layout:
    """Make models, references, deletions, attacks and evaluations of a plan."""
    plan = layout.plan
    run("features", layout, plan.main)
    for size in plan.calibrations:
        run("features", layout, f"{plan.main}-b{size}")
    for seed in map(str, plan.seeds):
        for backbone in plan.backbones:
            run("train", layout, plan.main, backbone, seed)
            run("reference", layout, backbone, seed)
        for deletion in (*plan.deletions, *scans(layout)):
            run("delete", layout, deletion, seed)
            attack(layout, deletion, seed)
        measure(layout, seed)
    for evaluation in (plan.main, "deleted", *(["scans"] if scans(layout) else [])):
        run("evaluate", layout, evaluation)
    return layout


def attack(layout: Layout, deletion: str, seed: str) -> None:
    """Attack a deletion, in little time; that the gate refuses is a result."""
    quick = [part for setting in _QUICK for part in ("--set", setting)]
    with suppress(GateRefusedError):
        group([*cell.attack(layout, deletion, seed), *quick], prog_name="mbd", standalone_mode=False)


def measure(layout: Layout, seed: str) -> None:
    """Write the cells of thresholds and increments."""
    plan, params = layout.plan, load_params()
    model = calibrated(layout.models(plan.main, "joint") / f"seed-{seed}", layout.features(plan.main))
    found = thresholds.measure(model, plan.revoked, params.deletion.surgery)
    thresholds.write(found, layout.thresholds() / f"seed-{seed}")
    samples = increments.sampled(model, plan.revoked, params, 40)
    increments.write(samples, tuple(model.network.modalities), layout.increments(plan.main) / f"seed-{seed}")


def about(findings: Sequence[Finding], words: str) -> Finding:
    """Return the one finding whose claim has these words."""
    found = [finding for finding in findings if words in finding.claim]
    assert len(found) == 1, [finding.claim for finding in findings]
    return found[0]


def bytes_of(outcome: StudyOutcome, folder: Path) -> dict[str, bytes]:
    """Write a study; return its files that must be the same whenever it is made."""
    write_outcome(outcome, folder)
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.suffix in (".json", ".png")}


def attacked(deletion: DeletedLine, before: Sequence[float], after: Sequence[float]) -> DeletedLine:
    """Return a deletion of as many seeds, in which the white-box attack has these successes (chance: 50 %)."""
    record = next(iter(deletion.records.values()))
    first = next(iter(deletion.deletions.values()))
    records = {seed: _with_white_box(record, b, a) for seed, (b, a) in enumerate(zip(before, after, strict=True))}
    leaks = [spread(after), *deletion.leaks[1:]]
    return replace(deletion, records=records, leaks=leaks, deletions=dict.fromkeys(records, first))


def _with_white_box(record: LeakageRecord, before: float, after: float) -> LeakageRecord:
    values = {"before": before / 100, "after": after / 100}
    intervals = {role: Interval(value=value, low=value, high=value) for role, value in values.items()}
    found = {**intervals, "decision": "refused" if after > 53 else "passed"}
    attacks = tuple(a.model_copy(update=found) if a.attack == "whitebox" else a for a in record.attacks)
    return record.model_copy(update={"attacks": attacks})


def passing(deletion: DeletedLine) -> DeletedLine:
    """Return a deletion by which no attack refuses."""
    records = {
        seed: record.model_copy(
            update={"attacks": tuple(a.model_copy(update={"decision": "passed"}) for a in record.attacks)}
        )
        for seed, record in deletion.records.items()
    }
    return replace(deletion, records=records)
