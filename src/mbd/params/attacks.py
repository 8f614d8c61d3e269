"""Parameters of the attacks and of the gate."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mbd.params.base import Count, Name, NonNegative, Seed, Settings
from mbd.registry import ATTACKS


class AttacksSettings(Settings):
    """The attack suite, and what the gate lets pass."""

    seed: Seed = 0
    """seed of halves, probes and bootstrap"""
    splits: Annotated[tuple[Name, ...], Field(min_length=1)] = ("test",)
    """splits whose rows are attacked: none that the models were trained on"""
    rows: Count = 1000
    """attacked rows at most"""
    least_rows: Count = 20
    """with fewer scored rows than this there is no audit: intervals would be so wide that everything passes"""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """confidence of every interval"""
    resamples: Count = 1000
    """resamples of the bootstrap"""
    relearn_rows: Annotated[tuple[Count, ...], Field(min_length=1)] = (8, 32, 128)
    """how many rows with the modality an adversary gets who wants to teach it again"""
    variants: tuple[Literal["int8", "pruned"], ...] = ("int8", "pruned")
    """what is done to the models before they are attacked once more"""
    pruned_share: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """share of each weight tensor, the smallest values, that pruning removes before the attacks run once more"""
    tolerance: NonNegative = 0.03
    """how much an attack on the deleted model may surely exceed the reference, or fall below it"""
    utility_margin: NonNegative = 3.0
    """points of accuracy on the retained modalities that may surely be lost to the reference and to the full model"""
    correlation_margin: NonNegative = 0.1
    """how much of Pearson's r (regression) that may surely be lost"""
    proxy_parameters: Annotated[int, Field(ge=0)] = 300
    """surgery: parameters whose true leave-one-out increment is set beside their importance; 0: none"""
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
