"""Runs and schedules on a Kubeflow API over real HTTP."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from mbd.cli import group
from mbd.errors import UsageError
from mbd.kubeflow.common import read_params
from mbd.params.platform import KUBEFLOW_TOKEN, PlatformSettings
from pipelines.cluster import Cluster, ClusterError, Submission, continued_hash, submission
from pipelines.compiling import compiled
from tests.pipelines.kubeflow_server import Kubeflow, kubeflow_server
from tests.refusals import refused

ARGUMENTS: dict[str, Any] = {"params": "{}", "model": "sentiment", "modalities": ["audio"]}


@pytest.fixture
def kubeflow() -> Iterator[Kubeflow]:
    with kubeflow_server() as running:
        yield running


@pytest.fixture
def platform(kubeflow: Kubeflow) -> PlatformSettings:
    return PlatformSettings(kubeflow_host=kubeflow.url, service_account="deleter", pipeline_root="s3://artifacts/kfp")


def nightly(platform: PlatformSettings, cron: str = "0 0 3 * * *") -> Submission:
    return submission("delete", platform, ARGUMENTS, cron=cron)


def test_a_run_is_submitted_once(kubeflow: Kubeflow, platform: PlatformSettings) -> None:
    wanted = submission("delete", platform, ARGUMENTS)
    first, again = (Cluster(platform).submit("delete", wanted) for _ in range(2))
    assert first[0] == "submitted"
    assert again == ("there already", first[1])
    (run,) = kubeflow.runs
    assert run["service_account"] == "deleter"
    assert run["runtime_config"] == {"parameters": ARGUMENTS, "pipeline_root": "s3://artifacts/kfp"}
    assert {version["package"] for version in kubeflow.versions} == {compiled("delete", platform)}


def test_other_arguments_are_another_run_of_the_same_version(kubeflow: Kubeflow, platform: PlatformSettings) -> None:
    for modality in ("audio", "visual"):
        wanted = submission("delete", platform, {**ARGUMENTS, "modalities": [modality]})
        assert Cluster(platform).submit("delete", wanted)[0] == "submitted"
    assert len(kubeflow.runs) == 2
    assert len({run["pipeline_version_reference"]["pipeline_version_id"] for run in kubeflow.runs}) == 1


def test_a_failed_run_may_be_submitted_again(kubeflow: Kubeflow, platform: PlatformSettings) -> None:
    wanted = submission("delete", platform, ARGUMENTS)
    Cluster(platform).submit("delete", wanted)
    kubeflow.runs[0]["state"] = "FAILED"
    assert Cluster(platform).submit("delete", wanted)[0] == "submitted"
    assert len(kubeflow.runs) == 2


def test_a_schedule_is_created_once_then_updated_in_place(kubeflow: Kubeflow, platform: PlatformSettings) -> None:
    cluster = Cluster(platform)
    assert cluster.schedule("delete", nightly(platform))[0] == "created"
    assert cluster.schedule("delete", nightly(platform))[0] == "unchanged"
    assert cluster.schedule("delete", nightly(platform, "0 0 4 * * *"))[0] == "updated"
    (job,) = kubeflow.recurring
    assert job["trigger"]["cron_schedule"]["cron"] == "0 0 4 * * *"
    assert (job["display_name"], job["max_concurrency"], job["no_catchup"]) == ("mbd-delete", 1, True)


def test_retraining_is_scheduled_by_one_command(kubeflow: Kubeflow) -> None:
    host = f"platform.kubeflow_host={kubeflow.url}"
    call = ["pipeline", "schedule", "train", "--cron", "0 3 1 * *", "--set", host, "--set", "certificate.model=voices"]
    outcomes = [json.loads(CliRunner().invoke(group, [*call, "--json"]).stdout)["outcome"] for _ in range(2)]
    assert outcomes == ["created", "unchanged"]
    (job,) = kubeflow.recurring
    assert (job["display_name"], job["trigger"]["cron_schedule"]["cron"]) == ("mbd-train", "0 0 3 1 * *")
    given = job["runtime_config"]["parameters"]
    assert (given.keys(), given["model"]) == ({"params", "model"}, "voices")
    assert read_params(given["params"]).certificate.model == "voices"


def test_a_schedule_without_a_service_account_is_recognised(kubeflow: Kubeflow) -> None:
    platform = PlatformSettings(kubeflow_host=kubeflow.url)
    assert Cluster(platform).schedule("delete", nightly(platform))[0] == "created"
    assert kubeflow.recurring[0]["service_account"] == "pipeline-runner"
    assert Cluster(platform).schedule("delete", nightly(platform))[0] == "unchanged"


def test_duplicates_that_others_made_become_one(kubeflow: Kubeflow, platform: PlatformSettings) -> None:
    cluster = Cluster(platform)
    cluster.schedule("delete", nightly(platform))
    for number in range(4):
        kubeflow.new(
            kubeflow.recurring, "recurring_run_id", **{**kubeflow.recurring[0], "recurring_run_id": f"x{number}"}
        )
    assert cluster.schedule("delete", nightly(platform))[0] == "updated"
    assert len(kubeflow.recurring) == 1


def test_a_schedule_can_be_disabled_and_comes_back_enabled(kubeflow: Kubeflow, platform: PlatformSettings) -> None:
    cluster = Cluster(platform)
    first = cluster.schedule("delete", nightly(platform)).identifier
    assert cluster.disable("mbd-delete") == [first]
    assert cluster.status()["schedules"][0]["state"] == "DISABLED"
    assert cluster.schedule("delete", nightly(platform))[0] == "updated"
    assert cluster.status()["schedules"][0]["state"] == "ENABLED"
    with refused(UsageError, key="--title"):
        cluster.disable("mbd-nothing")


def test_a_schedule_with_a_run_under_way_is_disabled_and_removed_after_its_end(
    kubeflow: Kubeflow, platform: PlatformSettings
) -> None:
    cluster = Cluster(platform)
    first = cluster.schedule("delete", nightly(platform)).identifier
    experiment = kubeflow.recurring[0]["experiment_id"]
    run = kubeflow.new(
        *(kubeflow.runs, "run_id"),
        **{"display_name": "nightly", "recurring_run_id": first, "state": "RUNNING", "experiment_id": experiment},
    )
    later = nightly(platform, "0 0 4 * * *")
    replaced = cluster.schedule("delete", later)
    assert (replaced.outcome, replaced.unfinished) == ("updated", ["nightly"])
    assert {job["recurring_run_id"]: job.get("status") for job in kubeflow.recurring} == {
        first: "DISABLED",
        replaced.identifier: None,
    }
    assert cluster.schedule("delete", later) == ("unchanged", replaced.identifier, ["nightly"])
    run["state"] = "SUCCEEDED"
    assert cluster.schedule("delete", later) == ("unchanged", replaced.identifier, [])
    assert [job["recurring_run_id"] for job in kubeflow.recurring] == [replaced.identifier]


WORKFLOW = "mbd-delete-x7k2p"
EXECUTOR = 0xA9F37ED7  # the published FNV-1a of "foo"


def node(name: str, state: str = "SUCCEEDED", *children: int) -> dict[str, Any]:
    """Return a node of a workflow as Kubeflow 2.17 describes it: its children are nodes, and may be its successors."""
    start = f"2026-01-01T00:00:{len(name):02}Z"
    found = [{"pod_name": f"{WORKFLOW}-{child}"} for child in children]
    return {"display_name": name, "state": state, "start_time": start, "child_tasks": found}


def failed_run(kubeflow: Kubeflow, platform: PlatformSettings, *nodes: dict[str, Any]) -> dict[str, Any]:
    """Submit a run that has failed in `nodes`, after a task `attack`."""
    Cluster(platform).submit("delete", submission("delete", platform, ARGUMENTS, title="forget audio"))
    (run,) = kubeflow.runs
    before = [node(WORKFLOW, "FAILED", 1), node("root-driver", "SUCCEEDED", 2), node("root", "FAILED", 3)]
    before += [node("attack-driver", "SUCCEEDED", 4), node("attack", "SUCCEEDED", 5), node("executor", "SUCCEEDED", 6)]
    run |= {"state": "FAILED", "run_details": {"task_details": [*before, *nodes]}}
    return run


def test_a_hash_is_continued() -> None:
    assert continued_hash(EXECUTOR, "bar") == 0xBF9CF968  # the published FNV-1a of "foobar"


def test_the_status_of_a_run_names_the_failed_task_its_reason_and_its_log(
    kubeflow: Kubeflow, platform: PlatformSettings
) -> None:
    failed = node("certify-driver", "SUCCEEDED", 7), node("certify", "FAILED", EXECUTOR), node("executor", "FAILED")
    run = failed_run(kubeflow, platform, *failed)
    reason = "exit code 3 (refused by the gate or the budget): white box found audio"
    log = f"white box found audio\n{reason}\nfailed to execute component: exit status 3"
    pod = f"{WORKFLOW}-system-container-impl-{EXECUTOR}"
    kubeflow.logs[pod] = log
    host = ("--set", f"platform.kubeflow_host={kubeflow.url}")
    printed = CliRunner().invoke(group, ["pipeline", "status", "forget audio", "--logs", *host])
    assert printed.exit_code == 0
    assert printed.stdout.splitlines() == [
        "forget audio: FAILED",
        "  attack  SUCCEEDED",
        "  certify  FAILED",
        f"failed: certify: {reason}",
        f"  its log: kubectl logs --namespace kubeflow --container main {pod}",
        *log.splitlines(),
    ]
    assert CliRunner().invoke(group, ["pipeline", "status", run["run_id"], "--watch", *host]).exit_code == 1
    with refused(UsageError, key="RUN"):
        Cluster(platform).run("another")


def test_the_log_of_a_task_that_was_tried_again_is_that_of_its_last_attempt(
    kubeflow: Kubeflow, platform: PlatformSettings
) -> None:
    failed_run(kubeflow, platform, node("publish", "FAILED", EXECUTOR))
    pods = [f"{WORKFLOW}-retry-system-container-impl-{continued_hash(EXECUTOR, f'({number})')}" for number in range(2)]
    kubeflow.logs |= {pods[0]: "a lost pod", pods[1]: "killed"}
    (task,) = Cluster(platform).run("forget audio").failed
    assert (task.reason, task.pod) == ("killed", pods[1])


def test_of_a_driver_that_failed_the_status_says_how_to_find_its_log(
    kubeflow: Kubeflow, platform: PlatformSettings
) -> None:
    run = failed_run(kubeflow, platform, node("certify-driver", "FAILED"), node("certify", "SKIPPED", EXECUTOR))
    host = ("--set", f"platform.kubeflow_host={kubeflow.url}")
    printed = CliRunner().invoke(group, ["pipeline", "status", "forget audio", *host]).stdout
    assert "failed: certify-driver: its pod left no log that Kubeflow has" in printed
    assert f"--selector pipeline/runid={run['run_id']}" in printed


def test_a_dry_run_says_what_the_cluster_would_lack(kubeflow: Kubeflow) -> None:
    call = ["pipeline", "submit", "delete", "--modality", "audio", "--dry-run", "--json"]
    problems = json.loads(CliRunner().invoke(group, call).stdout)["problems"]
    assert [problem.split("=")[0].split(" ")[0] for problem in problems] == [
        "platform.image",
        "store.url",
        "platform.keys_secret",
        "platform.trust_config",
        "model",  # was not compared with the store, which has no log
    ]
    ready = (
        "platform.image=mbd@sha256:" + "0" * 64,
        "store.url=s3://bucket/store",
        "platform.keys_secret=keys",
        "platform.trust_config=trust",
    )
    settings = [part for setting in ready for part in ("--set", setting)]
    credentials, _ = json.loads(CliRunner().invoke(group, [*call, *settings]).stdout)["problems"]
    assert credentials.startswith("platform.secrets names no credentials")
    settings += ["--set", "platform.secrets={mbd-store: {AWS_ACCESS_KEY_ID: AWS_ACCESS_KEY_ID}}"]
    (problem,) = json.loads(CliRunner().invoke(group, [*call, *settings]).stdout)["problems"]
    assert problem.startswith("model and modalities were not compared with the store")
    weak = CliRunner().invoke(group, [*call, *settings, "--set", "attacks.tolerance=0.2"])
    assert isinstance(weak.exception, UsageError)
    assert weak.exception.key == "attacks.tolerance"


def test_status_lists_runs_and_schedules_over_all_pages(kubeflow: Kubeflow, platform: PlatformSettings) -> None:
    cluster = Cluster(platform)
    for number in range(5):
        cluster.submit("delete", submission("delete", platform, ARGUMENTS, title=f"run {number}"))
    cluster.schedule("delete", nightly(platform))
    status = cluster.status()
    assert {run["name"] for run in status["runs"]} == {f"run {number}" for number in range(5)}
    assert status["schedules"][0]["cron"] == "0 0 3 * * *"


def test_a_token_comes_from_the_environment(
    kubeflow: Kubeflow, platform: PlatformSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeflow.token = "right"
    with pytest.raises(ClusterError, match="401") as caught:
        Cluster(platform).status()
    assert KUBEFLOW_TOKEN in str(caught.value)
    monkeypatch.setenv(KUBEFLOW_TOKEN, "right")
    assert Cluster(platform).status() == {"runs": [], "schedules": []}


def test_the_error_of_a_failing_or_absent_server_names_its_url(kubeflow: Kubeflow, platform: PlatformSettings) -> None:
    kubeflow.failing = 500
    with pytest.raises(ClusterError, match="500") as caught:
        Cluster(platform).status()
    assert kubeflow.url in str(caught.value)
    nowhere = PlatformSettings(kubeflow_host="http://127.0.0.1:1")
    with pytest.raises(ClusterError, match="cannot be reached"):
        Cluster(nowhere).status()
    with refused(UsageError, key="platform.kubeflow_host"):
        Cluster(PlatformSettings())
