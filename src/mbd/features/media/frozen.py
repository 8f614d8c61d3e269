"""Frozen transformers encoders: loaded from safetensors only, without foreign code, in evaluation mode.

The bits of a matrix product depend on its shape and on the number of threads. So each row goes through its encoder
alone and on one thread, and rows run side by side: a vector depends on the content and the encoder, not on what else
is in the table or in the cache, nor on the number of cores. So there is no padding and nothing to mask either.

What an image encoder expects is in its `preprocessor_config.json`, by which transformers prepares pictures with Pillow;
without one, it is what ImageNet models are used to.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
import transformers
from transformers.utils import logging as transformers_logging

from mbd.errors import UsageError
from mbd.features.media.decoding import read_frames
from mbd.features.media.encoders import Loaded
from mbd.tensors import Array

FILE = "preprocessor_config.json"
_IMAGENET: dict[str, Any] = {
    "size": {"shortest_edge": 224},
    "crop_pct": 224 / 256,
    "resample": 3,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}
_LOCAL = {"local_files_only": True, "trust_remote_code": False}


@contextmanager
def loaded_text(folder: Path, key: str, *, keeps: bool = False) -> Iterator[Loaded]:
    """Load an encoder of transcripts: the mean of the last hidden state over all tokens (768 for BERT base).

    A text longer than the encoder can read is cut there. One that `keeps` returns the token ids instead.
    """
    tokenizer = load_tokenizer(folder, key)
    model = load_model(folder, key, "input_ids", unused=("pooler.",))
    longest = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or 2**31)
    one_at_a_time = Lock()  # a tokenizer sets its truncation on itself

    def encode(text: str) -> Array:
        with one_at_a_time:
            tokens = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")
        if keeps:
            return np.array([len(tokenizer), *tokens["input_ids"][0].tolist()], np.float32)
        with torch.inference_mode():
            vector: Array = model(**tokens).last_hidden_state[0].mean(dim=0).numpy()
        return vector

    with one_thread():
        yield Loaded(decode=str, encode=encode)


@contextmanager
def loaded_visual(folder: Path, key: str, frames: int, *, keeps: bool = False) -> Iterator[Loaded]:
    """Load an encoder of videos: the mean of its pooled output over frames taken evenly (512 for ResNet-18).

    One that `keeps` returns the output of each frame.
    """
    prepare = load_preparation(folder, key)
    model = load_model(folder, key, "pixel_values")

    def encode(pictures: Array) -> Array:
        with torch.inference_mode():
            pooled = getattr(model(**prepare(pictures)), "pooler_output", None)
            if pooled is None:
                raise UsageError("the encoder has no pooled output", key=key, value=folder)
            if keeps:
                return np.append(np.float32(pooled.flatten(1).shape[1]), pooled.flatten().numpy())
            vector: Array = pooled.flatten(1).mean(dim=0).numpy()
        return vector

    with one_thread():
        yield Loaded(decode=lambda path: read_frames(path, frames), encode=encode)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let every torch operation run on the thread that calls it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def load_model(folder: Path, key: str, reads: str, *, unused: tuple[str, ...] = ()) -> Any:  # noqa: ANN401 -- any
    """Return the model in `folder`, which has to read `reads`; only weights of parts in `unused` may be missing."""
    with _loading(folder, key):
        model, report = transformers.AutoModel.from_pretrained(
            folder, **_LOCAL, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
    if model.main_input_name != reads or getattr(model.config, "is_encoder_decoder", False):
        raise UsageError(
            f"this is not an encoder that reads {reads} and nothing else",
            key=key,
            value=f"{folder}: {type(model).__name__}",
            hint="give one like BERT for texts, and one like ResNet for pictures",
        )
    missing = sorted(name for name in report["missing_keys"] if not name.startswith(unused))
    if missing:
        raise UsageError(
            f"{len(missing)} weights of the encoder are not in its file: they would be random",
            key=key,
            value=f"{folder}: {missing[0]}",
            hint="give a complete encoder",
        )
    return model.eval().requires_grad_(False)


def load_tokenizer(folder: Path, key: str) -> Any:  # noqa: ANN401 -- any tokenizer
    """Return the tokenizer in `folder`."""
    with _loading(folder, key):
        return transformers.AutoTokenizer.from_pretrained(folder, **_LOCAL)


def load_preparation(folder: Path, key: str) -> Callable[[Array], Any]:
    """Return what makes inputs of frames (uint8, n × height × width × RGB), as the encoder in `folder` wants them."""

    def prepare(frames: Array) -> Any:  # noqa: ANN401 -- a dictionary of transformers
        return processor(list(frames), input_data_format="channels_last", return_tensors="pt")

    with _loading(folder, key):
        if (folder / FILE).is_file():
            processor = transformers.AutoImageProcessor.from_pretrained(folder, **_LOCAL, backend="pil")
        else:
            processor = transformers.ConvNextImageProcessorPil(**_IMAGENET)
        prepare(np.zeros((1, 8, 8, 3), np.uint8))  # some settings are only looked at when they are used
    return prepare


@contextmanager
def _loading(folder: Path, key: str) -> Iterator[None]:
    """Within: errors name the encoder, and there is no loading report: what matters in it is checked."""
    verbosity, bar = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # whatever transformers, tokenizers and safetensors may raise
        raise UsageError(
            f"the encoder cannot be loaded: {error}",
            key=key,
            value=folder,
            hint="give a folder that save_pretrained has written, with model and tokenizer or preprocessor",
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bar:
            transformers_logging.enable_progress_bar()
