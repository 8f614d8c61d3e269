"""All parameters of the system: one file, `params.yaml`, and one frozen model of it, :class:`Params`.

:func:`load_params` is the only way in: defaults, then the file, then `--set a.b=value`.
"""

from mbd.params.attacks import Attacks
from mbd.params.certificate import Certificate
from mbd.params.deletion import Deletion
from mbd.params.features import Features
from mbd.params.learning import Evaluation, Model, Training
from mbd.params.resolve import Params, load_params, params_digest, to_yaml

__all__ = [
    "Attacks",
    "Certificate",
    "Deletion",
    "Evaluation",
    "Features",
    "Model",
    "Params",
    "Training",
    "load_params",
    "params_digest",
    "to_yaml",
]
