"""The metrics of commands when they end: through the command line, with steps that do not know about it."""

import shutil
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from mbd.cli import group
from mbd.errors import DataError, GateRefusedError, MbdError, UsageError, VerificationError
from mbd.files import write_file
from mbd.monitoring import metrics
from mbd.outputs import step_run
from mbd.params import Params, load_params
from mbd.steps.metrics_reporting import add_samples, reason_of, reporting
from tests.deletion.models import home_with_models
from tests.integration.servers.process import free_port
from tests.monitoring.golden_store import golden_leakage
from tests.monitoring.page import ExporterPage

CERTIFIED = ("deletion.method=certified", "deletion.certified.finetune_epochs=1", "training.epochs=2")


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_models(tmp_path_factory.mktemp("home"))


def run_delete(model_workspace: Path, folder: Path, *settings: str, modality: str = "audio") -> Result:
    options = [
        "--features",
        model_workspace / "data",
        "--model",
        model_workspace / "model",
        "--modality",
        modality,
        "--out",
        folder / "out",
    ]
    printed = (f"monitoring.textfile={folder}/metrics", f"deletion.ledgers={folder}/ledgers")
    chosen = [f"--set={setting}" for setting in (*printed, *settings)]
    return CliRunner().invoke(group, ["delete", *map(str, options), *chosen])


def page(folder: Path, step: str) -> ExporterPage:
    return ExporterPage((folder / "metrics" / f"mbd-{step}-sentiment.prom").read_text())


def params(folder: Path, *settings: str) -> Params:
    return load_params(None, ["monitoring.mode=textfile", f"monitoring.textfile={folder}/metrics", *settings])


def test_by_default_nothing_is_reported(model_workspace: Path, tmp_path: Path) -> None:
    assert run_delete(model_workspace, tmp_path).exit_code == 0
    assert not (tmp_path / "metrics").exists()


def test_a_deletion_reports_its_phases_its_edit_and_its_budget(model_workspace: Path, tmp_path: Path) -> None:
    start = time.time()
    result = run_delete(model_workspace, tmp_path, "monitoring.mode=textfile", *CERTIFIED)
    assert result.exit_code == 0, result.output
    printed = page(tmp_path, "delete")
    assert start <= printed[metrics.STEP_SUCCESS]["delete", "sentiment"] <= time.time()
    assert printed[metrics.STEP_DURATION]["delete", "sentiment"] > 0
    assert {phase for *_, phase in printed[metrics.STEP_PHASE]} >= {"cut"}
    assert printed[metrics.EDITED]["sentiment", "audio", "certified"] > 0
    assert printed[metrics.DELETION_EPSILON] == {("sentiment", "audio", "certified"): 1.0}
    assert printed[metrics.BUDGET_SPENT]["sentiment",] == pytest.approx(1, rel=0.01)
    assert printed[metrics.BUDGET_LIMIT] == {("sentiment",): 8.0}


def test_a_failure_is_reported_with_its_reason_beside_the_last_success(model_workspace: Path, tmp_path: Path) -> None:
    run_delete(model_workspace, tmp_path, "monitoring.mode=textfile")
    success = page(tmp_path, "delete")[metrics.STEP_SUCCESS]
    result = run_delete(model_workspace, tmp_path, "monitoring.mode=textfile", modality="smell")
    assert isinstance(result.exception, UsageError)
    printed = page(tmp_path, "delete")
    assert printed[metrics.STEP_SUCCESS] == success
    assert printed[metrics.STEP_FAILURE].keys() == {("delete", "sentiment", "usage")}
    assert printed[metrics.STEP_PHASE]


def test_a_gateway_that_is_away_fails_nothing_and_the_metrics_are_kept(model_workspace: Path, tmp_path: Path) -> None:
    gateway = f"monitoring.pushgateway=http://127.0.0.1:{free_port()}"
    result = run_delete(model_workspace, tmp_path, "monitoring.mode=push", gateway)
    assert result.exit_code == 0
    assert (tmp_path / "out" / "deletion.json").exists()
    assert "warning: the Pushgateway did not accept the metrics" in result.stderr
    assert "were left in" in result.stderr
    printed = page(tmp_path, "delete")
    assert printed[metrics.STEP_SUCCESS]
    assert printed[metrics.UNDELIVERED].keys() == {("delete", "sentiment")}


