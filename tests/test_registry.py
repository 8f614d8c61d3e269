"""Objects found by name: built-in ones, those of installed packages, and what is wrong with a plug-in."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

import mbd
from mbd.errors import ExitCode, MissingExtraError, UsageError, extras_named
from mbd.registry import PluginError, Registry, lazy
from tests.refusals import refused, refused_without

Install = Callable[..., None]


class Depth(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: int


@dataclass(frozen=True)
class Thing:
    title: str
    settings: type[BaseModel] | None = None


PLAIN = Thing("built in")


@pytest.fixture
def things() -> "Registry[Thing]":
    return Registry("thing", "tests.things", "things.kind", f"{__name__}:Thing", {"plain": f"{__name__}:PLAIN"})


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package with one entry point, as pip leaves it."""

    def install(package: str, entry: str, code: str) -> None:
        folder = tmp_path / package
        information = folder / f"{package}-1.2.dist-info"
        information.mkdir(parents=True)
        (folder / f"{package}.py").write_text(code)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (information / "entry_points.txt").write_text(f"[tests.things]\n{entry}\n")
        monkeypatch.syspath_prepend(folder)

    return install


FINE = f"from {__name__} import Depth, Thing\nTHING = Thing('added', Depth)\n"


def test_built_in_objects_are_found_by_name(things: "Registry[Thing]") -> None:
    assert things.get("plain") is PLAIN
    assert things.names() == ("plain",)


def test_a_package_adds_an_object_by_an_entry_point(things: "Registry[Thing]", install: Install) -> None:
    install("added_thing", "fancy = added_thing:THING", FINE)
    assert things.names() == ("plain", "fancy")
    assert "added_thing" not in sys.modules, "names are known without importing the package"
    assert things.get("fancy").title == "added"


def test_an_unknown_name_lists_what_there_is_and_the_nearest(things: "Registry[Thing]", install: Install) -> None:
    install("listed_thing", "fancy = listed_thing:THING", FINE)
    with refused(UsageError, key="things.kind", value="fanzy") as refusal:
        things.get("fanzy")
    assert str(refusal.value.hint).startswith("did you mean fancy? installed: plain, fancy;")


def test_a_plug_in_that_cannot_be_imported_is_named_with_its_version(
    things: "Registry[Thing]", install: Install
) -> None:
    install("broken_thing", "broken = broken_thing:THING", "import a_package_that_is_missing\n")
    assert things.get("plain") is PLAIN
    with pytest.raises(PluginError, match=r"broken_thing 1\.2 cannot be imported: ModuleNotFoundError") as refusal:
        things.get("broken")
    assert refusal.value.exit_code is ExitCode.FAILURE


def test_a_plug_in_that_is_something_else_is_refused(things: "Registry[Thing]", install: Install) -> None:
    install("other_thing", "other = other_thing:THING", "THING = 'a text'\n")
    with pytest.raises(PluginError, match=r"is a str, not a tests\.test_registry\.Thing"):
        things.get("other")


def test_two_packages_with_one_name_are_both_named(things: "Registry[Thing]", install: Install) -> None:
    install("thing_one", "same = thing_one:THING", FINE)
    install("thing_two", "same = thing_two:THING", FINE)
    with refused(PluginError, match=r"thing_one 1\.2, thing_two 1\.2", key="things.kind"):
        things.get("same")


def test_a_plug_in_cannot_replace_a_built_in(things: "Registry[Thing]", install: Install) -> None:
    install("greedy_thing", "plain = greedy_thing:THING", FINE)
    assert things.get("plain") is PLAIN
    with pytest.raises(PluginError, match=r"greedy_thing 1\.2 provides a thing named 'plain', which is built in"):
        things.names()


def test_options_are_checked_by_the_settings_of_the_plug_in(things: "Registry[Thing]", install: Install) -> None:
    install("deep_thing", "deep = deep_thing:THING", FINE)
    assert things.options("deep", {"depth": 3}, "things.options") == Depth(depth=3)
    for options, key in (({"depth": "far"}, "things.options.depth"), ({"width": 1}, "things.options.depth")):
        with refused(UsageError, key=key, hint="options of deep: depth"):
            things.options("deep", options, "things.options")


def test_a_built_in_has_no_options(things: "Registry[Thing]") -> None:
    assert things.options("plain", {}, "things.options") is None
    with refused(UsageError, key="things.options", value="depth"):
        things.options("plain", {"depth": 3}, "things.options")


def test_a_lazy_function_names_the_extra_that_it_needs() -> None:
    assert lazy("math:sqrt")(4) == 2
    with refused_without("a_package_that_is_missing"):
        lazy("a_package_that_is_missing:sqrt")(4)


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    extras = {
        "torch": "train",
        "h5py": "data",
        "dvc.api": "data",
        "botocore": "data",
        "sklearn": "train",
        "av": "extract",
    }
    for module, extra in extras.items():
        with pytest.raises(MissingExtraError) as missing, extras_named():
            raise ModuleNotFoundError(name=module)
        assert f"[{extra}]'" in str(missing.value)
    with pytest.raises(ModuleNotFoundError), extras_named():
        raise ModuleNotFoundError(name="mbd.a_module_of_ours")


def test_the_public_api_names_the_extra_that_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "labels.csd").touch()
    (tmp_path / "text.csd").touch()
    (tmp_path / "folds.json").write_text('{"train": ["a"]}')
    with refused_without("h5py"):
        mbd.make_features(tmp_path / "out", params={"features.source.path": str(tmp_path)})


def test_parameters_load_no_source_and_no_store() -> None:
    code = "import sys; from mbd.params import load_params; load_params(None); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "mbd.registry" in loaded
    assert not {"mbd.features.sources", "mbd.storage", "numpy", "torch"} & set(loaded)
