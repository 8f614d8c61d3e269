"""Style and script of the page travel with the package."""

import tomllib
from pathlib import Path, PurePosixPath

import mbd
from mbd.report.page import assets

PACKAGE = Path(mbd.__file__).parent
REPOSITORY = Path(__file__).parents[2]


def test_every_asset_is_part_of_the_distribution() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["mbd"]
    found = [file.relative_to(PACKAGE) for file in PACKAGE.rglob("*") if file.suffix in (".js", ".css")]
    assert len(found) > 1
    for file in found:
        assert any(PurePosixPath(file.as_posix()).match(pattern) for pattern in patterns), file


def test_every_part_of_the_script_is_in_it() -> None:
    parts = list((PACKAGE / "report" / "page" / "script").glob("*.js"))
    assert parts
    assert all(part.read_text(encoding="utf-8") in assets.script() for part in parts)
