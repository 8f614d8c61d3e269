"""Where features come from: one module for each built-in source; packages add others (`mbd.sources`)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from mbd.features.rows import Collection
from mbd.params.features import FeaturesSettings
from mbd.registry import SOURCES


@dataclass(frozen=True)
class Source:
    """A kind of feature data: how it is recognised and read."""

    read: Callable[[FeaturesSettings], Collection]
    """reads what `features.source` describes"""
    recognises: Callable[[Path], bool] | None = None
    """whether a path looks like this kind of data; None: it reads no path"""
    settings: type[BaseModel] | None = None
    """of `features.source.options`; built-in sources have sections of their own"""


def read_source(params: FeaturesSettings) -> Collection:
    """Read the source that the parameters name."""
    return SOURCES.get(params.source.kind).read(params)
