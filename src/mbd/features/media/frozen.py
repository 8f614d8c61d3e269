"""Frozen transformers encoders: loaded from safetensors only, without foreign code, in evaluation mode.

The bits of a matrix product depend on its shape and on the number of threads. So each row goes through its encoder
alone and on one thread, and rows run side by side: a vector depends on the content and the encoder, not on what else
is in the table or in the cache, nor on the number of cores. So there is no padding and nothing to mask either.

What an image encoder expects is in its `preprocessor_config.json`; without one, it is what ImageNet models are used to.
Read are `size` (a number, `shortest_edge`, or `height` and `width`), `crop_pct` (ConvNeXT's: the shortest edge becomes
size / crop_pct and the middle is cropped; from 384 on the picture is squeezed instead), `crop_size`, `resample`
(2 bilinear, 3 bicubic, both with antialiasing), `rescale_factor`, `image_mean`, `image_std` and their `do_…` switches.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn import functional
from transformers.utils import logging as transformers_logging

from mbd.errors import UsageError
from mbd.features.media.decoding import read_frames
from mbd.features.media.encoders import Loaded
from mbd.files import read_json
from mbd.tensors import Array

FILE = "preprocessor_config.json"
_RESAMPLING = {2: "bilinear", 3: "bicubic"}
_IMAGENET: dict[str, Any] = {
    "size": {"shortest_edge": 224},
    "crop_pct": 224 / 256,
    "resample": 3,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}
_SQUEEZED_FROM = 384  # ConvNeXT does not crop pictures of this size or more


@dataclass(frozen=True)
class Preparation:
    """From frames (uint8, n × height × width × RGB) to pixel values (float32, n × RGB × height × width)."""

    shortest_edge: int | None
    """resize so that the shortest edge has this length"""
    exact: tuple[int, int] | None
    """resize to this height and width"""
    crop: tuple[int, int] | None
    """height and width cut out of the middle"""
    mode: str
    factor: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, frames: Array) -> torch.Tensor:
        """Prepare the frames of one video."""
        pixels = torch.from_numpy(frames.copy()).permute(0, 3, 1, 2)
        size = self._resized(pixels.shape[2], pixels.shape[3])
        if size != tuple(pixels.shape[2:]):
            pixels = functional.interpolate(pixels, size=size, mode=self.mode, antialias=True)
        if self.crop is not None:
            top, left = (round((have - want) / 2) for have, want in zip(size, self.crop, strict=True))
            pixels = pixels[:, :, top : top + self.crop[0], left : left + self.crop[1]]
        mean, deviation = (torch.tensor(values).view(1, -1, 1, 1) for values in (self.mean, self.deviation))
        return ((pixels.float() * self.factor - mean) / deviation).contiguous()

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        if self.exact is not None:
            return self.exact
        if self.shortest_edge is None:
            return height, width
        short = min(height, width)
        return self.shortest_edge * height // short, self.shortest_edge * width // short


def read_preparation(folder: Path, key: str) -> Preparation:
    """Read what the encoder in `folder` wants."""
    file = folder / FILE
    try:
        return _preparation(read_json(file) if file.is_file() else _IMAGENET)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"the encoder's {FILE} is not understood: {error}",
            key=key,
            value=file,
            hint="write size, resample, image_mean and image_std as ConvNextImageProcessor or ViTImageProcessor do",
        ) from error


def _preparation(config: Mapping[str, Any]) -> Preparation:
    shortest, exact, crop = _sizes(config) if config.get("do_resize", True) else (None, None, None)
    if config.get("do_center_crop", False):
        crop = _height_and_width(config["crop_size"])
    least = exact or (shortest or 0, shortest or 0)
    if crop is not None and (crop[0] > least[0] or crop[1] > least[1]):
        raise ValueError("the crop is larger than the resized picture")
    normalised = config.get("do_normalize", True)
    return Preparation(
        shortest_edge=shortest,
        exact=exact,
        crop=crop,
        mode=_RESAMPLING[config.get("resample", 2)],
        factor=float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0,
        mean=tuple(map(float, config["image_mean"])) if normalised else (0.0,),
        deviation=tuple(map(float, config["image_std"])) if normalised else (1.0,),
    )


def _sizes(config: Mapping[str, Any]) -> tuple[int | None, tuple[int, int] | None, tuple[int, int] | None]:
    """Return the shortest edge, or else the exact size, to which pictures are resized, and what is cropped of it."""
    size = config.get("size", 224)
    processor = str(config.get("image_processor_type", config.get("feature_extractor_type", "")))
    crop_share = config.get("crop_pct", 224 / 256 if processor.startswith("ConvNext") else None)
    edge = (
        size if isinstance(size, int) and crop_share else size.get("shortest_edge") if isinstance(size, dict) else None
    )
    if edge is None:
        return None, _height_and_width(size), None
    if crop_share is None:
        return edge, None, None
    if edge >= _SQUEEZED_FROM:
        return None, (edge, edge), None
    return int(edge / crop_share), None, (edge, edge)


def _height_and_width(size: int | Mapping[str, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size["height"]), int(size["width"]))


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
    prepare = read_preparation(folder, key)
    model = load_model(folder, key, "pixel_values")

    def encode(pictures: Array) -> Array:
        with torch.inference_mode():
            pooled = getattr(model(pixel_values=prepare(pictures)), "pooler_output", None)
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
    with _errors_as_usage(folder, key), _quiet():
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
    with _errors_as_usage(folder, key), _quiet():
        return transformers.AutoTokenizer.from_pretrained(folder, **_LOCAL)


@contextmanager
def _errors_as_usage(folder: Path, key: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever transformers, tokenizers and safetensors may raise
        raise UsageError(
            f"the encoder cannot be loaded: {error}",
            key=key,
            value=folder,
            hint="give a folder that save_pretrained has written, with model and tokenizer or preprocessor",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the loading report: what matters in it is checked."""
    verbosity, bar = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bar:
            transformers_logging.enable_progress_bar()
