"""Parameters of damage to a share of the rows: raw media and text, or vectors."""

from typing import Annotated

from pydantic import Field

from mbd.params.base import NonNegative, Settings, Share


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
