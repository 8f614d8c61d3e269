"""Small folders to encrypt, data keys, and a search for leftover plaintext."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mbd.formats.model import DataRecord, ModelRecord
from mbd.model.checkpoint import describe, save_model
from mbd.params.operations import ShreddingSettings
from mbd.shredding.keys import Keyring
from mbd.shredding.wrapper import FileWrapper
from tests.training.build import DIMS, joint_data

WINDOW = 32
LINEAGE = "small"


def settings(folder: Path) -> ShreddingSettings:
    """Settings with all paths below one folder."""
    return ShreddingSettings(
        enabled=True, keys=f"{folder}/keys", wrapper=f"file:{folder}/kek", temporary=f"{folder}/temporary"
    )


def make_keyring(folder: Path) -> Keyring:
    """The keyring of these settings, with a wrapping key."""
    FileWrapper(folder / "kek").make()
    return Keyring.of(settings(folder))


def feature_set(folder: Path) -> Path:
    return joint_data(folder)


def model(folder: Path, without: tuple[str, ...] = (), seed: int = 0) -> Path:
    """A model folder with random weights, trained on the data of :func:`feature_set`."""
    folder.mkdir(parents=True)
    weights = {"w": np.random.default_rng(seed).standard_normal((64, 16), dtype=np.float32)}
    record = ModelRecord(
        backbone="joint",
        spec={},
        task="regression",
        classes=(),
        label_range=(-3, 3),
        modalities=DIMS,
        revoked=without,
        seed="0",
        data=DataRecord(name=LINEAGE, files={}),
        tensors={"w": describe(weights["w"], tuple(DIMS))},
        sha256="",
    )
    save_model(folder, record, weights)
    (folder / "metrics.json").write_text("{}\n")
    return folder


def windows(tensors: Path) -> set[bytes]:
    """Unique windows of 32 bytes of the tensors in a file: every run of 63 bytes contains one."""
    data = tensors.read_bytes()
    data = data[8 + int.from_bytes(data[:8], "little") :]
    found = {data[start : start + WINDOW] for start in range(0, len(data) - WINDOW, WINDOW)}
    return {window for window in found if len(set(window)) > WINDOW // 2}


def files_with(folder: Path, wanted: set[bytes]) -> Iterator[Path]:
    """Yield the files below a folder that contain one of the wanted windows."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink():
            data = file.read_bytes()
            if any(piece in data for piece in wanted):
                yield file
