"""Parameters of the attacks and of the gate."""

from typing import Annotated

from pydantic import Field

from mbd.params.base import Count, Name, NonNegative, Section, Seed


class Attacks(Section):
    """The attack suite, and what the gate lets pass."""

    seed: Seed = 0
    """seed of halves, probes and bootstrap"""
    splits: Annotated[tuple[Name, ...], Field(min_length=1)] = ("test",)
    """splits whose rows are attacked: none that the models were trained on"""
    rows: Count = 1500
    """attacked rows at most"""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """confidence of every interval"""
    resamples: Count = 1000
    """resamples of the bootstrap"""
    tolerance: NonNegative = 0.03
    """how much an attack on the deleted model may surely exceed the reference, or fall below it"""
    utility_margin: NonNegative = 3.0
    """points of accuracy on the retained modalities that the deleted model may surely lose against the reference"""
