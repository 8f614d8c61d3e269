"""The auditor's install is pinned by version and hash: requirements-verifier.txt."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements-verifier.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = dict(re.findall(r"^([a-z0-9.-]+)==(\S+) \\\n", LOCK, re.MULTILINE))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_has_the_version_of_the_constraints_and_hashes() -> None:
    lines = (line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    constraints = {normal(name): version for name, _, version in lines}
    assert {name: constraints.get(name) for name in PINNED if name != "setuptools"} == {
        name: version for name, version in PINNED.items() if name != "setuptools"
    }
    for block in re.split(r"\n(?=[a-z])", LOCK)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


def test_all_dependencies_of_the_bare_install_are_there_and_no_address() -> None:
    names = {normal(re.split(r"[<>=\[ ]", one)[0]) for one in PROJECT["project"]["dependencies"]}
    assert names <= set(PINNED)
    assert "://" not in LOCK


def test_the_build_backend_is_pinned_alike() -> None:
    assert PROJECT["build-system"]["requires"] == [f"setuptools=={PINNED['setuptools']}"]
