"""Where every cell of the studies lies, below studies/build/NAME, and what is read from it.

features/SET                      FeatureSet; SET-bB has B calibration rows
models/SET/MODEL/seed-S           MODEL: a backbone, or a variant of the joint one
references/BACKBONE/seed-S        trained without the revoked modality, on the main set
deleted/DELETION/seed-S           DELETION: a method with its settings
leakage/DELETION/seed-S           attacks on it, beside the model before and the reference
scans/deleted, scans/leakage      the same for the sensitivity scan, with uncut-bB for B calibration rows
evaluation/sets/SET               its backbones side by side
evaluation/GROUP                  GROUP: ablation, deleted, scans
increments/SET/seed-S             true leave-one-out increments beside both proxies
thresholds/seed-S                 how many parameters pass η_s
studies/STUDY                     study.json, report.md and figures of each study
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mbd.formats.deletion import DELETION, DeletionRecord
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.tensors import Array
from studies.plan import StudyPlan

ROOT = Path("studies/build")
_AGAIN = "`make study` makes the cells that are missing"


@dataclass(frozen=True)
class Layout:
    """The folders of one plan."""

    plan: StudyPlan
    root: Path

    @classmethod
    def of(cls, plan: StudyPlan) -> "Layout":
        """Return the folders that belong to a plan."""
        return cls(plan, ROOT / plan.name)

    def features(self, data: str) -> Path:
        """Return a FeatureSet."""
        return self.root / "features" / data

    def models(self, data: str, model: str) -> Path:
        """Return the folder with a model for each seed."""
        return self.root / "models" / data / model

    def references(self, backbone: str) -> Path:
        """Return the folder with a reference for each seed."""
        return self.root / "references" / backbone

    def deleted(self, deletion: str) -> Path:
        """Return the folder with a deleted model for each seed."""
        return self._deletions(deletion) / "deleted" / deletion

    def leakage(self, deletion: str) -> Path:
        """Return the folder with the attacks on a deleted model for each seed."""
        return self._deletions(deletion) / "leakage" / deletion

    def _deletions(self, deletion: str) -> Path:
        return self.root if deletion in self.plan.deletions else self.root / "scans"

    def evaluation(self, group: str) -> Path:
        """Return an evaluation: of a set, or of a group."""
        return self.root / "evaluation" / ("sets" if group in self.plan.compared else "") / group

    def increments(self, data: str) -> Path:
        """Return the folder with true increments and proxies for each seed."""
        return self.root / "increments" / data

    def thresholds(self) -> Path:
        """Return the folder with the counts of candidates for each seed."""
        return self.root / "thresholds"

    def study(self, name: str) -> Path:
        """Return what a study has written."""
        return self.root / "studies" / name

    def metrics(self, group: str) -> dict[str, Any]:
        """Read the metrics of an evaluation."""
        found: dict[str, Any] = json.loads((self.evaluation(group) / "metrics.json").read_text("utf-8"))
        return found

    def by_seed(self, folder: Path) -> dict[int, Path]:
        """Return the cell of each seed."""
        return {seed: folder / f"seed-{seed}" for seed in self.plan.seeds}

    def deletions(self, deletion: str) -> dict[int, DeletionRecord]:
        """Read what a deletion was, for each seed."""
        found = self.by_seed(self.deleted(deletion))
        return {s: DeletionRecord.read(f / DELETION, "deletion record", _AGAIN) for s, f in found.items()}

    def attacks(self, deletion: str) -> dict[int, LeakageRecord]:
        """Read what the attacks found, for each seed."""
        found = self.by_seed(self.leakage(deletion))
        return {s: LeakageRecord.read(f / LEAKAGE, "leakage record", _AGAIN) for s, f in found.items()}


def read_history(folder: Path) -> dict[str, Array]:
    """Read the losses of a training, a column each."""
    with (folder / "history.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) if row[name] else np.nan for row in rows]) for name in rows[0]}
