"""The plan of the studies, and how data of one's own takes the place of the synthetic sets."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import DataError, UsageError
from mbd.params import load_params
from studies.plan import StudyPlan, called, command_about, read_plan, use_data, using
from tests.refusals import refused
from tests.studies.cells import small_plan

SHIPPED = Path(__file__).parents[2] / "studies" / "params.yaml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A plan about synthetic data, in a folder of its own."""
    path = tmp_path / "params.yaml"
    shutil.copy(SHIPPED, path)
    use_data(None, file=path)
    return path


def settings_of(plan: StudyPlan, *names: str) -> list[str]:
    return [part for part in plan.options(*names) if part != "--set"]


def test_every_name_of_the_plan_stands_for_parameters_that_exist() -> None:
    plan = read_plan(SHIPPED)
    names = {*plan.compared, *plan.backbones, *plan.variants, *plan.deletions, *plan.scans}
    assert names <= plan.settings.keys()
    for name in plan.settings:
        load_params(None, settings_of(plan, name))


def test_the_plan_measures_what_the_paper_does() -> None:
    plan = read_plan(SHIPPED)
    assert len(plan.variants) + 2 == 7
    deletions = [load_params(None, settings_of(plan, name)).deletion for name in plan.deletions]
    printed = [d.epsilon for d in deletions if d.method == "surgery" and d.surgery.edit == "noise"]
    certified = [d.epsilon for d in deletions if d.method == "certified"]
    assert printed == certified == [0.5, 1, 2, 4]


def test_own_data_takes_the_place_of_the_synthetic_sets(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "my talks.npz"
    data.write_bytes(b"")
    before = read_plan(file)
    use_data(data, "voice", file)
    plan = read_plan(file)
    assert (plan.name, plan.main, plan.compared) == ("my_talks_npz", "my_talks_npz", ("my_talks_npz",))
    assert plan.revoked == "voice"
    source = load_params(None, settings_of(plan, "my_talks_npz")).features.source
    assert (source.kind, source.path) == ("npz", str(data))
    assert plan.source == str(data), "DVC sees that the file has changed"
    assert (plan.seeds, plan.variants, plan.deletions) == (before.seeds, before.variants, before.deletions)


def test_synthetic_data_comes_back_as_it_was(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "talks.npz"
    data.write_bytes(b"")
    before = file.read_bytes()
    use_data(data, "voice", file)
    assert file.read_bytes() != before
    use_data(None, file=file)
    assert file.read_bytes() == before


def test_after_a_run_the_plan_is_what_it_was_even_if_the_run_before_was_killed(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "talks.npz"
    data.write_bytes(b"")
    before = file.read_bytes()
    use_data(data, "voice", file)  # and it is never restored
    with pytest.raises(RuntimeError), using(data, "voice", file):
        assert read_plan(file).revoked == "voice"
        raise RuntimeError
    assert file.read_bytes() == before
    own = before.replace(b"seeds: [0, 1, 2]", b"seeds: [7]")
    file.write_bytes(own)
    with using(None, file=file):
        assert read_plan(file).seeds == (7,)
    assert file.read_bytes() == own


def test_only_one_run_at_a_time_may_change_the_plan(file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()
    with using(None, "voice", file):
        within = file.read_bytes()
        with pytest.raises(UsageError, match="other studies are running"), using(None, file=file):
            pytest.fail("the first is not done")
        assert file.read_bytes() == within
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["my talks #was.npz", 'quoted "talks".npz', "übung.npz"])
def test_a_path_may_hold_what_is_special_in_a_plan(name: str, file: Path, tmp_path: Path) -> None:
    data = tmp_path / name
    data.write_bytes(b"")
    before = file.read_bytes()
    with using(data, "a: b", file):
        plan = read_plan(file)
        assert plan.settings[plan.main]["features.source.path"] == str(data)
        assert plan.revoked == "a: b"
    assert file.read_bytes() == before


def test_readers_see_the_name_of_the_file_and_the_command_that_measures_it() -> None:
    assert called("synthetic") == "synthetic data"
    assert called("mosi_npz") == "mosi.npz"
    assert command_about("synthetic", "make study NAME=proxy") == "make study NAME=proxy"
    assert command_about("mosi_npz", "make study NAME=proxy") == "make study NAME=proxy DATA=mosi.npz"


def test_a_file_may_be_called_like_a_synthetic_set(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "mosi.npz"
    data.write_bytes(b"")
    use_data(data, file=file)
    plan = read_plan(file)
    assert plan.settings["mosi"] == {"features.source.preset": "mosi"}
    assert plan.settings[plan.main]["features.source.path"] == str(data)


def test_the_same_data_again_leaves_the_file_alone(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "talks.npz"
    data.write_bytes(b"")
    use_data(data, file=file)
    first = file.stat().st_mtime_ns, file.read_bytes()
    use_data(data, file=file)
    assert (file.stat().st_mtime_ns, file.read_bytes()) == first


def test_data_that_is_not_there_changes_nothing(file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()
    with refused(UsageError, key="DATA", value=tmp_path / "nothing.npz"):
        use_data(tmp_path / "nothing.npz", file=file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("text", ["name: [", "name: x", "- a"])
def test_a_broken_plan_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match="plan of the studies") as error:
        read_plan(path)
    assert str(path) in str(error.value)


values = st.one_of(st.booleans(), st.integers(0, 500), st.floats(0, 1).map(lambda x: round(x, 4)))


@given(values)
@settings(deadline=None, max_examples=40)
def test_options_say_what_the_settings_say(value: bool | int | float) -> None:
    key = "model.joint.fusion" if isinstance(value, bool) else "training.epochs"
    key = "deletion.surgery.chi_max" if isinstance(value, float) else key
    options = small_plan().model_copy(update={"settings": {"one": {key: value}}}).options("one")
    assert options[0] == "--set"
    assert options[1].removeprefix(f"{key}=") in (str(value), str(value).lower())


def test_the_last_name_wins() -> None:
    plan = small_plan().model_copy(update={"settings": {"a": {"x.y": 1, "x.z": 2}, "b": {"x.y": 3}}})
    assert plan.options("a", "b") == ["--set", "x.y=3", "--set", "x.z=2"]
