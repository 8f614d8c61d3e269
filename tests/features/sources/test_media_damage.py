"""A damaged twin of raw media: chosen rows are decoded, damaged and encoded, and nothing else changes."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.features.corruption import corrupt_text, corrupt_waveform, corrupted_rows
from mbd.features.media.encoders import Encoder
from mbd.features.rows import Rows
from mbd.features.sources.media import fill_cache, raw_damage
from mbd.params import Params, load_params
from mbd.params.base import CorruptionSettings
from mbd.steps import features
from mbd.tensors import Array
from tests.digests import path_digest
from tests.features.media.build import (
    moving_colours,
    tone,
    write_table,
    write_text_encoder,
    write_video,
    write_visual_encoder,
)

SPLIT_OF = ["train", "test", "train", "test", "train", "test", "train", "test", "test", "test", "valid"]
SHARE = 0.67  # 4 of the 6 test rows, so at least one that lacks a modality
MODALITIES = ("text", "audio", "visual")


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips, encoders and a table, splits mixed; of the test rows 1 has no sound, 3 no video, 5 no transcript."""
    folder = tmp_path_factory.mktemp("media")
    write_text_encoder(folder / "text")
    write_visual_encoder(folder / "visual")
    rows = []
    for k, split in enumerate(SPLIT_OF):
        sound = None if k == 1 else tone(120 + 20 * k, 0.3)
        write_video(folder / f"{k}.mp4", moving_colours(8 * k, count=4), sound)
        row = {"id": f"clip{k}_0", "video": f"{k}.mp4", "transcript": "the film was " + "good " * k}
        rows.append({**row, "label": str(k % 7 - 3), "split": split})
    rows[3]["video"] = ""
    rows[5]["transcript"] = ""
    write_table(folder / "table.csv", rows)
    return folder


def chosen_params(media: Path, cache: Path, *settings: str) -> Params:
    source = "features.source"
    return load_params(
        None,
        [
            f"{source}.kind=media",
            f"{source}.path={media / 'table.csv'}",
            f"{source}.media.text_encoder={media / 'text'}",
            f"{source}.media.visual_encoder={media / 'visual'}",
            f"{source}.media.frames=2",
            f"{source}.media.cache={cache}",
            "features.calibration.size=0",
            *settings,
        ],
    )


def run(media: Path, cache: Path, out: Path, *settings: str) -> Path:
    features.run(chosen_params(media, cache, *settings), out)
    return out


DAMAGE = ("features.damage.split=test", f"features.damage.corruption.share={SHARE}")


def damage(media: Path, cache: Path, out: Path, *settings: str) -> Path:
    return run(media, cache, out, *DAMAGE, *settings)


