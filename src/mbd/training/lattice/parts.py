"""Parts of a lattice: modules that several machines have trained, each some of the tags.

A module depends on the rows of its tag, on the seed and on the parameters, and on no other module; so those that were
trained elsewhere from the same have the bytes that training here would give them. Parts are sets of tags and not shards
of rows, because a module needs five passes over rows, one after the other (means, directions, coordinates and their
products, kernels, errors out of fold): machines that share rows would wait for each other between all of them.
"""

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mbd.errors import DataError
from mbd.formats.lattice import Tag, module_tensors
from mbd.formats.model import DataRecord, LatticeSpec
from mbd.model.checkpoint import RECORD, load_model
from mbd.tensors import Array
from mbd.training.trained import HISTORY


@dataclass(frozen=True)
class KnownModules:
    """What model folders hold of a lattice."""

    modules: dict[Tag, Mapping[str, Array]] = field(default_factory=dict)
    tensors: dict[str, Array] = field(default_factory=dict)
    """all of them, by their names in the model"""
    reports: dict[Tag, dict[str, float]] = field(default_factory=dict)
    """how the training of each module went"""


def modules_in(
    parts: Sequence[Path], spec: LatticeSpec, modalities: Collection[str], seed: int, data: DataRecord
) -> KnownModules:
    """Return what model folders hold of the lattice to be trained; they hold parts of it, or of a larger one.

    Raises:
        DataError: A part is of another training; it says what differs.

    """
    found = KnownModules()
    for folder in parts:
        record, tensors = load_model(folder)
        if record.backbone != "lattice":
            raise _other_training(folder, "architecture and training")
        own = LatticeSpec.model_validate(record.spec).without(set(record.modalities) - set(modalities))
        files = {name: record.data.files.get(name) for name in data.files}
        for what, here, there in (
            ("architecture and training", spec, own),
            ("data", data.files, files),
            ("seed", str(seed), record.seed),
        ):
            if here != there:
                raise _other_training(folder, what)
        tensors = {name: tensors[name] for name in record.tensors}  # in the order in which training lists them
        found.modules.update(module_tensors(modalities, tensors))
        found.tensors.update(tensors)
        found.reports.update(_reports(folder / HISTORY))
    return found


def _reports(file: Path) -> dict[Tag, dict[str, float]]:
    if not file.exists():
        return {}
    with file.open(newline="") as stream:
        return {
            tuple(line.pop("tag").split("+")): {name: float(value) for name, value in line.items() if value}
            for line in csv.DictReader(stream)
        }


def _other_training(folder: Path, what: str) -> DataError:
    return DataError(
        "the part is of another training",
        file=folder / RECORD,
        value=f"its {what} differ" + "s" * (what in ("data", "seed")),
        hint="train all parts with the same parameters, data and version",
    )
