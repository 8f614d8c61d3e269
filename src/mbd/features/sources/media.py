"""Source `media`: raw videos, sound and transcripts named in a CSV, and frozen encoders.

The CSV has an utterance in each line, and is checked before anything is decoded:

    id          needed, unique
    label       needed: a number, or with features.source.task=classification the name of a class
    split       needed: train, valid (or val, dev), test, calibration
    video       file with pictures and perhaps sound
    audio       file with sound
    transcript  what was said
    group       video or speaker; no two splits may share one

Files are relative to the CSV's folder. Other columns are left alone.

Modalities are `text` (from the column transcript), `audio`
(the column audio; in a table without one, the sound of the videos) and `visual` (video), or those of them that
features.source.modalities names. An empty cell, or a video without sound, leaves the row without the modality; a
file that is named and is not there or cannot be decoded is an error.

Of the split that features.damage names, some rows are decoded, damaged and then encoded; nothing is computed from
these rows as they are. What is drawn depends on the seed and on the content's digest, not on the row: rows with the
same content share one damaged vector, and the cache can keep it.

With features.source.sequences=keep, visual is a sequence with the encoder's vector of each frame, and text the ids of
the tokens that the encoder's tokeniser makes.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError, naming
from mbd.features.corruption import corrupt_frames, corrupt_text, corrupt_waveform, corrupted_rows
from mbd.features.media.encoders import (
    Content,
    Encoder,
    MediaDamage,
    digest_of_text,
    digests_of_files,
    encoder_of,
    extract,
    pinned,
)
from mbd.features.rows import SPLIT_ALIASES, SPLITS, Collection, Rows, within
from mbd.features.sources import Source, choose_modalities, labelled
from mbd.features.splits import with_groups_from_ids
from mbd.files import canonical_digest
from mbd.formats.features import Task
from mbd.params.base import CorruptionSettings
from mbd.params.features import FeaturesSettings, MediaSettings
from mbd.tensors import Array

NEEDED = ("id", "label", "split")
MEDIA = ("video", "audio", "transcript")
OPTIONAL = (*MEDIA, "group")


@dataclass(frozen=True)
class MediaTable:
    """The cells of the CSV by column, and the line at which each row begins."""

    file: Path
    lines: tuple[int, ...]
    columns: Mapping[str, tuple[str, ...]]
    unused: tuple[str, ...]
    """columns that mean nothing here"""

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int, column: str) -> str:
        """Return where a cell is."""
        return f"line {self.lines[row]}, column {column}"

    def error(self, row: int, column: str, problem: str, hint: str | None = None) -> DataError:
        """Return an error that names the cell and what is in it."""
        value = self.columns[column][row] or "(empty)"
        return DataError(problem, file=self.file, key=self.place(row, column), value=value, hint=hint)


def names_media(file: Path) -> bool:
    """Return whether a CSV has a column of media files or transcripts, and not of lists of numbers."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            records = [cells for _, (_, cells) in zip(range(2), _records(stream), strict=False)]
    except (csv.Error, OSError, UnicodeDecodeError):
        return False
    header, first = (*records, [], [])[:2]
    lists = {name for name, cell in zip(header, first, strict=False) if cell.startswith("[")}
    return bool(set(MEDIA) & set(header) - lists)


def read_table(file: Path) -> MediaTable:
    """Read and check the CSV."""
    with naming(file):
        return _read_table(file)


