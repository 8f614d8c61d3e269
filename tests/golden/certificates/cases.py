"""How a golden certificate is stored, and how it is put together again.

    VERSION/CASE/case.json      when it is verified, what the verdict must be, and why
    VERSION/CASE/bundle/        the bundle as it was published
    VERSION/CASE/model/         the released model
    VERSION/CASE/trust.json     who was trusted

A bad certificate names the good one that it is made from (`base`) and holds only the files that differ; a file that it
lacks is in `without`.
"""

import shutil
from datetime import datetime
from pathlib import Path

from mbd.files import write_file
from mbd.formats.verdict import Decision
from mbd.records import Record

HERE = Path(__file__).parent
CASE = "case.json"


class GoldenCase(Record):
    """A golden certificate, good or bad."""

    why: str
    """what it is, or what is wrong with it"""
    at: datetime
    """the time at which it is verified"""
    decision: Decision
    """without a store, so that it is at best `not verified`"""
    problem: str | None = None
    """name of the check that has to stand in the way"""
    base: str | None = None
    """the good certificate that this one is made from"""
    without: tuple[str, ...] = ()
    """files of the base that are missing here"""


def all_cases() -> list[Path]:
    """Return the folders of all cases of all versions."""
    return sorted(file.parent for file in HERE.glob(f"*/*/{CASE}"))


def read_case(folder: Path) -> GoldenCase:
    """Read what a case is about."""
    return GoldenCase.read(folder / CASE, "golden case", "goldens are frozen: bring it back from the repository")


def write_case(folder: Path, case: GoldenCase) -> None:
    """Write what a case is about."""
    write_file(folder / CASE, case.to_json())


def assemble(folder: Path, out: Path) -> GoldenCase:
    """Put the files of a case together in `out`: bundle/, model/ and trust.json."""
    case = read_case(folder)
    if case.base:
        shutil.copytree(folder.parent / case.base, out, dirs_exist_ok=True)
    shutil.copytree(folder, out, dirs_exist_ok=True)
    for name in case.without:
        (out / name).unlink()
    return case
