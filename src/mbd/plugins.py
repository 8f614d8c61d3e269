"""What plug-ins import: this module, and no other of this package. Each name is loaded when it is used.

Semantic versioning holds for it by a version of its own: names and fields are added with the second number of
`API_VERSION`, and removed or changed with the first one. A package that needs a name that was added later compares the
numbers; `docs/extending.md` describes each kind of plug-in.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mbd.attacks.attack import Attack as Attack
    from mbd.attacks.attack import AttackEvidence as AttackEvidence
    from mbd.attacks.bootstrap import accuracy as accuracy
    from mbd.attacks.bootstrap import balanced_accuracy as balanced_accuracy
    from mbd.attacks.context import AttackContext as AttackContext
    from mbd.attacks.target_model import TargetModel as TargetModel
    from mbd.deletion.calibration import Calibration as Calibration
    from mbd.deletion.cut import Cut as Cut
    from mbd.deletion.cut import cut_by_record as cut_by_record
    from mbd.deletion.methods import DeletionOutcome as DeletionOutcome
    from mbd.deletion.methods import Method as Method
    from mbd.deletion.methods import ModelBefore as ModelBefore
    from mbd.deletion.methods import Phases as Phases
    from mbd.errors import DataError as DataError
    from mbd.errors import MbdError as MbdError
    from mbd.errors import UsageError as UsageError
    from mbd.features.contract import FeatureSet as FeatureSet
    from mbd.features.rows import Collection as Collection
    from mbd.features.rows import Rows as Rows
    from mbd.features.sources import Source as Source
    from mbd.formats.deletion import DeletionTarget as DeletionTarget
    from mbd.formats.features import Shape as Shape
    from mbd.formats.guarantee import Guarantee as Guarantee
    from mbd.formats.model import ColumnRange as ColumnRange
    from mbd.formats.model import ModelRecord as ModelRecord
    from mbd.formats.model import TensorRecord as TensorRecord
    from mbd.model.checkpoint import describe as describe
    from mbd.model.predictor import Backbone as Backbone
    from mbd.model.predictor import LoadedBackbone as LoadedBackbone
    from mbd.params import Params as Params
    from mbd.params.base import Count as Count
    from mbd.params.base import NonNegative as NonNegative
    from mbd.params.base import Positive as Positive
    from mbd.params.base import Settings as Settings
    from mbd.params.base import Share as Share
    from mbd.params.features import FeaturesSettings as FeaturesSettings
    from mbd.params.operations import StoreSettings as StoreSettings
    from mbd.randomness import stream as stream
    from mbd.registry import BACKBONES as BACKBONES
    from mbd.registry import lazy as lazy
    from mbd.storage.folder import FolderStore as FolderStore
    from mbd.storage.store import Store as Store
    from mbd.storage.store import StoreScheme as StoreScheme
    from mbd.tensors import Array as Array
    from mbd.training.trained import Trained as Trained
    from mbd.training.trained import data_record as data_record
    from mbd.training.trained import recorded_training as recorded_training

API_VERSION = (1, 0)
_HOMES = {
    "mbd.attacks.attack": ("Attack", "AttackEvidence"),
    "mbd.attacks.bootstrap": ("accuracy", "balanced_accuracy"),
    "mbd.attacks.context": ("AttackContext",),
    "mbd.attacks.target_model": ("TargetModel",),
    "mbd.deletion.calibration": ("Calibration",),
    "mbd.deletion.cut": ("Cut", "cut_by_record"),
    "mbd.deletion.methods": ("DeletionOutcome", "Method", "ModelBefore", "Phases"),
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
__all__ = ["API_VERSION", *_HOME_OF]  # noqa: PLE0604 -- names


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever is there
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'mbd.plugins' has no attribute {name!r}")
