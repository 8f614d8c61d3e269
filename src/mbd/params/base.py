"""Base class and common types of all sections of the parameters, and the section of damage, which two others have."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field

from mbd.records import Frozen


class Settings(Frozen):
    """A section of the parameters."""

    def having(self, values: Mapping[str, object]) -> Self:
        """Return these settings with other values, by their dotted names, which are valid already."""
        changed = self
        for key, value in values.items():
            name, _, below = key.partition(".")
            new = getattr(changed, name).having({below: value}) if below else value
            changed = changed.model_copy(update={name: new})
        return changed


Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**53)]


class CorruptionSettings(Settings):
    """Damage to a share of the rows of a split."""

    share: Share = 0.1
    """share of rows damaged (paper: 10 %)"""
    snr_db: Annotated[float, Field(ge=-40, le=80)] = 10.0
    """signal to noise ratio of the additive noise"""
    pepper: Share = 0.05
    """share of pixels or entries set to the extremes"""
    blur: NonNegative = 1.5
    """standard deviation of the blur, in pixels or entries; 0: none"""
    typos: Share = 0.1
    """share of characters misspelt; at feature level the share of entries taken from another row"""
    reorder: Annotated[int, Field(ge=0)] = 3
    """largest distance by which tokens or entries move; 0: none"""
