"""Where features come from: one module for each kind, each with `read(params) -> Collection`."""

from importlib import import_module

from mbd.features.rows import Collection
from mbd.params.features import FeaturesSettings


def read_source(params: FeaturesSettings) -> Collection:
    """Read the source that the parameters name; its module, and what it imports, is loaded only now."""
    collection: Collection = import_module(f"{__name__}.{params.source.kind}").read(params)
    return collection
