"""The CSV of media: what it holds, and an error with line and column for everything that is wrong."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import DataError
from mbd.features.sources.media import read_table
from tests.features.media.build import write_table
from tests.refusals import refused

CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


def table_text(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_cells_lines_and_what_is_not_used(tmp_path: Path) -> None:
    file = table_text(
        tmp_path / "t.csv",
        '\ufeffid,label,split,transcript,mood\nu1,1.5,train,"Good,\nreally",x\n\nu2,-1,dev, bad ,y\n',
    )
    table = read_table(file)
    assert table.columns["transcript"] == ("Good,\nreally", "bad")
    assert table.columns["split"] == ("train", "valid")
    assert table.lines == (2, 5)
    assert table.unused == ("mood",)
    assert table.place(1, "label") == "line 5, column label"


@settings(deadline=None, max_examples=30)
@given(st.lists(CELL, min_size=1, max_size=5))
def test_any_transcript_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    rows = [{"id": str(k), "label": "0", "split": "test", "transcript": text} for k, text in enumerate(texts)]
    table = read_table(write_table(tmp_path_factory.mktemp("table") / "t.csv", rows))
    assert table.columns["transcript"] == tuple(text.strip() for text in texts)


HEADER = "id,label,split,transcript,group\n"


@pytest.mark.parametrize(
    ("text", "problem", "key"),
    [
        ("id,split,transcript\n", "the column label is missing", None),
        ("id,label,split,group\n", "there is no column with media", None),
        ("id,id,label,split,video\n", "the column id occurs twice in the header", None),
        ("", "the column id is missing", None),
        (HEADER, "the CSV has a header and no rows", None),
        (HEADER + "a,1,train,hi,g\na,2,test,ho,h\n", "the id is already in line 2", "line 3, column id"),
        (HEADER + "a,1,train,hi,g\n,2,test,ho,h\n", "an id is empty", "line 3, column id"),
        (HEADER + "a,1,trian,hi,g\n", "there is no such split", "line 2, column split"),
        (HEADER + "a,1,train,hi,\n", "a group is empty", "line 2, column group"),
        (HEADER + "a,1,train,hi, there,g\n", "the line does not have as many cells as the header", "line 2"),
        (HEADER + 'a,1,train,"hi,g\n', "this cannot be read as CSV", None),
        (HEADER.encode() + b"a,1,train,\xff,g\n", "the CSV is not UTF-8", None),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str | bytes, problem: str, key: str | None) -> None:
    file = table_text(tmp_path / "t.csv", text)
    with refused(DataError, file=file, key=key) as caught:
        read_table(file)
    assert caught.value.problem.startswith(problem)


def test_a_missing_table(tmp_path: Path) -> None:
    with refused(DataError, key="features.source.path", file=tmp_path / "none.csv"):
        read_table(tmp_path / "none.csv")
