"""Missing-by-Design: make a trained multimodal model forget a modality, and prove it.

>>> model = mbd.load("build/model")
>>> model.predict({"text": matrix})        # any subset of model.modalities
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mbd.model.predictor import Model

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(folder: "Path | str") -> "Model":
    """Load a model folder; see :class:`mbd.model.predictor.Model`."""
    from mbd.model import predictor  # noqa: PLC0415 -- `import mbd` stays instant

    return predictor.load(folder)
