"""Weights that were trained elsewhere: a `state_dict` in a file.

The file is safetensors, or what `torch.save(module.state_dict(), FILE)` writes. The latter is read with
`weights_only=True`: it may hold tensors and nothing else, and no code in it is ever run.
"""

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from mbd.errors import DataError
from mbd.tensors import Array


def read_state(file: Path) -> dict[str, Array]:
    """Return the tensors of a `state_dict`, floating-point ones in single precision.

    Raises:
        DataError: The file is no such thing, or holds more than tensors.

    """
    try:
        if file.suffix == ".safetensors":
            state = load_file(file)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch doubts files that are then refused, or read well
                state = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            "the file holds more than tensors (a pickle with objects or code in it), and is not opened",
            file=file,
            hint="save the weights alone: torch.save(module.state_dict(), FILE), or as safetensors",
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError, SafetensorError) as error:
        hint = "give safetensors, or what torch.save(module.state_dict(), FILE) wrote"
        raise DataError(f"the weights cannot be read: {error}", file=file, hint=hint) from error
    if not isinstance(state, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        inner = (
            [str(key) for key, part in state.items() if isinstance(part, Mapping)] if isinstance(state, Mapping) else []
        )
        raise DataError(
            "the file is not a state_dict: tensors by name",
            file=file,
            value=type(state).__name__,
            hint=f"save what is under {', '.join(inner)} alone" if inner else "save module.state_dict()",
        )
    return {
        str(name): (tensor.float() if tensor.is_floating_point() else tensor).contiguous().numpy()
        for name, tensor in state.items()
    }