def _read_table(file: Path) -> MediaTable:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            records = list(_records(stream))
    except FileNotFoundError as error:
        raise DataError("the file is missing", key="features.source.path") from error
    except UnicodeDecodeError as error:
        raise DataError(f"the CSV is not UTF-8: {error.reason}", hint="save it as UTF-8") from error
    except (csv.Error, OSError) as error:
        raise DataError(f"this cannot be read as CSV: {error}") from error
    header = tuple(records[0][1]) if records else ()
    hint = f"the first line names the columns: {', '.join(NEEDED)} and some of {', '.join(OPTIONAL)}"
    with naming(None, hint):
        _check_header(header)
    for line, cells in records[1:]:
        if len(cells) != len(header):
            raise DataError(
                "the line does not have as many cells as the header",
                key=f"line {line}",
                value=f"{len(cells)}, header {len(header)}",
                hint="put texts that hold commas between quotes",
            )
    cells_of = dict(zip(header, zip(*(cells for _, cells in records[1:]), strict=True), strict=False))
    known = {name: cells_of.get(name, ()) for name in (*NEEDED, *OPTIONAL) if name in header}
    known["split"] = tuple(SPLIT_ALIASES.get(split, split) for split in known["split"])
    unused = tuple(name for name in header if name not in known)
    table = MediaTable(file, tuple(line for line, _ in records[1:]), known, unused)
    _check_rows(table)
    return table