@pytest.fixture(scope="module")
def clean(media: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The set as it is, and its cache."""
    folder = tmp_path_factory.mktemp("clean")
    return run(media, folder / "cache", folder / "out"), folder / "cache"


@pytest.fixture(scope="module")
def damaged(media: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Its damaged twin, and the cache of its own that began empty."""
    folder = tmp_path_factory.mktemp("damaged")
    return damage(media, folder / "cache", folder / "out"), folder / "cache"


def rows_of(out: Path, split: str = "test") -> Rows:
    return FeatureSet.open(out, verify=True).split(split).load()


def entries(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*.vector")}


def changed(one: Rows, other: Rows, modality: str) -> list[bool]:
    pairs = zip(one.features[modality], other.features[modality], strict=True)
    return [a.tobytes() != b.tobytes() for a, b in pairs]


def test_the_chosen_rows_differ_in_all_they_have_and_the_others_in_nothing(
    clean: tuple[Path, Path], damaged: tuple[Path, Path]
) -> None:
    before, after = rows_of(clean[0]), rows_of(damaged[0])
    chosen = corrupted_rows(6, SHARE, 0)
    assert chosen.sum() == 4
    for modality in MODALITIES:
        available = before.available[modality]
        assert after.available[modality].tolist() == available.tolist()
        assert changed(before, after, modality) == (chosen & available).tolist()
    assert any((chosen & ~before.available[modality]).any() for modality in MODALITIES)
    files = {out: FeatureSet.open(out).digests() for out in (clean[0], damaged[0])}
    different = {name for name, digest in files[clean[0]].items() if files[damaged[0]][name] != digest}
    assert different == {f"splits/test/{modality}.safetensors" for modality in MODALITIES}


def test_provenance_says_what_was_damaged(clean: tuple[Path, Path], damaged: tuple[Path, Path]) -> None:
    notes = FeatureSet.open(damaged[0]).manifest.provenance["notes"]
    strengths = {"snr_db": 10.0, "pepper": 0.05, "blur": 1.5, "typos": 0.1, "reorder": 3}
    assert notes["damage"] == {"split": "test", "rows": 4, "level": "raw", "share": SHARE, **strengths}
    assert "damage" not in FeatureSet.open(clean[0]).manifest.provenance["notes"]


def test_cached_vectors_are_not_used_for_damaged_rows(
    media: Path, clean: tuple[Path, Path], damaged: tuple[Path, Path], tmp_path: Path
) -> None:
    cache = Path(shutil.copytree(clean[1], tmp_path / "cache"))
    whole = entries(cache)
    assert path_digest(damage(media, cache, tmp_path / "damaged")) == path_digest(damaged[0])
    assert entries(cache).items() >= whole.items()
    chosen = set(rows_of(damaged[0]).ids[corrupted_rows(6, SHARE, 0)])
    expected = {
        "text": len(chosen - {"clip5_0"}),
        "audio": len(chosen - {"clip3_0"}),  # that clip1 has no sound is remembered too
        "visual": len(chosen - {"clip3_0"}),
    }
    new = [name.partition("/")[0] for name in entries(cache).keys() - whole.keys()]
    assert {modality: new.count(modality) for modality in MODALITIES} == expected
    assert path_digest(run(media, cache, tmp_path / "clean")) == path_digest(clean[0])


def test_a_second_run_encodes_nothing_and_gives_the_same_bytes(
    media: Path, damaged: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, cache = damaged
    before = entries(cache)

    def load(encoder: Encoder) -> None:
        raise AssertionError(f"{encoder.modality} was loaded")

    monkeypatch.setattr(Encoder, "loaded", load)
    assert path_digest(damage(media, cache, tmp_path / "again")) == path_digest(out)
    assert entries(cache) == before


def test_another_strength_is_another_damage_to_its_modality_alone(
    media: Path, damaged: tuple[Path, Path], tmp_path: Path
) -> None:
    cache = Path(shutil.copytree(damaged[1], tmp_path / "cache"))
    louder = damage(media, cache, tmp_path / "louder", "features.damage.corruption.snr_db=0")
    one, other = rows_of(damaged[0]), rows_of(louder)
    assert changed(one, other, "audio") == (corrupted_rows(6, SHARE, 0) & one.available["audio"]).tolist()
    for modality in ("text", "visual"):
        np.testing.assert_array_equal(one.features[modality], other.features[modality])


def test_another_seed_damages_other_rows(media: Path, damaged: tuple[Path, Path], tmp_path: Path) -> None:
    cache = Path(shutil.copytree(damaged[1], tmp_path / "cache"))
    other = rows_of(
        damage(media, cache, tmp_path / "other", "features.seed=1", "features.source.modalities=[text, visual]")
    )
    first = rows_of(damaged[0])
    either = corrupted_rows(6, SHARE, 0) | corrupted_rows(6, SHARE, 1)
    assert changed(first, other, "visual") == (either & first.available["visual"]).tolist()


def test_parts_of_the_media_that_are_encoded_apart_fill_the_cache_and_change_no_byte(
    media: Path, damaged: tuple[Path, Path], tmp_path: Path
) -> None:
    made: list[set[str]] = []
    for shard in range(3):
        before = set(entries(tmp_path / "cache"))
        fill_cache(chosen_params(media, tmp_path / "cache", *DAMAGE).features, shard, 3)
        made.append(set(entries(tmp_path / "cache")) - before)
    assert all(made)
    assert entries(tmp_path / "cache") == entries(damaged[1])
    out = damage(media, tmp_path / "cache", tmp_path / "out")
    assert path_digest(out) == path_digest(damaged[0])
    assert set(entries(tmp_path / "cache")) == set.union(*made)  # nothing was left to do


def test_a_part_names_the_table_that_has_no_such_modality(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,label,split,transcript\na_0,0,train,good\n")
    params = load_params(None, [f"features.source.path={table}", "features.source.modalities=[visual]"])
    with pytest.raises(DataError) as error:
        fill_cache(params.features, 0, 2)
    assert error.value.file == table


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
