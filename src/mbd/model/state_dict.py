"""Weights that were trained elsewhere: the `state_dict` in a file, in a checkpoint, or in a folder of Hugging Face.

Read are safetensors, and what `torch.save` wrote: a `state_dict`, or a checkpoint that holds one beside other things,
as those of Lightning do. A folder, as `save_pretrained` writes it, can hold the weights in several files.

What `torch.save` wrote is a pickle. Torch reads it without running any of it (`weights_only=True`), and builds tensors,
numbers, texts and containers of them alone. Objects of other classes, such as hyper-parameters, are not imported:
something empty takes their place. A file that names functions of the operating system is not opened.
"""

import json
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mbd.errors import DataError
from mbd.tensors import Array

_HINT = "give safetensors, what torch.save(module.state_dict(), FILE) wrote, or a checkpoint that holds it"
_IN_FOLDERS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
_INDEX = ".index.json"
_USUAL_KEYS = ("state_dict", "model_state_dict", "model", "module")
"""under which checkpoints hold the weights of the model, the most usual first"""


def read_state(path: Path) -> dict[str, Array]:
    """Return the tensors of a `state_dict` by the names that they have there, floating-point ones in single precision.

    Raises:
        DataError: There is no such thing, or a tensor in it is none of plain numbers.

    """
    files = _files(path) if path.is_dir() else [path]
    return {
        name: _to_array(name, tensor, file) for file in files for name, tensor in _unwrapped(_read(file), file).items()
    }


def _files(folder: Path) -> list[Path]:
    """Return the files with the weights of a folder that Hugging Face's `save_pretrained` wrote."""
    for name in _IN_FOLDERS:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}{_INDEX}"
        if index.is_file():
            try:
                parts = set(json.loads(index.read_bytes())["weight_map"].values())
                return [folder / Path(part).name for part in sorted(parts)]
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise DataError("the list of the files with weights cannot be read", file=index) from error
    raise DataError("the folder has no file with weights", file=folder, hint=f"it needs {' or '.join(_IN_FOLDERS)}")


def _read(file: Path) -> object:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch doubts files that are then refused, or read well
            with torch.serialization.safe_globals(_stand_ins(file)):
                return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            "the file holds more than tensors (a pickle with objects or code in it), and is not opened",
            file=file,
            hint="save the weights alone: torch.save(module.state_dict(), FILE), or as safetensors",
        ) from error
    except (OSError, SafetensorError) as error:
        raise DataError(f"the weights cannot be read: {error}", file=file, hint=_HINT) from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(
            f"the weights cannot be read: {type(error).__name__}: {error}", file=file, hint=_HINT
        ) from error


class _Mapping:
    """Takes the place of a class that is not imported: its objects become mappings, which torch's reader can fill."""

    def __new__(cls, *_: object, **__: object) -> Any:  # noqa: ANN401
        return OrderedDict()


class _Number:
    """Takes the place of numpy's types: single numbers in a checkpoint, such as a best score."""

    def __init__(self, *_: object) -> None:
        """Forget what the number was."""

    def __setstate__(self, _: object) -> None:
        """Forget what the type was."""


def _stand_ins(file: Path) -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """Return something empty for each class that a file names and torch does not know."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception:
        return []
    return [(_Number if name.startswith("numpy.") else _Mapping, name) for name in names]


def _unwrapped(found: object, file: Path) -> Mapping[str, Tensor]:
    """Return the `state_dict` in what a file holds."""
    if _is_state(found):
        return found
    parts = {str(key): part for key, part in found.items() if _is_state(part)} if isinstance(found, Mapping) else {}
    usual = [key for key in _USUAL_KEYS if key in parts][:1] or list(parts)
    if len(usual) == 1:
        return parts[usual[0]]
    raise DataError(
        "the file is not a state_dict: tensors by name",
        file=file,
        value=type(found).__name__,
        hint=f"save one of them alone: {', '.join(usual)}" if usual else "save module.state_dict()",
    )


def _is_state(found: object) -> TypeGuard[Mapping[str, Tensor]]:
    return (
        isinstance(found, Mapping)
        and len(found) > 0
        and all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in found.items())
    )


def _to_array(name: str, tensor: Tensor, file: Path) -> Array:
    odd = {
        "sparse": tensor.layout is not torch.strided,
        "quantised": tensor.is_quantized,
        "nested": tensor.is_nested,
        "without values (on the device meta)": tensor.is_meta,
        "complex": tensor.is_complex(),
    }
    if kinds := [kind for kind, is_odd in odd.items() if is_odd]:
        raise DataError(
            f"a tensor is {kinds[0]}", file=file, key=name, hint="save dense tensors of real numbers: x.to_dense(), …"
        )
    plain = tensor.detach()
    return (plain.float() if plain.is_floating_point() else plain).contiguous().numpy()
