"""Cells are commands of `mbd`, made from the names of the plan."""

import sys
from pathlib import Path

import pytest
import yaml

from mbd.cli import group
from mbd.params import load_params
from studies import cell
from studies.layout import Layout
from studies.plan import StudyPlan, read_plan
from tests.studies.cells import ROWS, in_folder, small_plan

SHIPPED = Path(__file__).parents[2] / "studies" / "params.yaml"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return in_folder(tmp_path, small_plan())


def test_every_cell_of_the_shipped_plan_is_a_command_that_mbd_understands() -> None:
    layout = Layout.of(read_plan(SHIPPED))
    plan = layout.plan
    commands = [cell.features(layout, data) for data in plan.compared]
    commands += [cell.features(layout, f"{plan.main}-b{size}") for size in plan.calibrations]
    commands += [cell.train(layout, plan.main, model, "0") for model in (*plan.backbones, *plan.variants)]
    commands += [cell.reference(layout, backbone, "0") for backbone in plan.backbones]
    for deletion in (*plan.deletions, *cell.scans(layout)):
        commands += [cell.delete(layout, deletion, "0"), cell.attack(layout, deletion, "0")]
    commands += [cell.evaluate(layout, name) for name in (*plan.compared, "ablation", "deleted", "scans")]
    outs = set()
    for name, *arguments in commands:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= known, name
        outs.add(arguments[arguments.index("--out") + 1])
    assert len(outs) == len(commands), "no two cells write to the same place"


def test_a_variant_is_a_model_like_any_other(layout: Layout) -> None:
    command = cell.train(layout, "mosi", "no-fusion", "2")
    assert "model.joint.fusion=false" in command
    assert "training.seed=2" in command
    assert command[-1] == str(layout.models("mosi", "no-fusion") / "seed-2")


def test_a_calibration_size_belongs_to_the_data(layout: Layout) -> None:
    assert cell.with_calibration(layout, "mosi-b64") == ("mosi", "64")
    assert cell.with_calibration(layout, "mosi-b65") == ("mosi-b65", "")
    assert cell.with_calibration(layout, "mosi") == ("mosi", "")
    settings = [part for part in cell.features(layout, "mosi-b32")[1:-2] if part != "--set"]
    assert load_params(None, settings).features.source.synthetic.rows == {**ROWS, "calibration": 32}
    assert cell.scans(layout) == ["budget-0_01", "uncut-b32", "uncut-b64"]


def test_a_calibration_size_of_own_data_is_asked_of_its_source(layout: Layout) -> None:
    own = {"features.source.kind": "npz", "features.source.path": "talks.npz"}
    plan = layout.plan.model_copy(update={"settings": {**layout.plan.settings, "mosi": own}})
    assert "features.calibration.size=32" in cell.features(Layout(plan, layout.root), "mosi-b32")


def test_exact_deletion_is_of_the_lattice_and_every_other_of_the_joint_model() -> None:
    layout = Layout.of(read_plan(SHIPPED))
    main, revoked = layout.plan.main, layout.plan.revoked
    for deletion in layout.plan.deletions:
        backbone = "lattice" if deletion == "exact" else "joint"
        command = cell.delete(layout, deletion, "1")
        assert command[command.index("--model") + 1] == str(layout.models(main, backbone) / "seed-1")
        assert command[command.index("--reference") + 1] == str(layout.references(backbone) / "seed-1")
        assert command[command.index("--modality") + 1] == revoked


def test_noise_of_a_study_can_be_drawn_again_and_nothing_else_has_a_noise_seed() -> None:
    layout = Layout.of(read_plan(SHIPPED))
    for deletion in layout.plan.deletions:
        command = cell.delete(layout, deletion, "1")
        settings = [part for part, before in zip(command[1:], command, strict=False) if before == "--set"]
        params = load_params(None, settings).deletion
        noisy = params.method == "certified" or (params.method == "surgery" and params.surgery.edit == "noise")
        assert params.noise_seed == (1 if noisy else None), deletion


def test_scans_lie_beside_the_deletions_and_are_attacked_quickly(layout: Layout) -> None:
    assert str(layout.root / "scans" / "leakage" / "uncut-b32" / "seed-0") in cell.attack(layout, "uncut-b32", "0")
    assert "attacks.variants=[]" in cell.attack(layout, "uncut-b32", "0")
    assert "attacks.variants=[]" not in cell.attack(layout, "surgery", "0")


def with_plan(folder: Path, plan: StudyPlan) -> None:
    (folder / "studies").mkdir()
    (folder / "studies" / "params.yaml").write_text(yaml.safe_dump(plan.model_dump(mode="json")))


@pytest.mark.parametrize(
    ("kind", "names", "code", "expected"),
    [
        ("attack", ("surgery", "0"), 3, 0),
        ("attack", ("surgery", "0"), 5, 5),
        ("evaluate", ("mosi",), 3, 3),
        ("features", ("mosi",), 0, 0),
    ],
)
def test_only_an_attack_may_be_refused_by_the_gate(
    kind: str, names: tuple[str, ...], code: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_plan(Path.cwd(), small_plan())
    monkeypatch.setattr(cell, "mbd_main", lambda _: sys.exit(code))
    assert cell.main(kind, *names) == expected


def test_a_cell_runs_and_says_what_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    with_plan(Path.cwd(), small_plan())
    assert cell.main("features", "mosi") == 0
    assert capfd.readouterr().out.startswith("$ mbd features --set ")
    assert (Path.cwd() / "studies" / "build" / "synthetic" / "features" / "mosi" / "manifest.json").is_file()
