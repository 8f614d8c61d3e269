"""Where the files of a frozen encoder are, and their digests.

An encoder is a local folder as `save_pretrained` writes it, or a hub id at a full commit: a branch or tag can be moved,
and with it every vector. Only configuration, vocabulary and safetensors are fetched and read, never code or pickles.
"""

import re
from pathlib import Path
from typing import Any

from mbd.errors import MissingExtraError, UsageError
from mbd.files import read_json, sha256_file

_SUFFIXES = (".json", ".safetensors", ".txt", ".model")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_HUB_ID = re.compile(r"^\w[\w.-]*(/\w[\w.-]*)?$")


def encoder_folder(name: str, revision: str | None, key: str) -> Path:
    """Return the folder of the encoder that the parameter `key` names, fetched from the hub if need be."""
    folder = Path(name)
    if folder.is_dir():
        if revision is not None:
            raise UsageError(
                "a revision belongs to a hub id, and this is a local folder",
                key=f"{_section(key)}_revision",
                value=revision,
                hint="set it to null, or give the folder another name than the hub id",
            )
    elif not _HUB_ID.match(name):
        raise UsageError("there is no such encoder folder", key=key, value=name)
    elif revision is None or not _COMMIT.match(revision):
        raise UsageError(
            "there is no such encoder folder, and an encoder from the hub needs the full commit it is pinned to",
            key=f"{_section(key)}_revision",
            value=revision,
            hint=f"give the 40 hexadecimal digits that the hub shows in the history of {name}, or a local folder",
        )
    else:
        folder = _fetch(name, revision, key)
    _check_files(folder, key)
    return folder


def encoder_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of an encoder that may be read, by name."""
    files = sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    return {file.name: sha256_file(file) for file in files}


def _section(key: str) -> str:
    return key.removesuffix("_encoder")


def _fetch(name: str, revision: str, key: str) -> Path:
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 -- only a hub id needs it
    except ModuleNotFoundError as error:
        raise MissingExtraError("an encoder from the hub", "extract", "huggingface_hub") from error
    try:
        wanted = [f"*{suffix}" for suffix in _SUFFIXES]
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted, ignore_patterns=["*/*"]))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the encoder cannot be fetched from the hub: {error}",
            key=key,
            value=f"{name} at {revision}",
            hint="check the id and the commit, or copy its files and give the folder",
        ) from error


def _check_files(folder: Path, key: str) -> None:
    try:
        config: Any = read_json(folder / "config.json")
        known = isinstance(config, dict) and "model_type" in config
    except (OSError, ValueError):
        known = False
    if not known:
        raise UsageError(
            "the encoder has no config.json that names its model_type",
            key=key,
            value=folder,
            hint="give a folder that save_pretrained has written",
        )
    if not any(folder.glob("*.safetensors")):
        raise UsageError(
            "the encoder has no weights in safetensors, and nothing else is read (pickled weights can run code)",
            key=key,
            value=folder,
            hint="convert them once: AutoModel.from_pretrained(…).save_pretrained(FOLDER)",
        )
