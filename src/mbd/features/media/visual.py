"""Videos to vectors: the mean, over frames taken evenly, of an image encoder's pooled output (512 for ResNet-18)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from mbd.errors import UsageError
from mbd.features.media.decoding import read_frames
from mbd.features.media.encoders import Loaded
from mbd.features.media.frozen import load_model, one_thread
from mbd.features.media.pictures import read_preparation
from mbd.tensors import Array


@contextmanager
def loaded(folder: Path, key: str, frames: int) -> Iterator[Loaded]:
    """Load the model in `folder`, and how it wants its pictures."""
    prepare = read_preparation(folder, key)
    model = load_model(folder, key, "pixel_values")

    def encode(pictures: Array) -> Array:
        with torch.inference_mode():
            pooled = getattr(model(pixel_values=prepare(pictures)), "pooler_output", None)
            if pooled is None:
                raise UsageError("the encoder has no pooled output", key=key, value=folder)
            vector: Array = pooled.flatten(1).mean(dim=0).numpy()
        return vector

    with one_thread():
        yield Loaded(decode=lambda path: read_frames(path, frames), encode=encode)
