"""The interface of a deletion method, the built-in ones, and whether one of them can be used.

A method reads and writes no files: the step `delete` reads the model and the data, decides here whether the deletion is
possible (methods do not check it again), and writes the outcome. Packages add methods (`mbd.deletion_methods`). Which
fit which backbone follows from what a method needs, and is said here alone (`Method.fits`):

| method | guarantee | needs of a backbone | forgets single subjects |
| --- | --- | --- | --- |
| surgery | empirical | that it can be cut, and measured on calibration rows | no |
| certified | certified (ε, δ) | that it can be cut, and fine-tuned | no |
| exact | exact (ε = 0); attested where what is released was trained elsewhere | nothing | yes |
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.files import sha256_file
from mbd.formats.deletion import DeletionTarget
from mbd.formats.features import MANIFEST
from mbd.formats.guarantee import Kind
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import Rounding
from mbd.model.compatible import refuse_other_data
from mbd.params import Params
from mbd.params.deletion import DeletionSettings
from mbd.registry import BACKBONES, METHODS, lazy
from mbd.tensors import Array

if TYPE_CHECKING:
    from mbd.model.predictor import Backbone


@dataclass(frozen=True)
class ModelBefore:
    """The model before the deletion, and the data it was made from, open with all of the model's modalities."""

    record: ModelRecord
    tensors: Mapping[str, Array]
    data: FeatureSet
    reference: tuple[ModelRecord, Mapping[str, Array]] | None = None
    """a model that was trained without what goes, where there is one"""


@dataclass
class Phases:
    """How long each phase of a deletion took, in seconds."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True)
class DeletionOutcome:
    """The model after the deletion, and the record of how it was made."""

    record: ModelRecord
    tensors: Mapping[str, Array]
    indices: Mapping[str, Array]
    """for each tensor of the new model, the flat positions that were edited (int64, ascending)"""
    facts: Mapping[str, Any]
    """the method's own part of deletion.json: parameters that came into effect, counts, σ, commitment, budget, …"""
    phases: Phases
    rounding: Rounding | None = None
    """how the tensors were rounded; None: they were not"""


@dataclass(frozen=True)
class Method:
    """A deletion method: what it does, what it guarantees, and where it applies."""

    delete: Callable[[DeletionTarget, ModelBefore, Params], DeletionOutcome]
    """returns the model that has forgotten the target; the step `delete` reads and writes the files"""
    kind: Kind
    """kind of guarantee that it declares; a deletion can claim a weaker one"""
    fits: "Callable[[Backbone], bool]" = lambda _: True
    """whether it works on a backbone"""
    parameters: tuple[str, ...] = ()
    """keys of the section `deletion` that it uses, as the certificate lists them: `epsilon`, `certified.radius` …"""
    reads: tuple[str, ...] = ()
    """splits of the data that it reads to forget whole modalities"""
    reads_for_subjects: tuple[str, ...] | None = None
    """splits that it reads to forget single subjects; None: it forgets whole modalities only"""
    cost: Callable[[DeletionSettings], float] | None = None
    """returns ρ, which each deletion is charged to its lineage; None: it costs nothing"""
    settings: type[BaseModel] | None = None
    """of `deletion.options`; built-in methods have sections of their own"""


SURGERY = Method(
    lazy("mbd.deletion.surgery:delete"),
    kind="empirical",
    fits=lambda backbone: backbone.cut is not None and backbone.calibration is not None,
    parameters=("surgery",),
    reads=("calibration",),
)
CERTIFIED = Method(
    lazy("mbd.deletion.certified:delete"),
    kind="certified",
    fits=lambda backbone: backbone.cut is not None and backbone.finetune is not None,
    parameters=("epsilon", "delta", "budget_limit", "certified.radius", "certified.finetune_epochs"),
    reads=("train", "valid"),
    cost=lazy("mbd.deletion.certified:cost"),
)
EXACT = Method(
    lazy("mbd.deletion.exact:delete"),
    kind="exact",
    reads_for_subjects=("train", "valid"),
)


def methods_for(backbone: str) -> tuple[str, ...]:
    """Return the names of the methods that work on a backbone."""
    described = BACKBONES.get(backbone)
    return tuple(name for name in METHODS.names() if METHODS.get(name).fits(described))


def refuse_method(name: str, record: ModelRecord, subjects: Collection[str]) -> None:
    """Refuse a method that does not work on the model's backbone, or does not delete single subjects."""
    method, suitable = METHODS.get(name), methods_for(record.backbone)
    if name not in suitable:
        others = [other for other in BACKBONES.builtin if method.fits(BACKBONES.get(other))]
        raise UsageError(
            f"the method {name} is for the {' or '.join(others)} backbone, and this model is a {record.backbone}",
            key="deletion.method",
            value=name,
            hint=(f"set deletion.method={' or '.join(suitable)}, or " if suitable else "")
            + f"train with model.backbone={' or '.join(others)}",
        )
    if subjects and method.reads_for_subjects is None:
        raise UsageError(
            f"the method {name} deletes whole modalities, not those of single subjects",
            key="--subject",
            value=", ".join(subjects),
            hint="set deletion.method="
            + " or ".join(other for other in suitable if METHODS.get(other).reads_for_subjects is not None),
        )


def refuse_data(name: str, record: ModelRecord, data: FeatureSet, subjects: Collection[str]) -> None:
    """Refuse data that the model was not made from, files that changed since, and calibration rows used elsewhere."""
    refuse_other_data(record, data, data.folder / MANIFEST)
    method = METHODS.get(name)
    reads = (method.reads_for_subjects or ()) if subjects else method.reads
    _refuse_changed(data, reads)
    if "calibration" in reads:
        _refuse_calibration(data)


def _refuse_changed(data: FeatureSet, splits: Collection[str]) -> None:
    """Compare the bytes that are about to be read with the manifest."""
    listed = {name: digest for name, digest in data.digests().items() if name.split("/")[1] in splits}
    with ThreadPoolExecutor() as pool:
        digests = pool.map(lambda name: sha256_file(data.folder / name), listed)
    for (name, digest), now in zip(listed.items(), digests, strict=True):
        if now != digest:
            raise DataError(
                "the file is not the one that the manifest lists",
                file=data.folder / name,
                value=f"sha256 {now}, listed {digest}",
                hint="make or fetch the FeatureSet again",
            )


def _refuse_calibration(data: FeatureSet) -> None:
    """Refuse a missing calibration split, or one that shares rows or groups with train or test."""
    if "calibration" not in data.manifest.splits:
        raise DataError(
            "there is no calibration split; surgery needs one to choose what to edit",
            file=data.folder / MANIFEST,
            hint="make the FeatureSet with features.calibration.size above 0, and train again",
        )
    own = data.split("calibration")
    for split in ("train", "test"):
        other = data.split(split)
        for what, one, two in (("id", own.ids, other.ids), ("group", own.groups, other.groups)):
            if common := set(one.tolist()) & set(two.tolist()):
                raise DataError(
                    f"the calibration split shares {len(common)} {what}{'s' * (len(common) > 1)} with {split}",
                    file=own.folder,
                    key=what,
                    value=min(common),
                    hint="calibration rows must be apart from train and test rows; make the FeatureSet again",
                )
