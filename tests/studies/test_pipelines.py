"""A study runs again when any module that it uses has changed."""

import ast
from pathlib import Path

import pytest
import yaml

STUDIES = Path(__file__).parents[2] / "studies"
BESIDE = {"cell", "layout", "plan"}
"""what every study reads its cells through; what cells are is in their settings, which are parameters of each stage"""


def stages() -> dict[str, tuple[str, set[str]]]:
    """Return for each stage that runs a module of ours its name and the modules that it depends on."""
    found = {}
    for file in (STUDIES / "dvc.yaml", *STUDIES.glob("cells/*/dvc.yaml")):
        for name, stage in yaml.safe_load(file.read_text())["stages"].items():
            module, *arguments = str(stage.get("do", stage)["cmd"]).partition("-m studies.")[2].split()
            modules = {dep.removesuffix(".py") for dep in stage.get("do", stage)["deps"] if (STUDIES / dep).is_file()}
            found[name] = (arguments[0].replace("-", "_") if module == "write" else module, modules)
    return {name: (module, modules) for name, (module, modules) in found.items() if module not in BESIDE}


def imported(module: str, found: set[str] | None = None) -> set[str]:
    """Return the modules of the studies that `module` is made of, itself among them."""
    found = found if found is not None else set()
    found.add(module)
    for node in ast.walk(ast.parse((STUDIES / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "studies":
            names = (
                [str(node.module).partition(".")[2]] if "." in str(node.module) else [one.name for one in node.names]
            )
            for name in names:
                if name not in found:
                    imported(name, found)
    return found


@pytest.mark.parametrize(("stage", "module", "depends"), [(name, *what) for name, what in stages().items()])
def test_a_stage_depends_on_every_module_that_it_runs(stage: str, module: str, depends: set[str]) -> None:
    mine = {name for name in depends if "/" not in name}
    assert mine == imported(module) - BESIDE, stage


def test_each_study_is_a_stage() -> None:
    assert {"page", "ablation", "increments", "thresholds"} <= stages().keys()


def test_cells_depend_on_the_data_and_on_the_rooms_whose_commands_they_run() -> None:
    packages = {"features": "features", "train": "training", "delete": "deletion", "attack": "attacks"}
    for file in STUDIES.glob("cells/*/dvc.yaml"):
        for name, stage in yaml.safe_load(file.read_text())["stages"].items():
            commands, deps = str(stage.get("do", stage)["cmd"]), stage.get("do", stage)["deps"]
            for command, package in packages.items():
                if f"studies.cell {command} " in commands:
                    assert f"../src/mbd/{package}" in deps, name
            if "studies.cell features " in commands:
                assert "${source}" in deps, name
