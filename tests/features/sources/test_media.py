"""From raw clips to a FeatureSet with real encoders; a killed run continues, and a second run computes nothing."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.features.media.encoders import Encoder
from mbd.features.rows import Collection
from mbd.features.sources import read_source
from mbd.files import sha256_file
from mbd.formats.features import Shape
from mbd.params import load_params
from mbd.steps import features
from tests.digests import path_digest
from tests.features.media.build import (
    moving_colours,
    tone,
    write_table,
    write_text_encoder,
    write_video,
    write_visual_encoder,
    write_wav,
)
from tests.refusals import refused

SPLIT_OF = ["train"] * 8 + ["valid"] * 2 + ["test"] * 3


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with clips, encoders and a table: row 3 has no sound, row 4 no video, row 5 no transcript."""
    folder = tmp_path_factory.mktemp("media")
    write_text_encoder(folder / "text")
    write_visual_encoder(folder / "visual")
    (folder / "clips").mkdir()
    rows = []
    for k, split in enumerate(SPLIT_OF):
        sound = None if k == 3 else tone(120 + 20 * k, 0.6)
        write_video(folder / "clips" / f"{k}.mp4", moving_colours(8 * k, count=6), sound)
        row = {"id": f"clip{k}_0", "video": f"clips/{k}.mp4", "transcript": "the film was " + "good " * k}
        rows.append({**row, "label": str(k % 7 - 3), "split": split, "group": f"speaker{k}"})
    rows[4]["video"] = ""
    rows[5]["transcript"] = " "
    write_table(folder / "table.csv", rows)
    (folder / "params.yaml").touch()
    return folder


def settings(media: Path, cache: Path, *more: str, table: str = "table.csv") -> list[str]:
    prefix = "features.source"
    return [
        f"{prefix}.kind=media",
        f"{prefix}.path={media / table}",
        f"{prefix}.media.text_encoder={media / 'text'}",
        f"{prefix}.media.visual_encoder={media / 'visual'}",
        f"{prefix}.media.frames=2",
        f"{prefix}.media.cache={cache}",
        "features.calibration.share=0.3",
        *(f"{prefix}.{setting}" for setting in more),
    ]


def run(media: Path, cache: Path, out: Path, *more: str, table: str = "table.csv") -> Path:
    features.run(load_params(media / "params.yaml", settings(media, cache, *more, table=table)), out)
    return out


def read(media: Path, cache: Path, *more: str, table: str = "table.csv") -> Collection:
    return read_source(load_params(media / "params.yaml", settings(media, cache, *more, table=table)).features)


def edited(media: Path, name: str, edit: dict[int, str], columns: str | None = None) -> str:
    """Write the table again with some lines replaced (the header is line 1)."""
    lines = (media / "table.csv").read_text().splitlines()
    for line, text in edit.items():
        lines[line - 1] = text
    (media / name).write_text("\n".join([columns or lines[0], *lines[1:]]) + "\n")
    return name


def entries(cache: Path) -> dict[Path, tuple[int, int]]:
    """The cache's files, with what changes when one is written again."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in cache.rglob("*.vector")}


@pytest.fixture(scope="module")
def fresh(media: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run with an empty cache: its output and its cache."""
    folder = tmp_path_factory.mktemp("fresh")
    return run(media, folder / "cache", folder / "out"), folder / "cache"


def test_frames_and_token_ids_are_kept_on_request(media: Path, fresh: tuple[Path, Path], tmp_path: Path) -> None:
    found = read(media, tmp_path / "cache", "sequences=keep")
    assert found.shapes["visual"] == Shape(kind="sequence", size=(2, 20))
    assert found.shapes["text"].kind == "tokens"
    assert found.modalities["audio"] == 74
    rows, means = found.splits["test"], FeatureSet.open(fresh[0]).split("test").load()
    assert np.allclose(rows.features["visual"].mean(1), means.features["visual"], atol=1e-5)
    longer = rows.lengths["text"][-1] > rows.lengths["text"][0]  # clip 12 says "good" more often than clip 10
    assert longer
    assert not rows.features["text"][0, rows.lengths["text"][0] :].any()


def test_clips_become_a_feature_set(media: Path, fresh: tuple[Path, Path]) -> None:
    found = FeatureSet.open(fresh[0], verify=True)
    assert found.modalities == {"text": 16, "audio": 74, "visual": 20}
    assert (found.manifest.task, found.manifest.name) == ("regression", "table")
    rows = [found.split(split).load() for split in ("train", "calibration", "valid", "test")]
    assert sorted(name for part in rows for name in part.ids) == sorted(f"clip{k}_0" for k in range(13))
    for part in rows:
        for name, group, label in zip(part.ids, part.groups, part.labels, strict=True):
            number = int(name[4:-2])
            assert (group, label) == (f"speaker{number}", number % 7 - 3)
        lacking = {m: {str(name) for name in part.ids[~bits]} for m, bits in part.available.items()}
        here = {str(name) for name in part.ids}
        assert lacking["text"] == here & {"clip5_0"}
        assert lacking["visual"] == here & {"clip4_0"}
        assert lacking["audio"] == here & {"clip3_0", "clip4_0"}
        for modality, bits in part.available.items():
            assert (np.abs(part.features[modality]).max(axis=1) > 0).tolist() == bits.tolist()


