"""Parameters of the attacks and of the gate."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mbd.errors import UsageError
from mbd.formats.strength import weak_parameters
from mbd.names import Name
from mbd.params.base import Count, NonNegative, Seed, Settings
from mbd.registry import ATTACKS

WeightChange = Literal["int8", "pruned"]


class AttacksSettings(Settings):
    """The attack suite and the thresholds of the gate."""

    seed: Seed = 0
    """seed of the fit and score halves, the probes and the bootstrap"""
    splits: Annotated[tuple[Name, ...], Field(min_length=1)] = ("test",)
    """splits whose rows are attacked; the models must not be trained on them"""
    rows: Count = 1000
    """largest number of attacked rows"""
    least_rows: Count = 20
    """fewest scored rows of an audit; with fewer, intervals are so wide that everything passes"""
    least_power: Annotated[float, Field(ge=0.5, lt=1)] = 0.8
    """probability with which some attack must find a leak as large as the model before has; else nothing passes"""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """confidence of every interval"""
    resamples: Count = 1000
    """resamples of the bootstrap"""
    relearn_rows: Annotated[tuple[Count, ...], Field(min_length=1)] = (8, 32, 128)
    """numbers of rows with the modality from which the relearning attack teaches it again"""
    variants: tuple[WeightChange, ...] = ("int8", "pruned")
    """transformations of the models after which all attacks run again"""
    pruned_share: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """share of each weight tensor that pruning sets to zero, the smallest values first"""
    tolerance: NonNegative = 0.03
    """largest difference between an attack on the deleted model and on the reference, at the given confidence"""
    utility_margin: NonNegative = 3.0
    """largest loss of accuracy on the retained modalities, in points, against the reference and the full model"""
    correlation_margin: NonNegative = 0.1
    """largest loss of Pearson's r (regression), likewise"""
    also: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """further attacks, from installed packages: {name: options}; the built-in ones always run"""
    figures: bool = True
    """also draw figures"""

    @model_validator(mode="after")
    def _attacks_that_are_installed(self) -> Self:
        for name, options in self.also.items():
            if name in ATTACKS.builtin:
                raise ValueError(f"the attack {name} is built in and always runs: leave it out of attacks.also")
            ATTACKS.options(name, options, f"attacks.also.{name}")
        return self


def refuse_weak_audit(settings: AttacksSettings) -> None:
    """Refuse parameters with which an audit is too weak for a certificate, whatever it finds."""
    for shortfall in weak_parameters(settings.model_dump()):
        raise UsageError(shortfall.problem, key=shortfall.key, value=shortfall.value, hint=shortfall.hint)
