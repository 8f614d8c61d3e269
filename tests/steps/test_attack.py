"""The step `attack`: what it leaves, also where the gate refuses, and how it ends."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from mbd.cli import group
from mbd.errors import GateRefusedError, UsageError
from mbd.files import path_digest
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.params import Params, load_params
from mbd.steps import attack
from tests.attacks.models import audited, untrained

FAST = ("attacks.resamples=100", "attacks.relearn_rows=[16]", "attacks.variants=[]", "attacks.proxy_parameters=10")


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`data`, and of audio: `model`, `deleted` and `reference`."""
    return audited(tmp_path_factory.mktemp("home"))


def params(*settings: str) -> Params:
    return load_params(None, [*FAST, *settings])


def attacked(model_workspace: Path, out: Path, *settings: str, after: str | Path = "deleted") -> LeakageRecord:
    return attack.run(
        params(*settings),
        model_workspace / "data",
        model_workspace / "model",
        model_workspace / after,
        model_workspace / "reference",
        ["audio"],
        out,
    )


def test_a_passed_model_leaves_record_report_and_figures(model_workspace: Path, tmp_path: Path) -> None:
    record = attacked(model_workspace, tmp_path / "out")
    assert record == LeakageRecord.read(tmp_path / "out" / LEAKAGE, "leakage record", "")
    files = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert files == {
        *("leakage.json", "report.md", "metrics.json", "step.json"),
        *("figures/leakage.png", "figures/proxies.png"),
    }
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["passed"] == 1
    assert metrics["audio_pathway_before"] == 1 > metrics["audio_pathway_after"] == 0
    assert all(isinstance(value, float | int) for value in metrics.values())
    step = json.loads((tmp_path / "out" / "step.json").read_text())
    assert set(step["inputs"]) == {"features", "before", "after", "reference"}
    assert {"membership", "diff", "utility"} <= set(step["phases_seconds"])
    assert step["look_at"] == "report.md"


def test_a_refused_model_leaves_the_same_and_ends_with_3(model_workspace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(GateRefusedError, match="utility"):
        attacked(model_workspace, out, after=untrained(model_workspace, tmp_path / "untrained"))
    record = LeakageRecord.read(out / LEAKAGE, "leakage record", "")
    assert record.decision == "refused"
    assert "**Refused: audio may not be gone.**" in (out / "report.md").read_text()
    assert json.loads((out / "metrics.json").read_text())["passed"] == 0
    # and a later run of a better model takes its place
    assert attacked(model_workspace, out).decision == "passed"


def test_the_same_attacks_give_the_same_bytes(model_workspace: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        attacked(model_workspace, tmp_path / name)
    assert path_digest(tmp_path / "a") == path_digest(tmp_path / "b")


def test_figures_are_left_out_on_request(model_workspace: Path, tmp_path: Path) -> None:
    attacked(model_workspace, tmp_path / "out", "attacks.figures=false")
    assert list((tmp_path / "out" / "figures").iterdir()) == []
    assert "figures/" not in (tmp_path / "out" / "report.md").read_text()


def released(folder: Path, out: Path) -> Path:
    """Copy a model as a store has it: without deletion.json."""
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("deletion.json", "step.json"))
    return out


def test_a_released_model_is_attacked_again_when_the_old_weights_are_gone(
    model_workspace: Path, tmp_path: Path
) -> None:
    model, out = released(model_workspace / "deleted", tmp_path / "released"), tmp_path / "later"
    later = attack.run(params(), model_workspace / "data", None, model, model_workspace / "reference", ["audio"], out)
    assert later.decision == "passed"
    assert set(later.models) == {"after", "reference"}
    assert "diff" not in {found.attack for found in later.attacks}
    assert {found.name: found.decision for found in later.invariants} == {
        **dict.fromkeys(("input", "cut", "shape"), "passed"),
        **dict.fromkeys(("content", "record"), "informational"),
    }
    first = attacked(model_workspace, tmp_path / "first")
    printed = {(a.attack, a.measure): (a.after, a.reference) for a in first.attacks}
    assert all(printed[a.attack, a.measure] == (a.after, a.reference) and a.before is None for a in later.attacks)
    assert all(u.before is None and u.to_before is None for u in later.utility)
    assert set(json.loads((out / "step.json").read_text())["inputs"]) == {"features", "after", "reference"}


def test_a_released_model_that_leaks_is_refused_without_the_model_before(model_workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(GateRefusedError, match="pathway"):
        attack.run(
            params(),
            model_workspace / "data",
            None,
            model_workspace / "model",
            model_workspace / "reference",
            ["audio"],
            tmp_path / "out",
        )
    with pytest.raises(UsageError, match="the data has no smell to attack with"):
        attack.run(
            params(),
            model_workspace / "data",
            None,
            model_workspace / "deleted",
            model_workspace / "reference",
            ["smell"],
            tmp_path / "out",
        )


def test_what_does_not_belong_together_writes_nothing(model_workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        attack.run(
            params(),
            model_workspace / "data",
            model_workspace / "reference",
            model_workspace / "deleted",
            model_workspace / "reference",
            ["audio"],
            tmp_path / "o",
        )
    assert not (tmp_path / "o").exists()


def command(model_workspace: Path, after: Path, out: Path) -> list[str]:
    folders = {
        "features": model_workspace / "data",
        "before": model_workspace / "model",
        "after": after,
        "reference": model_workspace / "reference",
    }
    options = [part for name, folder in folders.items() for part in (f"--{name}", str(folder))]
    return ["attack", *options, "--modality", "audio", "--out", str(out), *(p for s in FAST for p in ("--set", s))]


def test_the_command_prints_what_it_found_before_it_refuses(model_workspace: Path, tmp_path: Path) -> None:
    passed = CliRunner().invoke(group, command(model_workspace, model_workspace / "deleted", tmp_path / "a"))
    assert (passed.exit_code, passed.exception) == (0, None)
    for part in ("whitebox:", "Acc2", "Passed: attacks found no audio", "written to"):
        assert part in passed.output
    refused = CliRunner().invoke(group, command(model_workspace, model_workspace / "model", tmp_path / "b"))
    assert isinstance(refused.exception, GateRefusedError)
    assert refused.exception.exit_code == 3
    assert "Refused: audio may not be gone" in refused.output
    assert "pathway (rows that move with audio)" in str(refused.exception)
