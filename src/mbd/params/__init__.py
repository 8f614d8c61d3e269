"""All parameters of the system: one file, `params.yaml`, and one frozen model of it, :class:`Params`.

:func:`load_params` is the only way in: defaults, then the file, then `--set a.b=value`.
"""

from mbd.params.attacks import AttacksSettings
from mbd.params.certificate import CertificateSettings
from mbd.params.deletion import DeletionSettings
from mbd.params.features import FeaturesSettings
from mbd.params.learning import EvaluationSettings, ModelSettings, TrainingSettings
from mbd.params.resolve import Params, load_params, params_digest, to_yaml

__all__ = [
    "AttacksSettings",
    "CertificateSettings",
    "DeletionSettings",
    "EvaluationSettings",
    "FeaturesSettings",
    "ModelSettings",
    "Params",
    "TrainingSettings",
    "load_params",
    "params_digest",
    "to_yaml",
]