def test_provenance_names_the_table_the_encoders_and_what_is_lacking(media: Path, fresh: tuple[Path, Path]) -> None:
    provenance = FeatureSet.open(fresh[0]).manifest.provenance
    assert provenance["files"] == {"table.csv": sha256_file(media / "table.csv")}
    notes = provenance["notes"]
    assert notes["rows without"] == {"text": 1, "audio": 2, "visual": 1}
    assert notes["media files"]["count"] == 12
    assert notes["encoders"]["visual"].items() >= {"name": "visual", "revision": None, "frames": 2}.items()
    assert notes["encoders"]["audio"]["sample_rate"] == 16000
    assert len({encoder["digest"] for encoder in notes["encoders"].values()}) == 3
    assert str(media) not in (fresh[0] / "manifest.json").read_text()


def test_a_second_run_encodes_nothing_and_gives_the_same_bytes(
    media: Path, fresh: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, cache = fresh
    before = entries(cache)
    assert len(before) == 12 + 12 + 12

    def load(encoder: Encoder) -> None:
        raise AssertionError(f"{encoder.modality} was loaded")

    monkeypatch.setattr(Encoder, "loaded", load)
    assert path_digest(run(media, cache, tmp_path / "again")) == path_digest(out)
    assert entries(cache) == before


def test_any_mixture_of_cached_and_fresh_gives_the_same_bytes(
    media: Path, fresh: tuple[Path, Path], tmp_path: Path
) -> None:
    cache = Path(shutil.copytree(fresh[1], tmp_path / "cache"))
    for entry in sorted(entries(cache))[::2]:
        entry.unlink()
    kept = entries(cache)
    mixed = run(media, cache, tmp_path / "mixed", "media.workers=1")
    assert path_digest(mixed) == path_digest(fresh[0])
    assert entries(cache).items() >= kept.items()
    again = run(media, tmp_path / "other", tmp_path / "again", "media.workers=3")
    assert path_digest(again) == path_digest(fresh[0])


def test_damaged_cache_entries_are_computed_again(media: Path, fresh: tuple[Path, Path], tmp_path: Path) -> None:
    cache = Path(shutil.copytree(fresh[1], tmp_path / "cache"))
    whole = {path: path.read_bytes() for path in entries(cache)}
    for path, data in list(whole.items())[::3]:
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:] if len(data) > 40 else data[:-1])
    assert path_digest(run(media, cache, tmp_path / "out")) == path_digest(fresh[0])
    assert {path: path.read_bytes() for path in entries(cache)} == whole


