"""Missing-by-Design: make a trained multimodal model forget a modality, and prove it.

>>> import mbd
>>> mbd.make_features("build/features")
>>> mbd.train("build/features", "build/model")
>>> model = mbd.load("build/model")
>>> model.predict({"text": matrix})        # any subset of model.modalities

What `__all__` lists is the public API; semantic versioning holds for it and for nothing else.
Paths may be strings, and so may a single modality.
`params` is a path of a parameters file, a mapping of dotted names to values (``{"model.backbone": "lattice"}``, as with
`--set` on top of ./params.yaml), or None for ./params.yaml and the defaults. Errors are subclasses of `MbdError`.

Each function runs in the context of its command (:mod:`mbd.steps.step`): purged files are refused, encrypted folders
are decrypted while it runs, and metrics go where `monitoring` says.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mbd.api import (
        attack,
        certify,
        delete,
        evaluate,
        guard,
        import_model,
        load,
        make_features,
        make_keys,
        publish,
        train,
        verify,
    )
    from mbd.errors import DataError, GateRefusedError, MbdError, UsageError, VerificationError
    from mbd.features.contract import FeatureSet
    from mbd.model.predictor import Model

__version__ = "0.1.0"
__all__ = [
    "DataError",
    "FeatureSet",
    "GateRefusedError",
    "MbdError",
    "Model",
    "UsageError",
    "VerificationError",
    "__version__",
    "attack",
    "certify",
    "delete",
    "evaluate",
    "guard",
    "import_model",
    "load",
    "make_features",
    "make_keys",
    "publish",
    "train",
    "verify",
]
_HOMES = {
    "FeatureSet": "mbd.features.contract",
    "Model": "mbd.model.predictor",
    **dict.fromkeys(("DataError", "GateRefusedError", "MbdError", "UsageError", "VerificationError"), "mbd.errors"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- of the public API
    if name not in __all__:
        raise AttributeError(f"module 'mbd' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "mbd.api")), name)


def __dir__() -> list[str]:
    return __all__