def _records(stream: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line that has some, and the number of the line at which they begin."""
    reader = csv.reader(stream, strict=True)
    begin = 1
    for cells in reader:
        if cells:
            yield begin, [cell.strip() for cell in cells]
        begin = reader.line_num + 1


def _check_header(header: tuple[str, ...]) -> None:
    for name in NEEDED:
        if name not in header:
            raise DataError(f"the column {name} is missing", value=", ".join(header))
    if not set(MEDIA) & set(header):
        raise DataError("there is no column with media", value=", ".join(header))
    for name in (*NEEDED, *OPTIONAL):
        if header.count(name) > 1:
            raise DataError(f"the column {name} occurs twice in the header")


def _check_rows(table: MediaTable) -> None:
    if not len(table):
        raise DataError("the CSV has a header and no rows")
    first: dict[str, int] = {}
    for row, name in enumerate(table.columns["id"]):
        if not name:
            raise table.error(row, "id", "an id is empty")
        if name in first:
            raise table.error(row, "id", f"the id is already in line {table.lines[first[name]]}", "ids are unique")
        first[name] = row
    for row, split in enumerate(table.columns["split"]):
        if split not in SPLITS:
            raise table.error(row, "split", "there is no such split", f"a split is one of {', '.join(SPLITS)}")
    for row, group in enumerate(table.columns.get("group", ())):
        if not group:
            raise table.error(
                row, "group", "a group is empty", "name one in every line, or drop the column to take it from the id"
            )


_KEPT = {"text": "tokens", "visual": "sequence"}
"""modalities whose encoders can keep a sequence, and its kind"""


def read(params: FeaturesSettings) -> Collection:
    """Read the CSV named by `features.source.path` and all that it names."""
    own, task = params.source.media, params.source.task or "regression"
    table = read_table(Path(params.source.path or ""))
    columns = _columns(table, params.source.modalities)
    files = _files(table, columns)
    keeps = params.source.sequences == "keep"
    encoders = {modality: encoder_of(modality, own, keeps=keeps) for modality in columns}
    digests = digests_of_files(files, own.workers)
    damaged = _damaged_rows(table, params)
    contents = {modality: _contents(table, modality, column, digests) for modality, column in columns.items()}
    vectors = {modality: _vectors(encoders[modality], contents[modality], damaged, params) for modality in columns}
    lacking = [modality for modality, found in vectors.items() if not any(vector.size for vector in found)]
    if lacking and params.source.modalities is not None:
        problem = f"no row has the modality {lacking[0]}"
        raise DataError(problem, key="features.source.modalities", hint="leave it out there")
    available = {m: np.array([vector.size > 0 for vector in vectors[m]]) for m in columns if m not in lacking}
    kept = {m: _sequences(m, vectors[m]) for m in available if keeps and m in _KEPT}
    features = {m: kept[m].features if m in kept else _matrix(vectors[m]) for m in available}
    lengths = {m: sequences.lengths for m, sequences in kept.items()}
    groups, split_of = table.columns.get("group"), np.array(table.columns["split"])
    rows = Rows.of(
        table.columns["id"], _labels(table, task), features, groups=groups, available=available, lengths=lengths
    )
    splits = {split: rows.take(split_of == split) for split in SPLITS if (split_of == split).any()}
    splits = splits if groups else with_groups_from_ids(splits, params.source.group_pattern)
    return labelled(
        table.file.stem,
        splits,
        task,
        vocabularies={m: sequences.width for m, sequences in kept.items() if _KEPT[m] == "tokens"},
        files=(str(table.file),),
        notes={
            "encoders": {modality: _encoder_note(encoders[modality], own) for modality in available},
            "rows without": {modality: int((~bits).sum()) for modality, bits in available.items()},
            "media files": {"count": len(files), "digest": canonical_digest(sorted(digests.values()))},
            **({"modalities that no row has": lacking} if lacking else {}),
            **({"columns not used": list(table.unused)} if table.unused else {}),
            **({"damage": params.damage.note("raw", int(damaged.sum()))} if params.damage.split else {}),
        },
    )


def fill_cache(params: FeaturesSettings, shard: int, shards: int) -> None:
    """Compute the vectors of one of `shards` parts of the contents, for the cache from which :func:`read` takes them.

    A content is in a part by its digest, so that no two parts compute the same.
    """
    own, table = params.source.media, read_table(Path(params.source.path or ""))
    columns, damaged = _columns(table, params.source.modalities), _damaged_rows(table, params)
    digests = digests_of_files(_files(table, columns), own.workers)
    for modality, column in columns.items():
        encoder = encoder_of(modality, own, keeps=params.source.sequences == "keep")
        contents = _contents(table, modality, column, digests)
        mine = [each if each and int(each.digest[:8], 16) % shards == shard else None for each in contents]
        _vectors(encoder, mine, damaged, params)


def _labels(table: MediaTable, task: Task) -> Array:
    """Return the labels: numbers if all of them are, else the names of classes."""
    cells = table.columns["label"]
    numbers = [_number(cell) for cell in cells]
    if None not in numbers:
        return np.array(numbers)
    if task == "regression":
        hint = "if labels are names of classes, set features.source.task=classification"
        raise table.error(numbers.index(None), "label", "a label is not a number", hint)
    if "" in cells:
        raise table.error(cells.index(""), "label", "a label is empty")
    return np.array(cells)


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _columns(table: MediaTable, asked: tuple[str, ...] | None) -> dict[str, str]:
    """Return the column that each modality is computed from."""
    # Where there is an audio column its empty cells mean no sound, whatever the video has.
    columns = {"text": "transcript", "audio": "audio" if "audio" in table.columns else "video", "visual": "video"}
    there = {modality: column for modality, column in columns.items() if column in table.columns}
    with naming(table.file):
        return {modality: there[modality] for modality in choose_modalities(asked, there)}


def _files(table: MediaTable, columns: Mapping[str, str]) -> list[Path]:
    """Return the files that the table names in the columns of files; every one of them is there."""
    files: dict[Path, None] = {}
    for column in sorted(set(columns.values()) - {"transcript"}):
        for row, cell in enumerate(table.columns[column]):
            path = table.file.parent / cell
            if cell and not path.is_file():
                raise table.error(row, column, "the file is missing", f"files are looked for from {table.file.parent}")
            if cell:
                files[path] = None
    return list(files)


def _contents(table: MediaTable, modality: str, column: str, digests: Mapping[Path, str]) -> list[Content | None]:
    """Return the content that each cell of a column names, None where it is empty."""

    def content(row: int, cell: str) -> Content | None:
        if not cell:
            return None
        place = table.place(row, column)
        if column == "transcript":
            return Content(cell, digest_of_text(cell), table.file, place)
        path = table.file.parent / cell
        may_lack = modality == "audio" and column == "video"
        return Content(path, digests[path], table.file, place, needed=not may_lack)

    return [content(row, cell) for row, cell in enumerate(table.columns[column])]


def _damaged_rows(table: MediaTable, params: FeaturesSettings) -> Array:
    """Return for each row of the table whether it is damaged: the same rows as for a source of vectors."""
    members = np.array(table.columns["split"]) == params.damage.split
    damaged = np.zeros(len(table), dtype=bool)
    damaged[members] = corrupted_rows(int(members.sum()), params.damage.corruption.share, params.seed)
    return damaged


def _vectors(encoder: Encoder, contents: list[Content | None], damaged: Array, params: FeaturesSettings) -> list[Array]:
    """Return the vector of each of `contents`, of what damage leaves of it where the row is `damaged`."""
    cache, workers = Path(params.source.media.cache), params.source.media.workers
    whole = [None if harmed else content for content, harmed in zip(contents, damaged, strict=True)]
    vectors = extract(encoder, whole, cache, workers)
    if damaged.any():
        harmful = encoder.damaged(raw_damage(encoder.modality, params.damage.corruption, params.seed))
        places = np.flatnonzero(damaged)
        replaced = extract(harmful, [contents[place] for place in places], cache, workers)
        for place, vector in zip(places, replaced, strict=True):
            vectors[place] = vector
    return vectors


def _matrix(vectors: list[Array]) -> Array:
    """Return a row for each vector, zeros for the empty ones."""
    nothing = np.zeros(max(vector.size for vector in vectors), np.float32)
    return np.stack([vector if vector.size else nothing for vector in vectors])


@dataclass(frozen=True)
class _Sequences:
    features: Array
    lengths: Array
    width: int
    """of a frame; of token ids the vocabulary"""


def _sequences(modality: str, vectors: list[Array]) -> _Sequences:
    """Return what encoders that keep sequences have returned, filled up with zeros to the longest."""
    width = int(max(vector[0] for vector in vectors if vector.size))
    tokens = _KEPT[modality] == "tokens"
    sizes = np.array([max(vector.size - 1, 0) for vector in vectors])
    lengths = sizes if tokens else sizes // width
    inside = within(lengths, int(lengths.max()))
    entries = np.concatenate([vector[1:] for vector in vectors])
    features = np.zeros(inside.shape if tokens else (*inside.shape, width), np.int64 if tokens else np.float32)
    features[inside] = entries if tokens else entries.reshape(-1, width)
    return _Sequences(features, lengths, width)


def _encoder_note(encoder: Encoder, own: MediaSettings) -> dict[str, Any]:
    if encoder.modality == "audio":
        return {"digest": encoder.digest, "sample_rate": own.sample_rate}
    name, revision = pinned(encoder.modality, own)
    sampling = {"frames": own.frames} if encoder.modality == "visual" else {}
    return {"name": name if revision else Path(name).name, "revision": revision, "digest": encoder.digest, **sampling}


SOURCE = Source(read, recognises=lambda path: path.suffix == ".csv" and names_media(path))


_METHOD = 1  # to be raised whenever damage is done in another way than before


def raw_damage(modality: str, params: CorruptionSettings, seed: int) -> MediaDamage:
    """Return the damage of these parameters to the raw content of a modality."""
    corrupted, strengths = _KINDS[modality]
    facts = {"method": _METHOD, "numpy": np.__version__, "seed": seed}
    facts |= {name: getattr(params, name) for name in strengths}
    return MediaDamage(
        name=json.dumps(facts, sort_keys=True),
        apply=lambda content, digest: corrupted(content, params, seed, digest),
    )


def _corrupt_clip(frames: Array, params: CorruptionSettings, seed: int, digest: str) -> Array:
    """Damage one frame after the other: floating-point copies of all frames of a large video would fill the memory."""
    return np.stack([corrupt_frames(frame, params, seed, f"{digest} {k}") for k, frame in enumerate(frames)])


_KINDS: dict[str, tuple[Callable[[Any, CorruptionSettings, int, str], Any], tuple[str, ...]]] = {
    "text": (corrupt_text, ("typos", "reorder")),
    "audio": (corrupt_waveform, ("snr_db",)),
    "visual": (_corrupt_clip, ("blur", "pepper")),
}
"""for each modality what damages it, and the parameters that decide how much"""
