"""`mbd doctor --cluster` beside a `kubectl` that answers from a table; `tests/cluster` has a cluster."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mbd.cli import group
from mbd.deployment import cluster
from mbd.deployment.values import DeployValues, with_names
from mbd.doctor import CheckState, DoctorFinding
from mbd.errors import UsageError
from mbd.params import load_params

ROOT = "s3://artifacts/runs"
KUBECTL = f"""#!{sys.executable}
import json, sys
from pathlib import Path
words = " ".join(word for word in sys.argv[1:] if not word.startswith(("--namespace", "--request-timeout")))
with Path(__file__).with_name("asked").open("a") as log:
    print(words, file=log)
table = json.loads(Path(__file__).with_name("answers.json").read_text())
answer = next((answer for start, answer in table.items() if words.startswith(start)), None)
if answer is None:
    sys.exit("Error from server (NotFound): not found")
print(answer if isinstance(answer, str) else json.dumps(answer))
"""
DOCTOR = {"healthy": True, "checks": [{"name": "store", "state": "ok", "found": "can be listed", "to_do": None}]}
PROVIDERS = "s3: {default: {credentials: {fromEnv: true}}}"
SECRET = "s3: {default: {credentials: {secretRef: {secretName: mlpipeline, accessKeyKey: key}}}}"
CLUSTER: dict[str, Any] = {
    "get --raw=/version": {"gitVersion": "v1.34.4"},
    "get secret mbd-store": {"data": {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}},
    "get secret mbd-keys": {"data": {"signer.pem": "", "log.pem": "", "lineage.key": ""}},
    "get secret mbd-access": {"data": {"tokens.json": "", "request.key": ""}},
    "get configmap mbd-trust": {"data": {"trust.json": ""}},
    "get configmap mbd-params": {"data": {"params.yaml": ""}},
    "get persistentvolumeclaim mbd-state": {
        "spec": {"accessModes": ["ReadWriteMany"]},
        "status": {"phase": "Bound"},
    },
    "get serviceaccount pipeline-runner": {"metadata": {"name": "pipeline-runner"}},
    "get configmap kfp-launcher": {"data": {"defaultPipelineRoot": ROOT, "providers": PROVIDERS}},
    "auth can-i": "yes",
    "create": {},
    "get pod": {"status": {"phase": "Succeeded"}},
    "logs": f"warning: something on standard error\n{json.dumps(DOCTOR)}\na last line",
    "delete pod": "",
}
Check = Callable[..., dict[str, DoctorFinding]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Return what checks the cluster with some answers of kubectl instead of others; the findings by name."""
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def checked(**answers: object) -> dict[str, DoctorFinding]:
        table = CLUSTER | {name.replace("_", " "): answer for name, answer in answers.items()}
        (tmp_path / "answers.json").write_text(json.dumps(table))
        params = load_params(None, [*with_names(None, ()), f"platform.pipeline_root={ROOT}"])
        return {finding.name: finding for finding in cluster.check_cluster(DeployValues(), params)}

    return checked


def test_a_cluster_that_lacks_nothing_runs_doctor_in_a_pod_and_removes_it(check: Check, tmp_path: Path) -> None:
    findings = check()
    wrong = {name: each for name, each in findings.items() if each.state is not CheckState.OK}
    assert wrong.keys() == {"Kubeflow"}
    assert findings["pod: store"].found == "can be listed"
    assert (tmp_path / "asked").read_text().splitlines()[-1].startswith("delete pod mbd-doctor-")


@pytest.mark.parametrize(
    ("answers", "name", "state", "words"),
    [
        ({"get_secret_mbd-keys": None}, "secret mbd-keys", "failed", "NotFound"),
        ({"get_secret_mbd-keys": {"data": {"log.pem": ""}}}, "secret mbd-keys", "failed", "no signer.pem, lineage.key"),
        ({"get_configmap_mbd-trust": {}}, "config map mbd-trust", "failed", "it has no trust.json"),
        ({"get_persistentvolumeclaim_mbd-state": None}, "claim mbd-state", "failed", "NotFound"),
        (
            {"get_persistentvolumeclaim_mbd-state": {"spec": {"accessModes": ["ReadWriteOnce"]}}},
            "claim mbd-state",
            "failed",
            "its access modes are ReadWriteOnce, not ReadWriteMany",
        ),
        ({"get_serviceaccount_pipeline-runner": None}, "serviceaccount pipeline-runner", "failed", "NotFound"),
        ({"get_configmap_kfp-launcher": None}, "configmap kfp-launcher", "failed", "NotFound"),
        ({"get_configmap_kfp-launcher": {}}, "configmap kfp-launcher", "warning", f"no credentials for {ROOT}"),
        (
            {"get_configmap_kfp-launcher": {"data": {"providers": SECRET}}},
            "configmap kfp-launcher",
            "failed",
            "secret mlpipeline: Error from server (NotFound)",
        ),
        (
            {"auth_can-i": "no"},
            "rights of pipeline-runner",
            "warning",
            "may not create workflowtaskresults.argoproj.io",
        ),
        (
            {"get_pod": {"status": {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}}},
            "pod",
            "failed",
            "ImagePullBackOff",
        ),
        ({"create": None}, "pod", "failed", "NotFound"),
        ({"logs": "error: platform.nothing is not known"}, "pod", "failed", "platform.nothing is not known"),
        ({"logs": ""}, "pod", "failed", "has printed nothing"),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(
    check: Check, answers: dict[str, Any], name: str, state: str, words: str
) -> None:
    finding = check(**answers)[name]
    assert (finding.state, words in finding.found) == (state, True), finding
    assert bool(finding.to_do) == (state != "ok")


def test_without_a_cluster_that_answers_the_hint_says_so_and_nothing_else_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    kubeflow, kubernetes = cluster.check_cluster(DeployValues(), load_params(None))
    assert kubeflow.state is CheckState.NOT_CONFIGURED
    assert (kubernetes.name, kubernetes.state) == ("cluster", CheckState.FAILED)
    assert "kubectl" in (kubernetes.to_do or "")


def test_a_missing_values_file_is_named() -> None:
    done = CliRunner().invoke(group, ["doctor", "--cluster"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.file == Path("values.yaml")
