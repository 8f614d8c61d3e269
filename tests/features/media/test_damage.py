"""Damage to raw content is that of `mbd.features.corruption`, drawn by content and seed, named by what decides it."""

import numpy as np
import pytest

from mbd.features.corruption import corrupt_text, corrupt_waveform
from mbd.features.sources.media import raw_damage
from mbd.params.base import CorruptionSettings
from mbd.tensors import Array
from tests.features.media.build import moving_colours, tone

RAW: dict[str, str | Array] = {
    "text": "the film was really good",
    "audio": tone(200, 0.1),
    "visual": moving_colours(30, count=2),
}


@pytest.mark.parametrize("modality", RAW)
def test_damage_depends_on_content_and_seed_only(modality: str) -> None:
    raw = RAW[modality]

    def damaged(seed: int, digest: str) -> bytes:
        result = raw_damage(modality, CorruptionSettings(), seed).apply(raw, digest)
        return np.asarray(result).tobytes()

    assert damaged(0, "a") == damaged(0, "a")
    assert len({np.asarray(raw).tobytes(), damaged(0, "a"), damaged(0, "b"), damaged(1, "a")}) == 4


def test_text_and_sound_are_damaged_by_the_parameters() -> None:
    params = CorruptionSettings(typos=0.4, reorder=1, snr_db=3.0)
    assert raw_damage("text", params, 5).apply(RAW["text"], "a") == corrupt_text(str(RAW["text"]), params, 5, "a")
    wave = np.asarray(RAW["audio"])
    np.testing.assert_array_equal(
        raw_damage("audio", params, 5).apply(wave, "a"), corrupt_waveform(wave, params, 5, "a")
    )


def test_every_frame_has_its_share_of_pixels_at_places_of_its_own() -> None:
    grey = np.full((3, 40, 50, 3), 128, np.uint8)
    damaged = raw_damage("visual", CorruptionSettings(blur=0, pepper=0.1), 0).apply(grey, "a")
    changed = (damaged != grey).any(axis=-1)
    assert (damaged.shape, damaged.dtype) == (grey.shape, np.uint8)
    assert changed.sum(axis=(1, 2)).tolist() == [200, 200, 200]
    assert len({frame.tobytes() for frame in changed}) == 3


def test_the_name_holds_what_decides_the_damage_of_this_modality_and_nothing_else() -> None:
    def names(params: CorruptionSettings, seed: int = 0) -> dict[str, str]:
        return {modality: raw_damage(modality, params, seed).name for modality in RAW}

    def renamed(params: CorruptionSettings, seed: int = 0) -> set[str]:
        return {
            modality for modality, name in names(params, seed).items() if name != names(CorruptionSettings())[modality]
        }

    assert renamed(CorruptionSettings(share=0.5)) == set()
    assert renamed(CorruptionSettings(), seed=1) == set(RAW)
    assert renamed(CorruptionSettings(snr_db=3.0)) == {"audio"}
    for visual in (CorruptionSettings(blur=1.0), CorruptionSettings(pepper=0.1)):
        assert renamed(visual) == {"visual"}
    for text in (CorruptionSettings(typos=0.2), CorruptionSettings(reorder=1)):
        assert renamed(text) == {"text"}
