"""Convert the records that steps write, and that certificates carry, to samples.

:func:`read_output` reads the folder of a step. Other functions convert what certificates carry, too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from mbd.files import STEP_FILE, read_json
from mbd.formats.deletion import read_deletion
from mbd.formats.files import METRICS
from mbd.formats.leakage import LEAKAGE, AttackRecord, LeakageRecord, UtilityRecord
from mbd.monitoring import metrics
from mbd.monitoring.samples import Sample

REFUSED = "refused"
_ROLES = ("before", "after", "reference")
_RATIOS = frozenset({"corr"})
_ERROR = "mae"


def read_output(folder: Path, model: str) -> tuple[str, list[Sample], str | None]:
    """Read the output folder of a step.

    Returns:
        The name of the step, its samples, and the reason if the run counts as a failure (None: it succeeded).

    """
    record = read_json(folder / STEP_FILE)
    step, labels = record["step"], {"step": record["step"], "model": model}
    samples: list[Sample] = [(metrics.STEP_DURATION, record["duration_seconds"], labels)]
    for phase, seconds in record.get("phases_seconds", {}).items():
        samples.append((metrics.STEP_PHASE, seconds, {**labels, "phase": phase}))
    if step == "attack":
        leakage = LeakageRecord.read(folder / LEAKAGE, "leakage record", "`mbd attack` writes it")
        samples += [*leakage_samples(leakage, model), *utility_samples(leakage, model)]
        return step, samples, REFUSED if leakage.decision == "refused" else None
    read = _READERS.get(step)
    return step, [*samples, *(read(folder, model) if read else ())], None


def budget_samples(spent: float, limit: float, model: str) -> Iterator[Sample]:
    """Yield the privacy budget that a lineage has spent, and its limit."""
    yield metrics.BUDGET_SPENT, spent, {"model": model}
    yield metrics.BUDGET_LIMIT, limit, {"model": model}


def leakage_samples(record: LeakageRecord, model: str, modality: str | None = None) -> Iterator[Sample]:
    """Yield the first measure of each attack on each model, and its margin to the gate.

    With `modality`, only attacks on this modality count.
    """
    headlines: dict[tuple[str, str], AttackRecord] = {}
    margins: dict[tuple[str, str], float] = {}
    for attack in record.attacks:
        if modality not in (None, attack.modality):
            continue
        key = attack.modality, attack.attack
        if attack.variant == "as released":
            headlines.setdefault(key, attack)
        if attack.decision != "informational" and (margin := _gate_margin(attack)) is not None:
            margins[key] = min(margin, margins.get(key, margin))
    for (about, name), attack in headlines.items():
        for role, value in _values(attack).items():
            yield metrics.LEAKAGE, value, {"model": model, "modality": about, "attack": name, "role": role}
    for (about, name), margin in margins.items():
        yield metrics.GATE_ROOM, margin, {"model": model, "modality": about, "attack": name}
    if record.lower_bound:
        yield metrics.LEAKAGE_EPSILON, record.lower_bound.epsilon, {"model": model}


def utility_samples(record: LeakageRecord, model: str) -> Iterator[Sample]:
    """Yield the utility of the models on the retained modalities, by regime."""
    for utility in record.utility:
        for role, value in _values(utility).items():
            labels = {"model": model, "metric": utility.metric, "regime": utility.regime, "role": role}
            yield metrics.UTILITY, as_ratio(utility.metric, value), labels


def purge_scan_samples(
    at: datetime, *, tombstones: int, searched: Iterable[str], resurrected: Iterable[str], blind: Iterable[str]
) -> Iterator[Sample]:
    """Yield the result of a search for purged files; places without a finding get the value 0, so that an alert ends.

    Args:
        at: when the search ended.
        tombstones: number of purged files that were searched for.
        searched: the kind of each place.
        resurrected: for each purged file that was found, the kind of its place.
        blind: for each part that could not be searched, the kind of its place.

    """
    resurrections, obstacles = Counter(resurrected), Counter(blind)
    for place in {*searched, *resurrections, *obstacles}:
        yield metrics.RESURRECTED, resurrections[place], {"place": place}
        yield metrics.BLIND, obstacles[place], {"place": place}
    yield metrics.TOMBSTONES, tombstones, {}
    yield metrics.PURGE_SCAN, at.timestamp(), {}


def as_ratio(metric: str, value: float) -> float:
    """Return a metric of :mod:`mbd.evaluation.metrics`, which are in percent except for correlations, as a ratio."""
    return value if metric in _RATIOS else value / 100


def _gate_margin(attack: AttackRecord) -> float | None:
    """Return by how much an attack misses closing the gate.

    The gate closes where both confidence bounds, against the reference and against chance, exceed the tolerance.
    """
    if attack.difference is None or attack.tolerance is None or attack.after is None:
        return None
    above_reference = attack.tolerance - attack.difference.low
    above_chance = attack.chance + attack.tolerance - attack.after.low
    return max(above_reference, above_chance)


def _values(record: AttackRecord | UtilityRecord) -> dict[str, float]:
    intervals = {role: getattr(record, role) for role in _ROLES}
    return {role: interval.value for role, interval in intervals.items() if interval is not None}


def _read_deletion(folder: Path, model: str) -> Iterator[Sample]:
    """Yield the contents of `deletion.json`: number of edited parameters, proven bound and budget."""
    if (record := read_deletion(folder)) is None:
        return
    labels = {"model": model, "modality": "+".join(record.request.modalities), "method": record.method}
    yield metrics.EDITED, record.indices.count, labels
    if record.guarantee.epsilon is not None:
        yield metrics.DELETION_EPSILON, record.guarantee.epsilon, labels
    if record.budget:
        yield from budget_samples(record.budget.epsilon_after, record.budget.limit, model)


def _read_evaluation(folder: Path, model: str) -> Iterator[Sample]:
    """Yield the metrics of the first model in `metrics.json`, for every regime."""
    evaluation = read_json(folder / METRICS)
    for result in evaluation["results"]:
        if result["method"] != evaluation["model"]:
            continue
        labels = {"model": model, "regime": result["regime"], "corrupted": str(result["corrupted"]).lower()}
        for name, spread in result["metrics"].items():
            if name == _ERROR:
                yield metrics.EVALUATION_ERROR, spread["mean"], labels
            else:
                yield metrics.EVALUATION, as_ratio(name, spread["mean"]), {**labels, "metric": name}


_READERS: dict[str, Callable[[Path, str], Iterable[Sample]]] = {"delete": _read_deletion, "evaluate": _read_evaluation}
