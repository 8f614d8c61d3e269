"""Pictures as an image encoder wants them: resized, cropped in the middle, scaled and normalised.

What it expects is in its `preprocessor_config.json`; without one, it is what ImageNet models are used to. Read are
`size` (a number, `shortest_edge`, or `height` and `width`), `crop_pct` (ConvNeXT's: the shortest edge becomes
size / crop_pct and the middle is cropped; from 384 on the picture is squeezed instead), `crop_size`, `resample`
(2 bilinear, 3 bicubic, both with antialiasing), `rescale_factor`, `image_mean`, `image_std` and their `do_…` switches.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from mbd.errors import UsageError
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
