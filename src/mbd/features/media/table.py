"""The CSV of the source `media`: an utterance in each line, checked before anything is decoded.

    id          needed, unique
    label       needed: a number, or with features.source.task=classification the name of a class
    split       needed: train, valid (or val, dev), test, calibration
    video       file with pictures and perhaps sound
    audio       file with sound
    transcript  what was said
    group       video or speaker; no two splits may share one

Files are relative to the CSV's folder. Other columns are left alone.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mbd.errors import DataError, naming
from mbd.features.rows import SPLIT_ALIASES, SPLITS

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
