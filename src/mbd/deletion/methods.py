"""The built-in deletion methods, each described by one object; packages add others (`mbd.deletion_methods`).

| method | guarantee | backbones | forgets single subjects |
| --- | --- | --- | --- |
| surgery | empirical | joint, modules | no |
| certified | certified (ε, δ) | joint, modules | no |
| exact | exact (ε = 0) | all | lattice only |
"""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from mbd.deletion.outcome import DeletionOutcome, Kind, ModelBefore
from mbd.formats.deletion import DeletionTarget
from mbd.params import Params
from mbd.params.deletion import DeletionSettings
from mbd.registry import BACKBONES, METHODS, lazy


@dataclass(frozen=True)
class Method:
    """A deletion method: what it does, what it guarantees, and where it applies."""

    delete: Callable[[DeletionTarget, ModelBefore, Params], DeletionOutcome]
    """returns the model that has forgotten the target; the step `delete` reads and writes the files"""
    kind: Kind
    """kind of guarantee"""
    backbones: tuple[str, ...] = ()
    """backbones that it works on, besides those that name it themselves"""
    parameters: tuple[str, ...] = ()
    """keys of the section `deletion` that it uses, as the certificate lists them: `epsilon`, `certified.radius` …"""
    reads: tuple[str, ...] = ()
    """splits of the data that it reads to forget whole modalities"""
    reads_for_subjects: tuple[str, ...] | None = None
    """splits that it reads to forget single subjects; None: it forgets whole modalities only"""
    cost: Callable[[DeletionSettings], float] | None = None
    """returns ρ, which each deletion is charged to its lineage; None: it costs nothing"""
    distributed: bool = False
    """whether every process of a torchrun takes part"""
    settings: type[BaseModel] | None = None
    """of `deletion.options`; built-in methods have sections of their own"""


def methods_for(backbone: str) -> tuple[str, ...]:
    """Return the names of the methods that work on a backbone."""
    further = BACKBONES.get(backbone).methods
    return tuple(name for name in METHODS.names() if backbone in METHODS.get(name).backbones or name in further)


SURGERY = Method(
    lazy("mbd.deletion.surgery:delete", "deletion", "train"),
    kind="empirical",
    parameters=("surgery",),
    reads=("calibration",),
    distributed=True,
)
CERTIFIED = Method(
    lazy("mbd.deletion.certified:delete", "deletion", "train"),
    kind="certified",
    parameters=("epsilon", "delta", "budget_limit", "certified.radius", "certified.finetune_epochs"),
    reads=("train", "valid"),
    cost=lazy("mbd.deletion.certified:cost", "deletion", "train"),
)
EXACT = Method(
    lazy("mbd.deletion.exact:delete", "deletion", "train"),
    kind="exact",
    reads_for_subjects=("train", "valid"),
)