def test_a_folder_that_cannot_be_written_fails_nothing_either(model_workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics").write_text("a file where the folder should be")
    result = run_delete(model_workspace, tmp_path, "monitoring.mode=textfile")
    assert result.exit_code == 0
    assert "warning: the metrics of delete were not delivered" in result.stderr


def test_pushing_needs_a_gateway() -> None:
    with pytest.raises(UsageError, match=r"set monitoring\.pushgateway"):
        load_params(None, ["monitoring.mode=push"])


def attacked(out: Path, decision: str) -> None:
    """Write what `mbd attack` leaves."""
    leakage = golden_leakage("surgery")
    record = leakage.model_copy(update={"decision": decision})
    with step_run("attack", out, {}) as step:
        write_file(step.folder / "leakage.json", record.to_json())


def test_every_step_within_a_command_is_reported_although_its_folder_is_gone(tmp_path: Path) -> None:
    with reporting("request-run", params(tmp_path, "monitoring.schedules={request-run: 60}")):
        attacked(tmp_path / "work", "passed")
        shutil.rmtree(tmp_path / "work")
    assert page(tmp_path, "attack")[metrics.STEP_SUCCESS]
    assert page(tmp_path, "attack")[metrics.LEAKAGE]
    whole = page(tmp_path, "request-run")
    assert whole[metrics.STEP_SUCCESS].keys() == {("request-run", "sentiment")}
    assert whole[metrics.STEP_SCHEDULE] == {("request-run", "sentiment"): 60}


def test_an_attack_that_closed_the_gate_is_a_failure_with_its_evidence(tmp_path: Path) -> None:
    with pytest.raises(GateRefusedError), reporting("attack", params(tmp_path)):
        attacked(tmp_path / "out", "refused")
        raise GateRefusedError("it leaks")
    printed = page(tmp_path, "attack")
    assert printed[metrics.STEP_FAILURE].keys() == {("attack", "sentiment", "refused")}
    assert not printed[metrics.STEP_SUCCESS]
    assert printed[metrics.LEAKAGE]


def test_a_damaged_record_fails_no_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with reporting("attack", params(tmp_path)), step_run("attack", tmp_path / "out", {}) as step:
        write_file(step.folder / "leakage.json", "{}")
    assert "could not be read for metrics" in capsys.readouterr().err + caplog.text
    assert page(tmp_path, "attack")[metrics.STEP_SUCCESS]


def test_other_processes_of_a_group_and_other_commands_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reporting("keys-list", params(tmp_path)):
        pass
    monkeypatch.setenv("RANK", "1")
    with reporting("train", params(tmp_path)):
        pass
    assert not (tmp_path / "metrics").exists()


def test_a_step_can_add_metrics_where_a_command_reports(tmp_path: Path) -> None:
    add_samples([(metrics.TOMBSTONES, 3, {})])  # no command reports
    with reporting("purge-scan", params(tmp_path)):
        add_samples([(metrics.TOMBSTONES, 4, {})])
    assert page(tmp_path, "purge-scan")[metrics.TOMBSTONES] == {(): 4}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MbdError("x"), "failure"),
        (DataError("x"), "bad_data"),
        (GateRefusedError("x"), "refused"),
        (VerificationError("x"), "unverified"),
        (SystemExit(4), "unverified"),
        (SystemExit(99), "failure"),
        (SystemExit("gone"), "failure"),
        (SystemExit(0), None),
        (click.exceptions.Exit(0), None),
        (click.UsageError("x"), "usage"),
        (KeyboardInterrupt(), "interrupted"),
        (ZeroDivisionError(), "failure"),
    ],
)
def test_reasons_are_few(error: BaseException, reason: str | None) -> None:
    assert reason_of(error) == reason
