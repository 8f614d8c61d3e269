"""From the records that steps write, and that certificates carry, to samples."""

from typing import Any

from mbd.evaluation.leakage import AttackRecord, LeakageRecord, UtilityRecord
from mbd.model.deletion import DeletionRecord
from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples

_ROLES = ("before", "after", "reference")
_RATIOS = frozenset({"corr"})
_ERROR = "mae"


def add_step(samples: Samples, record: dict[str, Any], model: str) -> None:
    """Add what `step.json` says of the time that a step took."""
    step = record["step"]
    samples.set(metrics.STEP_DURATION, record["duration_seconds"], step=step, model=model)
    for phase, seconds in record.get("phases_seconds", {}).items():
        samples.set(metrics.STEP_PHASE, seconds, step=step, model=model, phase=phase)


def add_deletion(samples: Samples, record: DeletionRecord, model: str) -> None:
    """Add what `deletion.json` says: size of the edit, what is proven, and the budget."""
    labels = {"model": model, "modality": "+".join(record.request.modalities), "method": record.method}
    samples.set(metrics.EDITED, record.indices.count, **labels)
    if record.guarantee.epsilon is not None:
        samples.set(metrics.DELETION_EPSILON, record.guarantee.epsilon, **labels)
    if record.budget:
        add_budget(samples, record.budget.epsilon_after, record.budget.limit, model)


def add_budget(samples: Samples, spent: float, limit: float, model: str) -> None:
    """Add what a lineage has spent, and its limit."""
    samples.set(metrics.BUDGET_SPENT, spent, model=model)
    samples.set(metrics.BUDGET_LIMIT, limit, model=model)


def add_leakage(samples: Samples, record: LeakageRecord, model: str, modality: str | None = None) -> None:
    """Add each attack's first measure on each model, and its room to the gate; of one modality only, or of all."""
    headlines: dict[tuple[str, str], AttackRecord] = {}
    rooms: dict[tuple[str, str], float] = {}
    for attack in record.attacks:
        if modality not in (None, attack.modality):
            continue
        key = attack.modality, attack.attack
        if attack.variant == "as released":
            headlines.setdefault(key, attack)
        if attack.decision != "informational" and (room := _room(attack)) is not None:
            rooms[key] = min(room, rooms.get(key, room))
    for (about, name), attack in headlines.items():
        for role, value in _values(attack).items():
            samples.set(metrics.LEAKAGE, value, model=model, modality=about, attack=name, role=role)
    for (about, name), room in rooms.items():
        samples.set(metrics.GATE_ROOM, room, model=model, modality=about, attack=name)
    if record.lower_bound:
        samples.set(metrics.LEAKAGE_EPSILON, record.lower_bound.epsilon, model=model)


def add_utility(samples: Samples, record: LeakageRecord, model: str) -> None:
    """Add what the models are worth on the retained modalities, by regime."""
    for utility in record.utility:
        for role, value in _values(utility).items():
            ratio = as_ratio(utility.metric, value)
            samples.set(metrics.UTILITY, ratio, model=model, metric=utility.metric, regime=utility.regime, role=role)


def add_evaluation(samples: Samples, found: dict[str, Any], model: str) -> None:
    """Add what `metrics.json` of an evaluation says of its first model, under every regime."""
    for result in found["results"]:
        if result["method"] != found["model"]:
            continue
        labels = {"model": model, "regime": result["regime"], "corrupted": str(result["corrupted"]).lower()}
        for name, spread in result["metrics"].items():
            if name == _ERROR:
                samples.set(metrics.EVALUATION_ERROR, spread["mean"], **labels)
            else:
                samples.set(metrics.EVALUATION, as_ratio(name, spread["mean"]), metric=name, **labels)


def as_ratio(metric: str, value: float) -> float:
    """Return a metric of :mod:`mbd.evaluation.metrics`, which has shares in percent, as a ratio."""
    return value if metric in _RATIOS else value / 100


def _room(attack: AttackRecord) -> float | None:
    """Return what an attack is short of what closes the gate: to be surely above the reference and above chance."""
    if attack.difference is None or attack.tolerance is None or attack.after is None:
        return None
    above_reference = attack.tolerance - attack.difference.low
    above_chance = attack.chance + attack.tolerance - attack.after.low
    return max(above_reference, above_chance)


def _values(record: AttackRecord | UtilityRecord) -> dict[str, float]:
    found = {role: getattr(record, role) for role in _ROLES}
    return {role: interval.value for role, interval in found.items() if interval is not None}
