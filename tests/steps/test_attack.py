"""The step `attack`: what it leaves, also where the gate refuses, and how it ends."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from mbd.cli import group
from mbd.errors import GateRefusedError, UsageError
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.params import Params, load_params
from mbd.steps import attack
from tests.attacks.models import audited, untrained
from tests.digests import path_digest
from tests.refusals import refused

FAST = ("attacks.resamples=100", "attacks.relearn_rows=[32]", "attacks.figures=false")


def refused_by_gate(why: str, out: Path) -> "pytest.RaisesExc[GateRefusedError]":
    """Return what expects that the gate refuses a model, and names the report."""
    return refused(GateRefusedError, match=why, file=out / "report.md")


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


@pytest.fixture(scope="module")
def passed(model_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an audit of `deleted` leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("cwd"))
        record = attacked(model_workspace, Path("out"), "attacks.figures=true")
        assert record == type(record).read(Path("out") / LEAKAGE, "leakage record", "")
        assert record.decision == "passed"
        return Path("out").absolute()


def test_a_passed_model_leaves_record_report_and_figures(passed: Path) -> None:
    files = {p.relative_to(passed).as_posix() for p in passed.rglob("*") if p.is_file()}
    assert files == {
        *("leakage.json", "report.md", "metrics.json", "step.json"),
        *("figures/leakage.png", "figures/durability.png"),
    }
    metrics = json.loads((passed / "metrics.json").read_text())
    assert metrics["leaks_before"] > metrics["leaks"] == 0
    assert set(metrics) == {"leaks_before", "leaks", "acc2_deleted", "acc2_reference"}
    step = json.loads((passed / "step.json").read_text())
    assert set(step["inputs"]) == {"features", "before", "after", "reference"}
    assert {"membership", "diff", "utility"} <= set(step["phases_seconds"])
    assert step["look_at"] == "report.md"


def test_a_refused_model_leaves_the_same_and_ends_with_3(model_workspace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with refused_by_gate("utility", out):
        attacked(model_workspace, out, after=untrained(model_workspace, tmp_path / "untrained"))
    record = LeakageRecord.read(out / LEAKAGE, "leakage record", "")
    assert record.decision == "refused"
    assert "**Refused: audio may not be gone.**" in (out / "report.md").read_text()
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["acc2_deleted"] < metrics["acc2_reference"]
    # and a later run of a better model takes its place
    assert attacked(model_workspace, out).decision == "passed"


def test_the_same_attacks_give_the_same_bytes(model_workspace: Path, passed: Path, tmp_path: Path) -> None:
    attacked(model_workspace, tmp_path / "again", "attacks.figures=true")
    assert path_digest(tmp_path / "again") == path_digest(passed)


@pytest.mark.slow
def test_attacking_until_it_passes_is_counted(model_workspace: Path, tmp_path: Path) -> None:
    """Another seed, other parameters, another folder: an audit of the same deletion. The same again: no new one."""
    plain, wide, seeded = (), ("attacks.tolerance=1",), ("attacks.seed=1",)
    found = []
    for number, settings in enumerate((plain, wide, seeded, plain)):
        out = tmp_path / f"folder-{number}" / "leakage"
        try:
            record = attacked(model_workspace, out, f"deletion.ledgers={tmp_path / 'ledgers'}", *settings)
        except GateRefusedError:
            record = LeakageRecord.read(out / LEAKAGE, "leakage record", "")
        assert record.earlier
        found.append((record.earlier.audits, record.earlier.refused))
    assert found == [(0, 0), (1, 0), (2, 1), (0, 0)]
    assert "are recorded: 2, of which refused: 1" in (tmp_path / "folder-2" / "leakage" / "report.md").read_text()


def test_figures_are_left_out_on_request_and_a_history_that_cannot_be_kept_is_said(
    model_workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    record = attacked(model_workspace, tmp_path / "out", f"deletion.ledgers={tmp_path / 'file'}")
    assert record.earlier is None
    report = (tmp_path / "out" / "report.md").read_text()
    assert "were not counted" in report
    assert list((tmp_path / "out" / "figures").iterdir()) == []
    assert "figures/" not in report


@pytest.mark.parametrize("setting", ["attacks.tolerance=1", "attacks.rows=16", "attacks.splits=[train]"])
def test_no_parameter_opens_the_gate(model_workspace: Path, tmp_path: Path, setting: str) -> None:
    """What was found is written all the same, so that parameters can be explored."""
    with refused_by_gate("strength", tmp_path / "out") as refusal:
        attacked(model_workspace, tmp_path / "out", setting, "attacks.least_rows=1")
    record = LeakageRecord.read(tmp_path / "out" / LEAKAGE, "leakage record", "")
    assert record.decision == "refused"
    reasons = [reason for reason in record.reasons if reason.startswith("strength (")]
    assert refusal.value.exit_code == 3
    assert "attack again" in str(refusal.value.hint)
    name = setting.partition("=")[0]
    named = {"attacks.rows": "suite.rows.audio.scored", "attacks.splits": "the split train"}.get(name, name)
    assert named in "".join(reasons)


def released(folder: Path, out: Path) -> Path:
    """Copy a model as a store has it: without deletion.json."""
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("deletion.json", "step.json"))
    return out


def test_a_released_model_is_attacked_again_when_the_old_weights_are_gone(
    model_workspace: Path, passed: Path, tmp_path: Path
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
    first = LeakageRecord.read(passed / LEAKAGE, "leakage record", "")
    printed = {(a.id, a.variant): (a.after, a.reference) for a in first.attacks}
    again = {(a.id, a.variant): (a.after, a.reference) for a in later.attacks}
    assert again.items() <= printed.items()
    assert all(a.before is None and a.blind is None for a in later.attacks)
    assert all(u.before is None and u.to_before is None for u in later.utility)
    assert set(json.loads((out / "step.json").read_text())["inputs"]) == {"features", "after", "reference"}


def test_a_released_model_that_leaks_is_refused_without_the_model_before(model_workspace: Path, tmp_path: Path) -> None:
    with refused_by_gate("pathway", tmp_path / "out"):
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
    return [
        "attack",
        *options,
        "--modality",
        "audio",
        "--out",
        str(out),
        *(p for s in FAST for p in ("--set", s)),
    ]


def test_the_command_prints_what_it_found_before_it_refuses(model_workspace: Path, tmp_path: Path) -> None:
    wide = CliRunner(env={"COLUMNS": "200"})
    passed = wide.invoke(group, command(model_workspace, model_workspace / "deleted", tmp_path / "a"))
    assert (passed.exit_code, passed.exception) == (0, None)
    for part in ("whitebox: accuracy", "Passed: attacks found no audio", "written to"):
        assert part in passed.output
    refused = wide.invoke(group, command(model_workspace, model_workspace / "model", tmp_path / "b"))
    assert isinstance(refused.exception, GateRefusedError)
    assert refused.exception.exit_code == 3
    assert "Refused: audio may not be gone" in refused.output
    assert "pathway.output_shift (audio" in str(refused.exception)
