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
    from mbd.api import attack as attack
    from mbd.api import certify as certify
    from mbd.api import delete as delete
    from mbd.api import evaluate as evaluate
    from mbd.api import guard as guard
    from mbd.api import import_model as import_model
    from mbd.api import load as load
    from mbd.api import make_features as make_features
    from mbd.api import make_keys as make_keys
    from mbd.api import publish as publish
    from mbd.api import train as train
    from mbd.api import verify as verify
    from mbd.errors import DataError as DataError
    from mbd.errors import GateRefusedError as GateRefusedError
    from mbd.errors import MbdError as MbdError
    from mbd.errors import UsageError as UsageError
    from mbd.errors import VerificationError as VerificationError
    from mbd.features.contract import FeatureSet as FeatureSet
    from mbd.model.predictor import Model as Model

__version__ = "0.1.0"
_HOMES = {
    "mbd.api": "attack certify delete evaluate guard import_model load make_features make_keys publish train verify",
    "mbd.errors": "DataError GateRefusedError MbdError UsageError VerificationError",
    "mbd.features.contract": "FeatureSet",
    "mbd.model.predictor": "Model",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(["__version__", *_HOME_OF])  # noqa: PLE0605 -- a list


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- of the public API
    if name not in _HOME_OF:
        raise AttributeError(f"module 'mbd' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
