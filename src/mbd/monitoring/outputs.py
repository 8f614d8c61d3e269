"""From the folder that a step wrote to samples."""

from collections.abc import Callable
from pathlib import Path

from mbd.evaluation.leakage import LEAKAGE, LeakageRecord
from mbd.files import STEP_FILE, read_json
from mbd.model.deletion import read_deletion
from mbd.monitoring import evidence
from mbd.monitoring.samples import Samples
from mbd.records import read_record

REFUSED = "refused"


def read_output(folder: Path, model: str) -> tuple[str, Samples, str | None]:
    """Return the step that wrote a folder, what there is to tell of it, and why it counts as a failure (None: not)."""
    samples, record = Samples(), read_json(folder / STEP_FILE)
    evidence.add_step(samples, record, model)
    read = _READERS.get(record["step"])
    return record["step"], samples, read(folder, samples, model) if read else None


def _deletion(folder: Path, samples: Samples, model: str) -> None:
    if record := read_deletion(folder):
        evidence.add_deletion(samples, record, model)


def _leakage(folder: Path, samples: Samples, model: str) -> str | None:
    record = read_record(folder / LEAKAGE, LeakageRecord, "leakage record", "`mbd attack` writes it")
    evidence.add_leakage(samples, record, model)
    evidence.add_utility(samples, record, model)
    return REFUSED if record.decision == "refused" else None


def _evaluation(folder: Path, samples: Samples, model: str) -> None:
    evidence.add_evaluation(samples, read_json(folder / "metrics.json"), model)


_READERS: dict[str, Callable[[Path, Samples, str], str | None]] = {
    "delete": _deletion,
    "attack": _leakage,
    "evaluate": _evaluation,
}
