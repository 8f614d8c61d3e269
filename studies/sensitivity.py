"""Sensitivity scan: surgery budget r, saliency threshold η_s and calibration size |B|, one at a time around `uncut`.

The structural cut is off here: with it there is nothing left to choose, and none of these parameters does anything. η_s
is a quantile of the saliencies; what the paper's absolute values would let pass is counted by `studies.thresholds`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mbd.evaluation.metrics import TITLES as METRICS
from mbd.evaluation.results import Spread, spread
from mbd.formats.files import INDICES
from mbd.tensors import Array, open_tensors
from studies import printed, thresholds
from studies.audits import OFFERED, WHITE_BOX
from studies.cell import scans
from studies.claims import listed, text
from studies.deleted import DeletedLine, read_deleted
from studies.layout import Layout
from studies.outcome import Cell, StudyOutcome, StudyTable
from studies.scores import read_scores
from studies.sensitivity_claims import findings, knob, proven_epsilons
from studies.thresholds import Thresholds

DEFAULT = "uncut"


def study(layout: Layout) -> StudyOutcome:
    """Scan."""
    default = read_deleted(layout, [DEFAULT], read_scores(layout.evaluation("deleted")))[0]
    scores = read_scores(layout.evaluation("scans"))
    scanned = read_deleted(layout, scans(layout), scores)
    overlap = {d.name: overlaps(layout, d.name) for d in scanned}
    counted = {seed: thresholds.read(folder) for seed, folder in layout.by_seed(layout.thresholds()).items()}
    return StudyOutcome(
        name="sensitivity",
        title="Sensitivity to budget, threshold and calibration size",
        question=(
            f"Surgery without the structural cut deletes {layout.plan.revoked}: what changes with how many parameters "
            "it may edit, how salient they must be, and how many calibration rows it looks at?"
        ),
        tables=[
            _table(default, scanned, overlap, METRICS[scores.primary]),
            _printed_table(),
            _passing_table(list(counted.values())),
            _parts_table(list(counted.values())),
        ],
        findings=findings(default, scanned, overlap, list(counted.values()), METRICS[scores.primary]),
        data={"thresholds": {str(seed): found.model_dump(mode="json") for seed, found in counted.items()}},
    )


def overlaps(layout: Layout, name: str) -> Spread:
    """Return the share of the parameters chosen by default that a scan chooses as well."""
    shares = []
    for seed, folder in layout.by_seed(layout.deleted(name)).items():
        default = open_tensors(layout.deleted(DEFAULT) / f"seed-{seed}" / INDICES)
        shares.append(_share(default, open_tensors(folder / INDICES)))
    return spread(shares)


def _share(default: Mapping[str, Array], other: Mapping[str, Array]) -> float:
    both = sum(np.intersect1d(default[name], other[name]).size for name in default if name in other)
    return both / max(sum(len(default[name]) for name in default), 1)


def _table(
    default: DeletedLine, scanned: Sequence[DeletedLine], overlap: Mapping[str, Spread], title: str
) -> StudyTable:
    lines = [(*knob(d, default), d) for d in scanned]
    rows: list[list[Cell]] = [["default", None, *_cells(default, None)]]
    rows += [[name, f"{value:g}", *_cells(d, overlap[d.name])] for name, value, d in lines]
    return StudyTable(
        "One setting changed at a time",
        [
            "changed",
            "to",
            "edited",
            "of the default's (%)",
            f"{title} (%)",
            "ASR white-box (%)",
            "R² offered",
            "ε proven",
        ],
        rows,
        note="ε proven: zeroing is not random, and the weights that are not edited were trained with the modality.",
    )


def _cells(deletion: DeletedLine, overlap: Spread | None) -> list[Cell]:
    offered = OFFERED.spread(deletion.records, "after")
    percent = None if overlap is None else f"{100 * overlap.mean:.0f}"
    proven = proven_epsilons(deletion)
    edited = {record.indices.count for record in deletion.deletions.values()}
    return [
        listed([str(count) for count in sorted(edited)]),
        percent,
        deletion.accuracy,
        WHITE_BOX.spread(deletion.records, "after"),
        text(offered, 3),
        f"{max(proven):g}" if proven else None,
    ]


def _printed_table() -> StudyTable:
    rows: list[list[Cell]] = [
        [row.knob, f"{row.value:g}" + (" (default)" if row.default else ""), row.acc2, f"{row.epsilon:.2f}"]
        for row in printed.SENSITIVITY
    ]
    return StudyTable("Sensitivity scan on CMU-MOSI", ["changed", "to", "Acc2 (%)", "ε"], rows, printed=True)


def _passing_table(counted: Sequence[Thresholds]) -> StudyTable:
    rows: list[list[Cell]] = []
    for place, row in enumerate(counted[0].passing):
        same = [found.passing[place] for found in counted]
        means = (spread([getattr(p, name) for p in same]) for name in ("salient_enough", "candidates", "outside"))
        rows.append([row.scale, f"{row.eta:g}", *means])
    first = counted[0]
    return StudyTable(
        f"How many of {first.parameters} parameters pass the paper's η_s, by the scale on which L_re is taken",
        ["scale of L_re", "η_s", "s ≥ η_s", f"and L ≤ {first.eta_importance:g}", "outside the modality's own parts"],
        rows,
        digits=0,
        note=(
            "row: ‖X̂ − X‖² of a row; row and dimension: its mean over the dimensions; batch mean, batch sum: L_re of "
            f"the {first.rows} calibration rows together. k = ⌊r·|W|⌋ = {first.limit}."
        ),
    )


def _parts_table(counted: Sequence[Thresholds]) -> StudyTable:
    rows: list[list[Cell]] = []
    for place, part in enumerate(counted[0].parts):
        same = [found.parts[place] for found in counted]
        shares = spread([100 * p.share_of_saliency for p in same])
        rows.append([part.name, part.parameters, spread([p.salient for p in same]), text(shares, 2)])
    header = ["part of the model", "parameters", "with s > 0", "share of all saliency (%)"]
    return StudyTable("Where the saliency of the reconstruction lies", header, rows, digits=0)
