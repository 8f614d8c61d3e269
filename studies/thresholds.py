"""A cell: what the paper's thresholds η_s and η_L let pass in a trained model, and where saliency lies.

    python -m studies.thresholds SEED        thresholds/seed-SEED/thresholds.json

The paper thresholds s_q at η_s without saying on which scale L_re is taken. Gradients have the scale of the loss, so
each way to write the same loss moves every s_q by one factor:

    row                  L_re(i) = ‖X̂_i − X_i‖²                s_q as defined
    row and dimension    the mean over the d dimensions too       s_q / d
    batch mean           L_re = 1/N Σ_i ‖X̂_i − X_i‖²            s_q / |B|
    batch sum            L_re = Σ_i ‖X̂_i − X_i‖²                s_q · |B|
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mbd.deletion.calibration import JointCalibration
from mbd.deletion.importance import swiftprune
from mbd.deletion.saliency import saliency
from mbd.files import STEP_FILE, read_json, to_json, write_file
from mbd.outputs import whole_folder
from mbd.params import load_params
from mbd.params.deletion import SurgerySettings
from mbd.records import Record
from mbd.tensors import Array
from mbd.training.reproducibility import reproducible
from studies import printed
from studies.calibrated import calibrated, part_of
from studies.layout import Layout
from studies.plan import read_plan

FILE = "thresholds.json"
ROW, DIMENSION, MEAN, SUM = "row", "row and dimension", "batch mean", "batch sum"
ETAS = tuple(row.value for row in printed.SENSITIVITY if row.knob == "η_s")


class Part(Record):
    """A part of the model: how much of it has to do with reconstructing the modality."""

    name: str
    parameters: int
    salient: int
    """parameters with s > 0"""
    share_of_saliency: float
    own: bool
    """whether the part exists for the deleted modality alone"""


class Passing(Record):
    """How many parameters pass one η_s on one scale of the loss."""

    scale: str
    eta: float
    salient_enough: int
    """s ≥ η_s"""
    candidates: int
    """and L ≤ η_L"""
    outside: int
    """candidates that are no part of the deleted modality's own"""


class Thresholds(Record):
    """Everything `thresholds.json` says."""

    modality: str
    rows: int
    dimensions: int
    parameters: int
    limit: int
    """k = ⌊r·|W|⌋"""
    largest_saliency: float
    median_saliency: float
    """among the parameters with s > 0"""
    eta_importance: float
    """η_L"""
    largest_importance: float
    above_importance: int
    """parameters with s > 0 that η_L keeps from becoming candidates"""
    parts: tuple[Part, ...]
    passing: tuple[Passing, ...]


def measure(calibration: JointCalibration, modality: str, settings: SurgerySettings) -> Thresholds:
    """Count what passes."""
    modalities, dimensions = calibration.network.modalities, calibration.network.modalities[modality]
    found = saliency(calibration, (modality,))
    proxies = swiftprune(calibration, (modality,), settings.chi_max)
    names = sorted(found.values)
    s, contributions = (_flat(values, names) for values in (found.values, proxies))
    own = np.concatenate([np.full(found.values[n].size, n.startswith(f"modality.{modality}.")) for n in names])
    salient, rows = s > 0, found.rows[modality]
    scales = {ROW: 1.0, DIMENSION: 1 / dimensions, MEAN: 1 / max(rows, 1), SUM: float(rows)}
    passing = []
    for scale, factor in scales.items():
        for eta in ETAS:
            enough = salient & (s * factor >= eta)
            chosen = enough & (contributions <= settings.importance_threshold)
            counts = (int(which.sum()) for which in (enough, chosen, chosen & ~own))
            passing.append(
                Passing(
                    scale=scale, eta=eta, **dict(zip(("salient_enough", "candidates", "outside"), counts, strict=True))
                )
            )
    return Thresholds(
        modality=modality,
        rows=rows,
        dimensions=dimensions,
        parameters=s.size,
        limit=int(settings.budget * s.size),
        largest_saliency=float(s.max()),
        median_saliency=float(np.median(s[salient])) if salient.any() else 0.0,
        eta_importance=settings.importance_threshold,
        largest_importance=float(contributions.max()),
        above_importance=int((salient & (contributions > settings.importance_threshold)).sum()),
        parts=tuple(_parts(found.values, modality, tuple(modalities))),
        passing=tuple(passing),
    )


def _parts(values: Mapping[str, Array], modality: str, modalities: tuple[str, ...]) -> list[Part]:
    total = sum(float(array.sum()) for array in values.values())
    by_part: dict[str, list[str]] = {}
    for name in values:
        by_part.setdefault(part_of(name, modalities), []).append(name)
    return [
        Part(
            name=part,
            parameters=sum(values[name].size for name in names),
            salient=sum(int((values[name] > 0).sum()) for name in names),
            share_of_saliency=sum(float(values[name].sum()) for name in names) / total if total else 0.0,
            own=names[0].startswith(f"modality.{modality}."),
        )
        for part, names in by_part.items()
    ]


def _flat(values: Mapping[str, Array], names: list[str]) -> Array:
    return np.concatenate([np.asarray(values[name], np.float64).ravel() for name in names])


def write(found: Thresholds, out: Path) -> None:
    """Write a cell, whole or not at all."""
    with whole_folder(out, "thresholds") as folder:
        write_file(folder / STEP_FILE, to_json({"step": "thresholds"}))  # by which it may be written again
        write_file(folder / FILE, found.to_json())


def read(folder: Path) -> Thresholds:
    """Read a cell."""
    return Thresholds.model_validate(read_json(folder / FILE))


def main(seed: str) -> None:
    """Measure the model of a seed."""
    layout, params = Layout.of(read_plan()), load_params()
    plan = layout.plan
    with reproducible(params.training.threads):
        model = calibrated(layout.models(plan.main, "joint") / f"seed-{seed}", layout.features(plan.main))
        found = measure(model, plan.revoked, params.deletion.surgery)
    write(found, layout.thresholds() / f"seed-{seed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
