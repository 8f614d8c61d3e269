"""All parameters of the system: one file, `params.yaml`, and one frozen model of it, :class:`Params`.

:func:`load_params` is the only way in: defaults, then the file, then `--set a.b=value`. A section is a module of this
package, loaded when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mbd.params.resolve import Params, load_params, params_digest, to_yaml

__all__ = ["Params", "load_params", "params_digest", "to_yaml"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- what __all__ lists
    if name in __all__:
        return getattr(import_module("mbd.params.resolve"), name)
    raise AttributeError(f"module 'mbd.params' has no attribute {name!r}")
