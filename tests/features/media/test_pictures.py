"""Pictures are prepared as the encoder's preprocessor_config.json says; Pillow is the judge of resizing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mbd.errors import UsageError
from mbd.features.media.frozen import FILE, load_preparation
from mbd.tensors import Array
from tests.refusals import refused

PLAIN = {"image_processor_type": "ConvNextImageProcessor", "do_rescale": False, "do_normalize": False}
RESNET_18: dict[str, Any] = {  # as the published ResNet-18 has it
    "crop_pct": 0.875,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "ConvNextFeatureExtractor",
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "resample": 3,
    "size": 224,
}


def picture(height: int, width: int) -> Array:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def prepared(folder: Path, config: dict[str, Any] | None, frame: Array) -> Array:
    (folder / "config.json").write_text(json.dumps({"model_type": "resnet"}))
    if config is not None:
        (folder / FILE).write_text(json.dumps(config))
    prepare = load_preparation(folder, "features.source.media.visual_encoder")
    pixels: Array = prepare(frame[None])["pixel_values"][0].permute(1, 2, 0).numpy()
    return pixels


def resized(frame: Array, height: int, width: int, how: Image.Resampling) -> Array:
    return np.asarray(Image.fromarray(frame).resize((width, height), how), np.float32)


def test_resnet_18_crops_the_middle_of_256_and_normalises(tmp_path: Path) -> None:
    frame = picture(300, 400)
    pixels = prepared(tmp_path, RESNET_18, frame)
    assert pixels.shape == (224, 224, 3)
    expected = resized(frame, 256, 341, Image.Resampling.BICUBIC)[16:240, 58:282] / 255
    expected = (expected - RESNET_18["image_mean"]) / RESNET_18["image_std"]
    np.testing.assert_allclose(pixels, expected, atol=2 / 255 / 0.224)


def test_without_a_configuration_it_is_the_same(tmp_path: Path) -> None:
    frame = picture(250, 230)
    default = prepared(tmp_path, None, frame)
    np.testing.assert_array_equal(default, prepared(tmp_path, RESNET_18, frame))


def test_switched_off_it_is_the_picture_itself(tmp_path: Path) -> None:
    frame = picture(11, 17)
    np.testing.assert_array_equal(prepared(tmp_path, {**PLAIN, "do_resize": False}, frame), frame)
    half = {"do_resize": False, "rescale_factor": 0.5, "do_normalize": False}
    np.testing.assert_array_equal(prepared(tmp_path, half, frame), frame / 2)


@pytest.mark.parametrize("config", [[], {"size": {"longest_edge": 9}, **PLAIN}])
def test_a_configuration_that_is_not_understood(tmp_path: Path, config: Any) -> None:
    with refused(UsageError, key="features.source.media.visual_encoder"):
        prepared(tmp_path, config, picture(20, 20))
