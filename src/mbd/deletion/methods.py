"""The built-in deletion methods, each described by one object; packages add others (`mbd.deletion_methods`).

Which methods fit which backbone follows from what a method needs, and is said here alone (`Method.fits`):

| method | guarantee | needs of a backbone | forgets single subjects |
| --- | --- | --- | --- |
| surgery | empirical | that it can be cut, and measured on calibration rows | no |
| certified | certified (ε, δ) | that it can be cut, and fine-tuned | no |
| exact | exact (ε = 0); attested where what is released was trained elsewhere | nothing | yes |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel

from mbd.deletion.outcome import DeletionOutcome, ModelBefore
from mbd.formats.deletion import DeletionTarget
from mbd.formats.guarantee import Kind
from mbd.params import Params
from mbd.params.deletion import DeletionSettings
from mbd.registry import BACKBONES, METHODS, lazy

if TYPE_CHECKING:
    from mbd.model.predictor import Backbone


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


def methods_for(backbone: str) -> tuple[str, ...]:
    """Return the names of the methods that work on a backbone."""
    described = BACKBONES.get(backbone)
    return tuple(name for name in METHODS.names() if METHODS.get(name).fits(described))


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
