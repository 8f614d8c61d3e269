"""Layers: imports go one way, and small installs stay small."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import mbd

SOURCE = Path(__file__).parents[1] / "src" / "mbd"
LAYERS = [
    {"cli", "kubeflow"},
    {"serving"},
    {"production", "deployment"},
    {"steps", "doctor"},
    {"attacks", "report", "purge", "monitoring"},
    {"certificate"},
    {"history"},
    {"verifier"},
    {"log"},
    {"trust"},
    {"deletion", "storage", "shredding"},
    {"training", "evaluation", "privacy"},
    {"model"},
    {"features"},
    {"params"},
    {"formats"},
]
# the first may import the second
NEIGHBOURS = {("training", "evaluation")}
TOOLS = {
    "background",
    "blocks",
    "errors",
    "files",
    "outputs",
    "randomness",
    "tensors",
    "git",
    "markdown",
    "urls",
    "remote_errors",
    "records",
    "registry",
    "logs",
    "tombstones",
    "__version__",
}
# what others import: they name modules of every layer, and load them when they are used
INTERFACES = {"__init__", "api", "plugins"}
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
WITHOUT_TORCH = {
    *("params", "formats", "storage", "shredding", "trust", "log", "verifier", "history", "certificate"),
    *("purge", "monitoring", "cli", "deployment"),
}
ONLY_HERE = {
    "dvc": {"features/revision.py", "purge/workspace.py", "doctor"},
    "kfp": set(),
    "torch": {"model", "training", "features/media", "deletion", "doctor", "attacks", "evaluation"},
    "transformers": {"features/media", "model/examples/two_towers.py"},
    "h5py": {"features/sources/csd.py"},
    "boto3": {"storage", "shredding/wrapper.py"},
    "mlflow": {"storage/mlflow.py"},
    "fastapi": {"serving"},
    "uvicorn": {"serving"},
    "jwt": {"serving"},
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def imported(file: Path) -> tuple[str, ...]:
    """Return what a module imports, wherever in it, but not for types only."""
    return tuple(_imported(file))


def _imported(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ([f"mbd.{alias.name}" for alias in node.names] if node.module == "mbd" else [node.module])


def package_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def may_import(here: str, there: str) -> bool:
    """Whether one package may import another: tools are for everybody, the rest goes down by layers."""
    if there in TOOLS or here == there:
        return True
    return here in LEVEL and (LEVEL[there] > LEVEL[here] or (here, there) in NEIGHBOURS)


def test_imports_go_one_way() -> None:
    packages = {package_of(file) for file in modules()} - INTERFACES
    assert packages | {"__version__"} == LEVEL.keys() | TOOLS, "a package is in one layer or a tool"
    wrong = [
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in modules()
        for name in imported(file)
        if package_of(file) not in INTERFACES and name.startswith("mbd.")
        if not may_import(package_of(file), name.split(".")[1])
    ]
    assert not wrong


def test_heavy_packages_are_imported_only_where_they_belong() -> None:
    for file in modules():
        path = file.relative_to(SOURCE)
        for package in ONLY_HERE.keys() & {name.partition(".")[0] for name in imported(file)}:
            assert any(map(path.is_relative_to, ONLY_HERE[package])), f"{path} imports {package}"


# Verification writes the shapes of the built-in backbones down a second time, on purpose.
NAMES_BACKBONES = {"verifier/structure.py"}


@pytest.mark.parametrize(
    "package",
    ["attacks", "certificate", "deletion", "evaluation", "history", "production", "report", "steps", "verifier"],
)
def test_a_backbone_is_asked_what_it_can_do_and_not_for_its_name_or_class(package: str) -> None:
    found = []
    for file in sorted((SOURCE / package).rglob("*.py")):
        if str(file.relative_to(SOURCE)) in NAMES_BACKBONES:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            named = isinstance(node, ast.Constant) and node.value in ("joint", "lattice")
            is_check = isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
            of_class = is_check and any(
                kind in ast.unparse(node) for kind in ("JointNetwork", "JointBackbone", "Lattice")
            )
            if named or of_class:
                found.append(f"{file.relative_to(SOURCE)}: {ast.unparse(node)}")
    assert not found


def test_no_package_has_the_name_of_a_public_function() -> None:
    """Python would put the package in the function's place as soon as one of its modules is imported."""
    functions = {name for name in mbd.__all__ if name.islower()}
    assert not functions & {file.relative_to(SOURCE).parts[0].removesuffix(".py") for file in modules()}
