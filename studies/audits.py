"""What attacks found of a deletion, over seeds: the common ground of several studies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mbd.attacks.target_model import Role
from mbd.evaluation.results import Spread, spread
from mbd.formats.deletion import DeletionRecord
from mbd.formats.leakage import AttackRecord, LeakageRecord

Kind = Literal["surgery", "uncut", "printed", "certified", "exact"]
Records = Mapping[int, LeakageRecord]
"""by seed"""
NEAR = 3.0
"""points of accuracy within which an attack counts as no better than another: the gate's tolerance"""


@dataclass(frozen=True)
class AuditMeasure:
    """A number that an attack measures."""

    id: str
    scale: float = 1.0

    def of(self, record: LeakageRecord) -> AttackRecord:
        """Return what an attack found of the modality that was deleted first."""
        wanted = (record.modalities[0], self.id, "as released")
        return next(found for found in record.attacks if (found.modality, found.id, found.variant) == wanted)

    def values(self, records: Records, role: Role) -> list[float]:
        """Return the number for each seed."""
        found = (getattr(self.of(record), role) for record in records.values())
        return [self.scale * interval.value for interval in found if interval is not None]

    def spread(self, records: Records, role: Role) -> Spread:
        """Return the number over seeds."""
        return spread(self.values(records, role))


WHITE_BOX = AuditMeasure("whitebox.accuracy_fed", 100)
BLACK_BOX = AuditMeasure("blackbox.accuracy_fed", 100)
PATHWAY = AuditMeasure("pathway.rows_moved", 100)
OFFERED = AuditMeasure("reconstruction.r2_offered")
OWN_PART = AuditMeasure("reconstruction.r2_learnt_fed")
MEMBERSHIP = AuditMeasure("membership.auc_all")


def kind_of(record: DeletionRecord) -> Kind:
    """Return which of the deletions it is: the paper's own is without the cut, and takes the least important first."""
    if record.method != "surgery":
        return "certified" if record.method == "certified" else "exact"
    settings = record.parameters["surgery"]
    if settings["cut"]:
        return "surgery"
    return "printed" if settings["order"] == "importance" else "uncut"


def epsilon_of(record: DeletionRecord) -> float | None:
    """Return the ε that was asked for, where the method has any use for it."""
    noised = record.method == "certified" or (record.facts.get("edit") or {}).get("kind") == "noise"
    return float(record.parameters["epsilon"]) if noised else None


def refused(records: Records) -> dict[str, int]:
    """Return for each attack, and for utility, in how many seeds the gate refuses by it."""
    counts: dict[str, int] = {}
    for record in records.values():
        parts = [(a.attack, a.decision) for a in record.attacks if a.decision != "informational"]
        parts += [("utility", u.decision) for u in record.utility if u.decision != "informational"]
        decisions: dict[str, bool] = {}
        for name, decision in parts:
            decisions[name] = decisions.get(name, False) or decision == "refused"
        for name, no in decisions.items():
            counts[name] = counts.get(name, 0) + no
    return counts


def gives_away(records: Records, attack: str) -> bool:
    """Whether an attack surely does better than on the reference, in any seed."""
    return refused(records).get(attack, 0) > 0


def attacks_refuse(records: Records) -> list[str]:
    """Return the attacks by which the gate refuses in any seed; what it says of noise or utility is left out."""
    return [name for name, count in refused(records).items() if count and name != "utility"]
