"""What the images install is pinned by version and hash: requirements-verifier.txt and requirements-steps.txt."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = {name: (ROOT / f"requirements-{name}.txt").read_text() for name in ("verifier", "steps")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = {name: dict(re.findall(r"^([a-z0-9.-]+)==(\S+) \\\n", text, re.MULTILINE)) for name, text in LOCKS.items()}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_the_version_of_the_constraints_and_hashes(lock: str) -> None:
    lines = (line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    constraints = {normal(name): version for name, _, version in lines}
    pinned = {name: version for name, version in PINNED[lock].items() if name != "setuptools"}
    assert {name: constraints.get(name) for name in pinned} == pinned
    for block in re.split(r"\n(?=[a-z])", LOCKS[lock])[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block
    assert "://" not in LOCKS[lock]


def test_all_dependencies_of_the_bare_install_are_there() -> None:
    assert {normal(re.split(r"[<>=\[ ]", one)[0]) for one in PROJECT["project"]["dependencies"]} <= set(
        PINNED["verifier"]
    )


def test_all_dependencies_of_the_steps_are_chosen_by_their_extra_but_torch_by_the_builder() -> None:
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    entries = re.findall(r"^# (.*)\n([a-z0-9.-]+)==", LOCKS["steps"], re.MULTILINE)
    assert [name for _, name in entries] == list(PINNED["steps"])
    for extra in extras.split(","):
        chosen = {name for needed_by, name in entries if extra in needed_by.split()} | set(PINNED["verifier"])
        needed = PROJECT["project"]["optional-dependencies"][extra]
        assert {normal(re.split(r"[<>=\[ ]", one)[0]) for one in needed} - {"torch"} <= chosen
    assert not [name for name in PINNED["steps"] if name.startswith(("torch", "triton", "nvidia-cu", "cuda"))]


def test_the_build_backend_is_pinned_alike() -> None:
    assert PROJECT["build-system"]["requires"] == [f"setuptools=={PINNED['verifier']['setuptools']}"]
