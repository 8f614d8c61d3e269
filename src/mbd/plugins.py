"""What plug-ins import: this module, and no other of this package. Each name is loaded when it is used.

Semantic versioning holds for it by a version of its own: names and fields are added with the second number of
`API_VERSION`, and removed or changed with the first one. A package that needs a name that was added later compares the
numbers; `docs/extending.md` describes each kind of plug-in.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mbd.attacks.attack import Attack, AttackEvidence
    from mbd.attacks.bootstrap import accuracy, balanced_accuracy
    from mbd.attacks.context import AttackContext
    from mbd.attacks.target_model import TargetModel
    from mbd.deletion.calibration import Calibration
    from mbd.deletion.cut import Cut, cut_by_record
    from mbd.deletion.methods import Method
    from mbd.deletion.outcome import DeletionOutcome, ModelBefore, Phases
    from mbd.errors import DataError, MbdError, UsageError
    from mbd.features.contract import FeatureSet
    from mbd.features.rows import Collection, Rows
    from mbd.features.sources import Source
    from mbd.formats.deletion import DeletionTarget
    from mbd.formats.features import Shape
    from mbd.formats.guarantee import Guarantee
    from mbd.formats.model import ColumnRange, ModelRecord, TensorRecord
    from mbd.model.checkpoint import describe
    from mbd.model.predictor import Backbone, LoadedBackbone
    from mbd.params import Params
    from mbd.params.base import Count, NonNegative, Positive, Settings, Share
    from mbd.params.features import FeaturesSettings
    from mbd.params.operations import StoreSettings
    from mbd.randomness import stream
    from mbd.registry import BACKBONES, lazy
    from mbd.storage.folder import FolderStore
    from mbd.storage.store import Store, StoreScheme
    from mbd.tensors import Array
    from mbd.training.trained import Trained, data_record, recorded_training

API_VERSION = (1, 0)
_HOMES = {
    "mbd.attacks.attack": ("Attack", "AttackEvidence"),
    "mbd.attacks.bootstrap": ("accuracy", "balanced_accuracy"),
    "mbd.attacks.context": ("AttackContext",),
    "mbd.attacks.target_model": ("TargetModel",),
    "mbd.deletion.calibration": ("Calibration",),
    "mbd.deletion.cut": ("Cut", "cut_by_record"),
    "mbd.deletion.methods": ("Method",),
    "mbd.deletion.outcome": ("DeletionOutcome", "ModelBefore", "Phases"),
    "mbd.errors": ("DataError", "MbdError", "UsageError"),
    "mbd.features.contract": ("FeatureSet",),
    "mbd.features.rows": ("Collection", "Rows"),
    "mbd.features.sources": ("Source",),
    "mbd.formats.deletion": ("DeletionTarget",),
    "mbd.formats.features": ("Shape",),
    "mbd.formats.guarantee": ("Guarantee",),
    "mbd.formats.model": ("ColumnRange", "ModelRecord", "TensorRecord"),
    "mbd.model.checkpoint": ("describe",),
    "mbd.model.predictor": ("Backbone", "LoadedBackbone"),
    "mbd.params": ("Params",),
    "mbd.params.base": ("Count", "NonNegative", "Positive", "Settings", "Share"),
    "mbd.params.features": ("FeaturesSettings",),
    "mbd.params.operations": ("StoreSettings",),
    "mbd.randomness": ("stream",),
    "mbd.registry": ("BACKBONES", "lazy"),
    "mbd.storage.folder": ("FolderStore",),
    "mbd.storage.store": ("Store", "StoreScheme"),
    "mbd.tensors": ("Array",),
    "mbd.training.trained": ("Trained", "data_record", "recorded_training"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [
    "API_VERSION",
    "BACKBONES",
    "Array",
    "Attack",
    "AttackContext",
    "AttackEvidence",
    "Backbone",
    "Calibration",
    "Collection",
    "ColumnRange",
    "Count",
    "Cut",
    "DataError",
    "DeletionOutcome",
    "DeletionTarget",
    "FeatureSet",
    "FeaturesSettings",
    "FolderStore",
    "Guarantee",
    "LoadedBackbone",
    "MbdError",
    "Method",
    "ModelBefore",
    "ModelRecord",
    "NonNegative",
    "Params",
    "Phases",
    "Positive",
    "Rows",
    "Settings",
    "Shape",
    "Share",
    "Source",
    "Store",
    "StoreScheme",
    "StoreSettings",
    "TargetModel",
    "TensorRecord",
    "Trained",
    "UsageError",
    "accuracy",
    "balanced_accuracy",
    "cut_by_record",
    "data_record",
    "describe",
    "lazy",
    "recorded_training",
    "stream",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever is there
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'mbd.plugins' has no attribute {name!r}")
