"""`mbd.plugins`: every name is there, loaded when it is used, and none goes without a new first number."""

import ast
import subprocess
import sys
from pathlib import Path

import mbd.plugins

EXAMPLE = Path(__file__).parent / "example" / "mbd_example"
VERSION_1_0 = """
    API_VERSION Array Attack AttackContext AttackEvidence BACKBONES Backbone Calibration Collection ColumnRange Count
    Cut DataError DeletionOutcome DeletionTarget FeatureSet FeaturesSettings FolderStore Guarantee LoadedBackbone
    MbdError Method ModelBefore ModelRecord NonNegative Params Phases Positive Rows Settings Shape Share Source Store
    StoreScheme StoreSettings TargetModel TensorRecord Trained UsageError accuracy balanced_accuracy cut_by_record
    data_record describe lazy stream
"""


def imports_of(file: Path) -> dict[str, str]:
    """Each name that a module imports from another, with that module."""
    tree = ast.parse(file.read_text())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in nodes for alias in node.names}


def test_every_name_is_what_its_module_has() -> None:
    for name in mbd.plugins.__all__:
        assert getattr(mbd.plugins, name) is not None


def test_what_type_checkers_see_is_what_is_loaded() -> None:
    seen = {n: home for n, home in imports_of(Path(mbd.plugins.__file__)).items() if home.startswith("mbd.")}
    assert seen == mbd.plugins._HOME_OF
    assert {*seen, "API_VERSION"} == set(mbd.plugins.__all__)


def test_no_name_of_a_version_goes_before_the_next_one() -> None:
    assert mbd.plugins.API_VERSION[0] == 1
    assert set(VERSION_1_0.split()) <= set(mbd.plugins.__all__)


def test_importing_it_loads_nothing_else() -> None:
    script = "import sys, mbd.plugins; print(sorted({'numpy', 'torch', 'pydantic'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"[]\n"


def test_the_example_imports_nothing_else_of_this_package() -> None:
    homes = {home for file in EXAMPLE.glob("*.py") for home in imports_of(file).values()}
    assert {home for home in homes if home.partition(".")[0] == "mbd"} == {"mbd.plugins"}
