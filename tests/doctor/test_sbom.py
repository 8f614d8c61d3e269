"""The bill of materials."""

from importlib.metadata import version

from click.testing import CliRunner

from mbd.cli import group
from mbd.doctor.installation import bill_of_materials


def test_it_lists_every_package_once_with_its_version() -> None:
    parts = bill_of_materials()["components"]
    names = [part["name"] for part in parts]
    assert names == sorted(set(names))
    numpy = next(part for part in parts if part["name"] == "numpy")
    assert numpy["purl"] == f"pkg:pypi/numpy@{version('numpy')}"
    assert "missing-by-design" not in names


def test_the_command_prints_the_same_bytes_each_time() -> None:
    first, again = (CliRunner().invoke(group, ["doctor", "--sbom"]).output for _ in range(2))
    assert first == again
    assert '"bomFormat": "CycloneDX"' in first
