"""A cell: what removing single parameters really costs, beside what both proxies say of it.

    python -m studies.increments SET SEED
        increments/SET/seed-SEED/increments.csv    a line for each sampled parameter
        increments/SET/seed-SEED/facts.json        the numbers of the paper's Table A2, for each sample and proxy

Two samples of one trained model: of the parameters that Algorithm 1 as printed chooses (C_sel, the set that the paper's
table is about), and of all weights and biases that predictions without the revoked modality use.
"""

import csv
import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mbd.deletion.calibration import JointCalibration
from mbd.deletion.importance import swiftprune
from mbd.deletion.saliency import saliency
from mbd.deletion.selection import select
from mbd.files import STEP_FILE, read_json, to_json, write_file
from mbd.outputs import whole_folder
from mbd.params import Params, load_params
from mbd.params.deletion import SurgerySettings
from mbd.tensors import Array
from mbd.training.reproducibility import reproducible
from studies.calibrated import calibrated, part_of
from studies.layout import Layout
from studies.leave_one_out import PARAMETERS, ProxyQuality, measure
from studies.plan import read_plan

LINES, FACTS = "increments.csv", "facts.json"
CHOSEN, ALL = "chosen", "all"
SAMPLES = {CHOSEN: "what Algorithm 1 chooses", ALL: "all that predictions use"}
PROXIES = ("swiftprune", "gauss_newton")
_HEADER = ("sample", "part", "tensor", *PROXIES, "increment")


@dataclass(frozen=True)
class Increments:
    """What a cell holds."""

    facts: Mapping[str, Any]
    """by sample: the facts of its ProxyQuality"""
    values: Mapping[str, Mapping[str, Array]]
    """by sample: both proxies and `increment`, a number for each parameter"""


def as_printed(settings: SurgerySettings) -> SurgerySettings:
    """Return the surgery as Algorithm 1 has it, among all parameters that are salient at all."""
    printed = {"order": "importance", "threshold": "quantile", "importance": "swiftprune", "cut": False}
    return settings.model_copy(update=printed | {"saliency_quantile": 0.0, "importance_quantile": 1.0})


def sampled(
    calibration: JointCalibration, modality: str, params: Params, parameters: int = PARAMETERS
) -> dict[str, ProxyQuality]:
    """Return both samples of a model."""
    settings = params.deletion.surgery
    found = saliency(calibration, (modality,)).values
    proxies = swiftprune(calibration, (modality,), settings.chi_max)
    chosen = select(found, proxies, as_printed(settings)).indices
    samples: dict[str, Mapping[str, Array] | None] = {CHOSEN: chosen, ALL: None}
    return {
        name: measure(calibration, (modality,), settings.chi_max, params.attacks.seed, edited, parameters)
        for name, edited in samples.items()
    }


def write(samples: Mapping[str, ProxyQuality], modalities: tuple[str, ...], out: Path) -> None:
    """Write a cell, whole or not at all."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_HEADER)
    for sample, quality in samples.items():
        columns = (*(quality.proxies[name].tolist() for name in PROXIES), quality.increments.tolist())
        parts = [part_of(name, modalities) for name in quality.tensors]
        table.writerows(zip([sample] * len(parts), parts, quality.tensors, *columns, strict=True))
    with whole_folder(out, "increments") as folder:
        write_file(folder / STEP_FILE, to_json({"step": "increments"}))  # by which it may be written again
        write_file(folder / LINES, text.getvalue())
        write_file(folder / FACTS, to_json({name: quality.facts() for name, quality in samples.items()}))


def read(folder: Path) -> Increments:
    """Read a cell."""
    with (folder / LINES).open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    values = {
        sample: {
            column: np.array([float(line[column]) for line in lines if line["sample"] == sample])
            for column in (*PROXIES, "increment")
        }
        for sample in SAMPLES
    }
    return Increments(read_json(folder / FACTS), values)


def main(data: str, seed: str) -> None:
    """Measure the model of a set and a seed."""
    layout, params = Layout.of(read_plan()), load_params()
    with reproducible(params.training.threads):
        model = calibrated(layout.models(data, "joint") / f"seed-{seed}", layout.features(data))
        samples = sampled(model, layout.plan.revoked, params)
    write(samples, tuple(model.network.modalities), layout.increments(data) / f"seed-{seed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
