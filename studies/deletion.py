"""Certified-deletion diagnostics: what is left of the modality after every deletion, and what the model is worth.

Every number of a deleted model is shown next to the full model and the reference, which never saw the modality.
Accuracies are on the retained modalities. ΔL_re is the reconstruction loss of the modality, per standardised dimension,
minus that of the reference (which has no generator for it, and so says the mean).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mbd.attacks.context import AttackContext, make_context
from mbd.attacks.target_model import Role, TargetModel, open_target
from mbd.evaluation.metrics import TITLES as METRICS
from mbd.evaluation.results import Spread, spread
from mbd.features.contract import FeatureSet
from mbd.params.deletion import AttacksSettings
from mbd.training.reproducibility import reproducible
from studies import printed
from studies.audits import refused
from studies.cell import backbone_of
from studies.claims import text
from studies.deleted import TITLES, Beside, DeletedLine, read_beside, read_deleted
from studies.deletion_claims import Losses, findings
from studies.layout import Layout
from studies.outcome import Cell, StudyOutcome, StudyTable
from studies.scores import read_scores


def study(layout: Layout) -> StudyOutcome:
    """Set every deletion beside the full model and the reference."""
    scores = read_scores(layout.evaluation("deleted"))
    deleted = read_deleted(layout, layout.plan.deletions, scores)
    beside = read_beside(layout, deleted, scores)
    losses = reconstruction_losses(layout)
    return StudyOutcome(
        name="deletion",
        title="Certified-deletion diagnostics",
        question=(
            f"What is left of {layout.plan.revoked} after each deletion, and what is the model still worth? Every "
            "number is shown next to the model before deletion and the reference, which never saw it."
        ),
        tables=[
            _main_table(deleted, beside, losses, METRICS[scores.primary]),
            _printed_table(),
            _leakage_table(deleted, beside),
            _gate_table(deleted),
        ],
        findings=findings(deleted, beside, losses, METRICS[scores.primary]),
        data={
            d.name: {
                "kind": d.kind,
                "epsilon": d.epsilon,
                "backbone": d.backbone,
                "refused_in_seeds": refused(d.records),
                "invariants": [{i.name: i.decision for i in record.invariants} for record in d.records.values()],
                "guarantee": [record.guarantee.kind for record in d.deletions.values()],
                "distance_to_reference": [record.reference for record in d.deletions.values()],
            }
            for d in deleted
        },
    )


def reconstruction_losses(layout: Layout) -> dict[str, Spread]:
    """Return ΔL_re of the modality for each deletion, full model and reference."""
    plan = layout.plan
    suite = next(iter(layout.attacks(plan.deletions[0]).values())).suite
    data = FeatureSet.open(layout.features(plan.main))
    setting = make_context(data, plan.revoked, AttacksSettings.model_validate(suite.parameters))
    found = {}
    with reproducible(1):
        for backbone in dict.fromkeys(backbone_of(name) for name in plan.deletions):
            never = _by_seed(layout, layout.references(backbone), "reference", setting)
            before = _by_seed(layout, layout.models(plan.main, backbone), "before", setting)
            found[f"{backbone}: full model"] = spread([before[seed] - never[seed] for seed in never])
            found[f"{backbone}: reference"] = spread([0.0 for _ in never])
            for name in (name for name in plan.deletions if backbone_of(name) == backbone):
                after = _by_seed(layout, layout.deleted(name), "after", setting)
                found[name] = spread([after[seed] - never[seed] for seed in never])
    return found


def _by_seed(layout: Layout, folder: Path, role: Role, setting: AttackContext) -> dict[int, float]:
    return {
        seed: reconstruction_loss(open_target(model, role, verify=False), setting)
        for seed, model in layout.by_seed(folder).items()
    }


def reconstruction_loss(target_model: TargetModel, attack_context: AttackContext) -> float:
    """Return L_re of m* of the scored rows, by the model's generator as it is (the mean of m* where it has none)."""
    generated = target_model.reconstruct(attack_context.rows, attack_context.modality).get("generator")
    guess = np.zeros_like(attack_context.target) if generated is None else attack_context.standardise(generated)
    errors = (guess - attack_context.target)[attack_context.score]
    return float((errors**2).mean())


def _main_table(deleted: Sequence[DeletedLine], beside: Beside, losses: Losses, title: str) -> StudyTable:
    rows: list[list[Cell]] = []
    for backbone, others in beside.items():
        own = [d for d in deleted if d.backbone == backbone]
        for line in (others["before"], *own, others["reference"]):
            epsilon = f"{line.epsilon:g}" if isinstance(line, DeletedLine) and line.epsilon else None
            rows.append([line.name, epsilon, *line.leaks[:2], line.accuracy, line.f1, _exactly(losses[line.name])])
    return StudyTable(
        "Every deletion beside the full model and the reference",
        ["model", "ε", *TITLES[:2], f"{title} (%)", "F1 (%)", "ΔL_re"],
        rows,
        note=(
            "Attacks feed the modality wherever the model has an input for it (black-box: wherever it takes it); "
            "chance is 50 %. Accuracies are on the retained modalities. ε is what was asked for; it is proven for "
            "certified deletions only (exact ones need none), and not even there in a study, whose noise has a public "
            "seed."
        ),
    )


def _exactly(value: Spread) -> str:
    """Return a number with more digits than the table has."""
    return text(value, 3)


def _printed_table() -> StudyTable:
    rows: list[list[Cell]] = [
        ["full model" if epsilon is None else f"{epsilon:g}", *row[:4], f"{row.reconstruction:.3f}"]
        for epsilon, row in printed.DELETION.items()
    ]
    header = ["ε", *TITLES[:2], "Acc2 (%)", "F1 (%)", "ΔL_re"]
    return StudyTable("Certified-deletion diagnostics on CMU-MOSI", header, rows, printed=True)


def _leakage_table(deleted: Sequence[DeletedLine], beside: Beside) -> StudyTable:
    rows: list[list[Cell]] = []
    for backbone, others in beside.items():
        own = [d for d in deleted if d.backbone == backbone]
        rows += [[line.name, *line.leaks[2:]] for line in (others["before"], *own, others["reference"])]
    return StudyTable(
        "More attacks: does anything move with the modality, does the model reveal who it was trained on?",
        ["model", *TITLES[2:]],
        rows,
        digits=3,
    )


def _gate_table(deleted: Sequence[DeletedLine]) -> StudyTable:
    counts = {d.name: refused(d.records) for d in deleted}
    names = list(dict.fromkeys(name for own in counts.values() for name in own))
    rows: list[list[Cell]] = [
        [d.name, *(f"{counts[d.name].get(name, 0)} of {len(d.records)}" for name in names)] for d in deleted
    ]
    return StudyTable(
        "In how many seeds the gate refuses, and by what",
        ["deletion", *names],
        rows,
        note=(
            "Where a study draws noise, it has a public seed, and the gate refuses that (the invariant `noise`). So "
            "deletions are judged here by attacks and utility, and the gate's last word is left out."
        ),
    )
