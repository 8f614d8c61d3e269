"""Adapters of low rank (LoRA), as PEFT saves them, merged into the weights that they were trained on.

For a layer with weight W and factors A (r × inputs), B (outputs × r):   W ← W + s B A,   s = α / r, or α / √r (rsLoRA)

transposed for an embedding and for layers that store W as inputs × outputs (`fan_in_fan_out`). Layers that an adapter
holds as a whole (`modules_to_save`, biases) replace those of the model. `adapter_config.json` has r and α, which
patterns can set for single layers; r is read off A.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError
from mbd.model.matching import Renames, rename
from mbd.model.state_dict import read_state
from mbd.tensors import Array

_CONFIGURATION = "adapter_config.json"
_WRAPPER: Renames = {"base_model.model.": ""}
"""what PEFT has put before the names of the model"""
_FACTOR = re.compile(r"(?P<layer>.+)\.lora_(?P<embedding>embedding_)?(?P<which>[AB])(\.default)?(\.weight)?$")


def merge_adapter(tensors: Mapping[str, Array], folder: Path, renames: Renames) -> dict[str, Array]:
    """Return the weights of a module with an adapter merged into them.

    Args:
        tensors: Weights by their names in the module.
        folder: With `adapter_config.json` and `adapter_model.safetensors`.
        renames: Beginnings of names in the adapter, and what they are in the module.

    Raises:
        DataError: It is no adapter of low rank, or does not fit the weights.

    """
    configuration = _read_configuration(folder)
    merged, factors = dict(tensors), {}
    for name, array in read_state(folder).items():
        new = rename(name, renames) if any(name.startswith(old) for old in renames) else rename(name, _WRAPPER)
        match = _FACTOR.match(new or "")
        if match:
            factors[f"{match['layer']}.weight", match["which"], bool(match["embedding"])] = array
        elif new is not None:
            merged[_known(new, array.shape, tensors, folder)] = array
    for weight, which, embedding in factors:
        if which == "A":
            a, b = (factors.get((weight, part, embedding)) for part in "AB")
            if a is None or b is None or a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1]:
                raise DataError("the factors of a layer are no two matrices that fit", file=folder, key=weight)
            change = _scale(configuration, weight.removesuffix(".weight"), len(a)) * (b @ a)
            change = change.T if embedding or configuration.get("fan_in_fan_out") else change
            _known(weight, change.shape, tensors, folder)
            merged[weight] = (tensors[weight] + change).astype(tensors[weight].dtype)
    return merged


def _read_configuration(folder: Path) -> Mapping[str, Any]:
    file = folder / _CONFIGURATION
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        hint = "give the folder that PEFT's save_pretrained wrote"
        raise DataError(f"the configuration of the adapter cannot be read: {error}", file=file, hint=hint) from error
    kind = found.get("peft_type") if isinstance(found, dict) else None
    if kind != "LORA" or found.get("use_dora"):
        raise DataError(
            "only adapters of low rank (LoRA) can be merged here",
            file=file,
            key="use_dora" if kind == "LORA" else "peft_type",
            value=True if kind == "LORA" else kind,
            hint="merge it by PEFT's merge_and_unload, and import the whole model",
        )
    return dict(found)


def _scale(configuration: Mapping[str, Any], layer: str, rank: int) -> float:
    alphas: Mapping[str, float] = configuration.get("alpha_pattern") or {}
    own = [alpha for pattern, alpha in alphas.items() if re.match(rf"(.*\.)?({pattern})$", layer)]
    alpha = float(own[0] if own else configuration.get("lora_alpha", rank))
    return alpha / (np.sqrt(rank) if configuration.get("use_rslora") else rank)


def _known(name: str, shape: tuple[int, ...], tensors: Mapping[str, Array], folder: Path) -> str:
    found = tensors[name].shape if name in tensors else None
    if found != shape:
        raise DataError(
            "the adapter does not fit the weights",
            file=folder,
            key=name,
            value=f"{shape} in the adapter, {found or 'missing'} in the model",
            hint="model.rename gives the names of its layers in the module, as {base_model.model.: encoder.}",
        )
    return name