@pytest.mark.slow
def test_a_killed_run_continues_where_it_was(media: Path, fresh: tuple[Path, Path], tmp_path: Path) -> None:
    cache, out = tmp_path / "cache", tmp_path / "out"
    only_audio = settings(media, cache, "media.workers=1", "modalities=[audio]")
    options = [part for setting in only_audio for part in ("--set", setting)]
    command = [sys.executable, "-c", "from mbd.cli import main; main()", "features", "--out", str(out), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not any(cache.rglob("*.vector")):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    done = entries(cache)
    assert 0 < len(done) < 12
    assert path_digest(run(media, cache, out)) == path_digest(fresh[0])
    assert entries(cache).items() >= done.items()
    assert len(entries(cache)) == 36


def test_rows_with_the_same_content_share_a_vector(media: Path, tmp_path: Path) -> None:
    shutil.copy(media / "clips" / "0.mp4", media / "clips" / "twin.mp4")
    table = edited(media, "twins.csv", {3: "clip1_0,clips/twin.mp4,the film was,1,train,speaker1"})
    rows = read(media, tmp_path, table=table).splits["train"]
    for modality in ("text", "audio", "visual"):
        np.testing.assert_array_equal(rows.features[modality][0], rows.features[modality][1])
    assert len(list((tmp_path / "visual").rglob("*.vector"))) == 11


def test_an_audio_column_comes_before_the_sound_of_the_video(media: Path, tmp_path: Path) -> None:
    write_wav(media / "own.wav", tone(333, 0.5))
    shared = {"label": "1", "split": "train", "transcript": "good"}
    rows = [
        {"id": "a", "video": "clips/0.mp4", "audio": "own.wav", **shared},
        {"id": "b", "video": "clips/0.mp4", "audio": "", **shared},
    ]
    write_table(media / "audio.csv", rows)
    found = read(media, tmp_path, "modalities=[audio, text]", table="audio.csv")
    assert list(found.modalities) == ["audio", "text"]
    train = found.splits["train"]
    assert train.available["audio"].tolist() == [True, False]
    assert train.features["audio"][0, 36] == pytest.approx(333, rel=0.05)  # the mean pitch
    assert train.groups.tolist() == ["a", "b"]


def test_without_a_group_column_ids_are_grouped(media: Path, tmp_path: Path) -> None:
    rows = [{"id": name, "transcript": name, "label": "0", "split": "test"} for name in ("v1_0", "v1_1", "v2_0")]
    write_table(media / "ids.csv", rows)
    found = read(media, tmp_path, table="ids.csv")
    assert found.splits["test"].groups.tolist() == ["v1", "v1", "v2"]
    assert found.modalities == {"text": 16}


def labelled(media: Path, labels: list[str]) -> str:
    rows = [{"id": f"u{k}", "transcript": "good", "label": label, "split": "train"} for k, label in enumerate(labels)]
    write_table(media / "labels.csv", rows)
    return "labels.csv"


def test_labels_of_classes_are_numbered_in_order(media: Path, tmp_path: Path) -> None:
    names = read(media, tmp_path, "task=classification", table=labelled(media, ["sad", "angry", "sad", "happy"]))
    assert names.classes == ("angry", "happy", "sad")
    assert names.splits["train"].labels.tolist() == [2, 0, 2, 1]
    assert names.splits["train"].labels.dtype == np.int64
    numbers = read(media, tmp_path, "task=classification", table=labelled(media, ["10", "9", "-1", "10"]))
    assert numbers.classes == ("-1", "9", "10")
    assert numbers.splits["train"].labels.tolist() == [2, 1, 0, 2]


@pytest.mark.parametrize("label", ["good", "", "nan", "inf"])
def test_a_label_that_is_no_number(media: Path, tmp_path: Path, label: str) -> None:
    with refused(DataError, match="not a number", file=media / "labels.csv", key="line 3, column label") as caught:
        read(media, tmp_path, table=labelled(media, ["1", label]))
    assert caught.value.hint is not None
    if not label:
        with pytest.raises(DataError, match="a label is empty"):
            read(media, tmp_path, "task=classification", table="labels.csv")


def test_a_listed_file_that_is_missing_or_broken_is_named_with_its_cell(media: Path, tmp_path: Path) -> None:
    table = edited(media, "missing.csv", {4: "clip2_0,clips/none.mp4,good,1,train,speaker2"})
    with refused(DataError, file=media / table, key="line 4, column video", value="clips/none.mp4"):
        read(media, tmp_path, table=table)
    (broken := media / "clips" / "broken.mp4").write_bytes((media / "clips" / "0.mp4").read_bytes()[:200])
    table = edited(media, "broken.csv", {4: "clip2_0,clips/broken.mp4,good,1,train,speaker2"})
    with refused(DataError, match="cannot be decoded", file=media / table, key="line 4, column video", value=broken):
        run(media, tmp_path / "cache", tmp_path / "out", table=table)
    assert not (tmp_path / "out").exists()


def test_a_modality_that_no_row_has_is_left_out_unless_asked_for(media: Path, tmp_path: Path) -> None:
    rows = [{"id": "a", "video": "clips/3.mp4", "transcript": "good", "label": "0", "split": "test", "mood": ""}]
    write_table(media / "silent.csv", rows)
    found = read(media, tmp_path, table="silent.csv")
    assert list(found.modalities) == ["text", "visual"]
    assert found.notes["modalities that no row has"] == ["audio"]
    assert found.notes["columns not used"] == ["mood"]
    for names, problem in (("text, audio", "no row has the modality audio"), ("smell", "no modality 'smell'")):
        with refused(DataError, match=problem, key="features.source.modalities"):
            read(media, tmp_path, f"modalities=[{names}]", table="silent.csv")


def test_what_decodes_and_encodes_is_loaded_only_when_something_has_to_be() -> None:
    code = "import sys, mbd.features.sources.media; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "mbd.features.media.encoders" in loaded
    assert not {"torch", "transformers", "av", "librosa", "numba"} & set(loaded)


def test_encoders_are_only_asked_for_where_they_are_needed(media: Path, tmp_path: Path) -> None:
    unpinned = "media.text_encoder=bert-base-uncased"
    with refused(UsageError, key="features.source.media.text_revision", value=None):
        read(media, tmp_path, unpinned)
    assert list(read(media, tmp_path, unpinned, "modalities=[visual]").modalities) == ["visual"]
