"""Source table: CSV, TSV, parquet, Arrow, and folders saved by `datasets`."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from mbd.errors import DataError
from mbd.features.rows import Collection
from mbd.features.sources import kind_of, read_source
from mbd.params import load_params
from tests.refusals import refused

ROWS = 40
DRAW = np.random.default_rng(0)
VOICE = DRAW.normal(size=(ROWS, 3)).astype(np.float32)
TEXT = DRAW.normal(size=(ROWS, 4)).astype(np.float32)
SPLIT = ["train"] * 24 + ["validation"] * 8 + ["test"] * 8
IDS = [f"{split}{n // 4}_{n}" for n, split in enumerate(SPLIT)]
LABELS = np.linspace(-2.5, 2.5, ROWS).round(3).tolist()


def read(path: Path, *settings: str) -> Collection:
    return read_source(load_params(None, [f"features.source.path={path}", *settings]).features)


def list_table(**columns: Any) -> pa.Table:
    own = {"id": IDS, "split": SPLIT, "label": LABELS, "my voice": list(VOICE), "text": list(TEXT)}
    return pa.table({name: column for name, column in (own | columns).items() if column is not None})


def write_csv(path: Path, **columns: Any) -> Path:
    numbered = {f"my voice_{k}": VOICE[:, k] for k in range(3)} | {f"text{k}": TEXT[:, k] for k in range(4)}
    table: dict[str, Any] = {"id": IDS, "split": SPLIT, "label": LABELS, **numbered} | columns
    table = {name: column for name, column in table.items() if column is not None}
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


def check(collection: Collection) -> None:
    assert collection.modalities == {"my voice": 3, "text": 4}
    assert {split: len(rows) for split, rows in collection.splits.items()} == {"train": 24, "valid": 8, "test": 8}
    np.testing.assert_allclose(collection.splits["test"].features["my voice"], VOICE[-8:], rtol=1e-6)
    np.testing.assert_allclose(collection.splits["train"].features["text"], TEXT[:24], rtol=1e-6)
    assert collection.splits["valid"].ids.tolist() == IDS[24:32]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_numbered_columns_are_modalities(tmp_path: Path, suffix: str) -> None:
    check(read(write_csv(tmp_path / f"two talks{suffix}")))


def test_numbered_columns_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    wide = {f"text{k}": np.full(ROWS, k) for k in (10, 9, 11)} | dict.fromkeys((f"text{k}" for k in range(4)), None)
    features = read(write_csv(tmp_path / "t.csv", **wide)).splits["train"].features["text"]
    assert features[0].tolist() == [9, 10, 11]


def test_lists_are_modalities_in_parquet_arrow_and_csv(tmp_path: Path) -> None:
    pa.parquet.write_table(list_table(), tmp_path / "t.parquet")
    pa.feather.write_feather(list_table(), str(tmp_path / "t.feather"))
    check(read(tmp_path / "t.parquet"))
    check(read(tmp_path / "t.feather"))
    lists = {"my voice": [str(row) for row in VOICE.tolist()], "text": [str(row) for row in TEXT.tolist()]}
    check(read(write_csv(tmp_path / "t.csv", **{f"my voice_{k}": None for k in range(3)}, **lists)))


def test_a_folder_that_datasets_has_saved_is_read_with_its_class_names(tmp_path: Path) -> None:
    features = {"label": {"names": ["sad", "glad"], "_type": "ClassLabel"}}
    table = list_table(label=[n % 2 for n in range(ROWS)], split=None)
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    for split, begin, end in (("train", 0, 24), ("validation", 24, 32), ("test", 32, 40)):
        folder = tmp_path / "saved" / split
        folder.mkdir(parents=True)
        for part, half in enumerate((table[begin : begin + 4], table[begin + 4 : end])):
            with pa.ipc.new_stream(folder / f"data-0000{part}-of-00002.arrow", table.schema) as stream:
                stream.write_table(half)
        (folder / "state.json").write_text("{}")
    collection = read(tmp_path / "saved")
    check(collection)
    assert collection.classes == ("sad", "glad")
    assert len(collection.files) == 6


def test_a_single_set_that_datasets_has_saved_is_divided_by_its_split_column_or_by_group(tmp_path: Path) -> None:
    for name, split in (("divided", SPLIT), ("whole", None)):
        folder = tmp_path / name
        folder.mkdir()
        table = list_table(split=split)
        with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as stream:
            stream.write_table(table)
        (folder / "state.json").write_text("{}")
    check(read(tmp_path / "divided"))
    assert "drawn by group" in read(tmp_path / "whole", "features.source.table.valid_share=0.2").notes["test"]


def test_an_empty_cell_is_a_missing_modality_that_is_counted_or_an_error(tmp_path: Path) -> None:
    voice = ["" if n in (3, 25) else value for n, value in enumerate(VOICE[:, 1])]
    table = write_csv(tmp_path / "t.csv", **{"my voice_1": voice})
    collection = read(table)
    assert collection.splits["train"].available["my voice"].tolist() == [n != 3 for n in range(24)]
    assert not collection.splits["train"].features["my voice"][3].any()
    assert collection.notes["rows without my voice"] == "2, because a cell is empty"
    with refused(DataError, key="column my voice_1, row 4"):
        read(table, "features.source.table.empty=refuse")


def test_a_modality_without_values_is_not_available_in_that_row(tmp_path: Path) -> None:
    empty = ["" if n == 3 else value for n, value in enumerate(VOICE[:, 0])]
    rows = read(write_csv(tmp_path / "t.csv", **dict.fromkeys((f"my voice_{k}" for k in range(3)), empty))).splits
    assert rows["train"].available["my voice"].tolist() == [n != 3 for n in range(24)]
    pa.parquet.write_table(
        list_table(**{"my voice": [None if n == 3 else v for n, v in enumerate(VOICE)]}), tmp_path / "t.parquet"
    )
    assert read(tmp_path / "t.parquet").splits["train"].available["my voice"].sum() == 23


def test_text_labels_are_classes(tmp_path: Path) -> None:
    emotions = [("glad", "sad", "angry")[n % 3] for n in range(ROWS)]
    collection = read(write_csv(tmp_path / "t.csv", label=emotions))
    assert (collection.task, collection.classes) == ("classification", ("angry", "glad", "sad"))


def test_a_table_without_splits_is_divided_by_group_and_says_so(tmp_path: Path) -> None:
    speakers = [f"speaker {n // 4}" for n in range(ROWS)]
    file = write_csv(tmp_path / "t.csv", split=None, id=None, speaker=speakers)
    settings = ("features.source.table.group=speaker", "features.source.table.valid_share=0.2")
    collection = read(file, *settings)
    assert {split: len(rows) for split, rows in collection.splits.items()} == {"train": 28, "valid": 4, "test": 8}
    groups = [set(rows.groups) for rows in collection.splits.values()]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 10
    assert "drawn by group" in collection.notes["test"]
    assert read(file, *settings).splits["test"].ids.tolist() == collection.splits["test"].ids.tolist()


def test_columns_can_have_other_names(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", id=None, label=None, utterance=IDS, score=LABELS)
    names = ["table.id=utterance", "table.label=score", "table.modalities={voice: my voice, words: text}"]
    collection = read(file, *(f"features.source.{name}" for name in names))
    assert collection.modalities == {"voice": 3, "words": 4}
    assert read(file, *(f"features.source.{n}" for n in names), "features.source.modalities=[words, voice]").modalities


def test_numbered_columns_of_text_alone_are_no_modality(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", note_1=["fine"] * ROWS, note_2=["good"] * ROWS)
    assert read(file).notes["columns not used"] == ["note_1", "note_2"]


def test_unused_columns_are_noted(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", comment=["fine"] * ROWS)
    assert read(file).notes["columns not used"] == ["comment"]


@pytest.mark.parametrize(
    ("columns", "settings", "problem"),
    [
        ({"label": None}, [], "no column 'label'"),
        ({"label": ["", *LABELS[1:]]}, [], "a label is missing"),
        ({"split": ["trian", *SPLIT[1:]]}, [], "no such split"),
        ({}, ["features.source.table.modalities={voice: vioce}"], "no column of lists 'vioce'"),
        ({}, ["features.source.modalities=[video]"], "no modality 'video'"),
        ({"voice": ["[1, 2]"] * 39 + ["[1]"]}, [], "must have one length"),
        ({"text2": ["oops", *TEXT[1:, 2]]}, [], "number of a modality cannot be read.*'oops'"),
        (dict.fromkeys(f"text{k}" for k in range(4)), [], "at least two modalities"),
        ({"voice": ["[1, 2]"] * 39 + ["[1 2]"]}, [], "a list cannot be read"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, columns: dict[str, Any], settings: list[str], problem: str
) -> None:
    file = write_csv(tmp_path / "t.csv", **columns)
    with pytest.raises(DataError, match=problem) as caught:
        read(file, *settings)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(("name", "content"), [("t.parquet", b"id,label\n1,2\n"), ("t.csv", b""), ("t.arrow", b"x")])
def test_a_file_that_is_no_table_is_an_error(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as a table"):
        read(tmp_path / name)


def test_the_kind_is_inferred_from_the_path(tmp_path: Path) -> None:
    def kind(path: Path, *settings: str) -> str:
        return kind_of(load_params(None, [f"features.source.path={path}", *settings]).features.source)

    np.savez(tmp_path / "a.npz", train_text=np.ones((2, 2)))
    media = tmp_path / "media.csv"
    media.write_text("id,label,split,video\na,1,train,a.mp4\n")
    lists = tmp_path / "lists.csv"
    lists.write_text('id,label,split,video\na,1,train,"[1, 2]"\n')
    assert [kind(tmp_path / "a.npz"), kind(media), kind(lists)] == ["npz", "media", "table"]
    assert kind_of(load_params(None, []).features.source) == "synthetic"
    with refused(DataError, key="features.source.kind", file=media, hint="it looks like media"):
        kind(media, "features.source.kind=npz")
    for name, hint in {"a.docx": "npz, table", "a.xlsx": "save it as CSV", "a.pt": "`mbd import --weights`"}.items():
        (tmp_path / name).write_text("")
        with refused(DataError, key="features.source.kind", file=tmp_path / name, hint=hint):
            kind(tmp_path / name)


def list_column(*, jump: int) -> pa.Array:
    """A column of lists, of which one begins at `jump`."""
    values = pa.array(VOICE.reshape(-1))
    offsets = np.arange(0, ROWS * 3 + 1, 3, dtype=np.int32)
    offsets[1] = jump
    return pa.Array.from_buffers(pa.list_(pa.float32()), ROWS, [None, pa.py_buffer(offsets)], children=[values])


def text_column(*, jump: int) -> pa.Array:
    """A column of texts of one character, of which one begins at `jump`."""
    offsets = np.arange(ROWS + 1, dtype=np.int32)
    offsets[1] = jump
    return pa.Array.from_buffers(pa.string(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(b"x" * ROWS)])


def class_column(index: int) -> pa.Array:
    """A column of classes that all have the same number."""
    return pa.DictionaryArray.from_arrays(pa.array([index] * ROWS, pa.int32()), pa.array(["glad", "sad"]), safe=False)


@pytest.mark.parametrize(
    "hostile",
    [
        {"my voice": list_column(jump=1 << 30)},
        {"my voice": list_column(jump=-(1 << 30))},
        {"label": class_column(1 << 30)},
        {"id": text_column(jump=1 << 30)},
        {"id": pa.array([[1]] * ROWS)},
        {"split": pa.array([{"name": "train"}] * ROWS)},
    ],
    ids=[
        *("lists beyond the values", "lists before the values", "classes beyond the names", "texts beyond the bytes"),
        *("lists as ids", "records as splits"),
    ],
)
def test_an_arrow_file_that_points_outside_of_itself_or_has_other_types_is_refused(
    tmp_path: Path, hostile: dict[str, pa.Array]
) -> None:
    table = list_table(**hostile)
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    with refused(DataError, file=tmp_path / "t.arrow"):
        read(tmp_path / "t.arrow")
