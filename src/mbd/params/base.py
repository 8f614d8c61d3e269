"""Base class and common types of all sections of the parameters."""

from typing import Annotated

from pydantic import Field

from mbd.records import Frozen


class Settings(Frozen):
    """A section of the parameters."""


Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**53)]
