"""Pods of our image with what our tasks ask for: its user, volumes and secrets below the working folder, no fsGroup."""

from itertools import count
from pathlib import Path

import pytest

from mbd.params import load_params
from tests.cluster.image import IMAGE
from tests.cluster.node import Cluster
from tests.cluster.objects import Object, namespace, pod, secret, volume

pytestmark = pytest.mark.cluster

WHERE = "steps"
# `pipelines.placement.NON_ROOT`, and the rest of Kubernetes' profile "restricted".
CONTEXT = {
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_numbers = count()


@pytest.fixture(scope="module")
def steps(kubernetes: Cluster) -> Cluster:
    kubernetes.apply(namespace(WHERE))
    return kubernetes


def ran(
    cluster: Cluster, script: str, *, mounts: dict[str, Object] | None = None, read_only: bool = False, **spec: object
) -> tuple[str, str]:
    """Run a shell script in our image with volumes ({path: volume}); return the pod's phase and its output."""
    name = f"script-{next(_numbers)}"
    volumes = [{"name": f"volume-{number}", **each} for number, each in enumerate((mounts or {}).values())]
    container = {
        "image": IMAGE,
        "command": ["sh", "-c", script],
        "securityContext": {**CONTEXT, "readOnlyRootFilesystem": read_only},
        "volumeMounts": [{"name": f"volume-{number}", "mountPath": path} for number, path in enumerate(mounts or {})],
    }
    cluster.apply(pod(WHERE, name, container, volumes=volumes, **spec))
    return cluster.ended(WHERE, name)


def fresh_claim(cluster: Cluster, name: str) -> Object:
    cluster.apply(*volume(WHERE, name, cluster.folder / "volumes" / name))
    return {"persistentVolumeClaim": {"claimName": name}}


def test_the_image_runs_as_its_user_without_a_token(steps: Cluster) -> None:
    phase, output = ran(steps, "id -u && mbd --version && ls /var/run/secrets 2> /dev/null; pwd")
    assert (phase, output.split()[0], output.split()[-1]) == ("Succeeded", "10001", "/workspace")
    assert "kubernetes.io" not in output


def test_an_exit_code_reaches_the_pods_status(steps: Cluster) -> None:
    phase, _ = ran(steps, "mbd features --set features.source.kind=npz --set features.source.path=none.npz --out set")
    (status,) = steps.get("pod", f"script-{next(_numbers) - 1}", f"--namespace={WHERE}")["status"]["containerStatuses"]
    assert (phase, status["state"]["terminated"]["exitCode"]) == ("Failed", 5)


def test_the_meaning_of_a_tasks_end_is_the_message_of_its_container_and_its_files_are_its_users_alone(
    steps: Cluster,
) -> None:
    script = """umask 0 && cat > /tmp/task.py << END
from pathlib import Path
from mbd.errors import GateRefusedError
from mbd.kubeflow.common import task

@task
def certify() -> None:
    Path("/tmp/ledger").write_text("spent")
    raise GateRefusedError("white box found audio")

certify()
END
python /tmp/task.py; code=$?; stat --format %a /tmp/ledger; exit $code"""
    phase, output = ran(steps, script)
    (status,) = steps.get("pod", f"script-{next(_numbers) - 1}", f"--namespace={WHERE}")["status"]["containerStatuses"]
    ended, said = (
        status["state"]["terminated"],
        "exit code 3 (refused by the gate or the budget): white box found audio",
    )
    assert (phase, ended["exitCode"], ended["message"]) == ("Failed", 3, said)
    *log, mode = output.splitlines()
    assert (log[-1].endswith(said), mode) == (True, "600")


def test_a_fresh_volume_is_written_to_only_with_an_fs_group(steps: Cluster) -> None:
    state = load_params(None).platform.state_path
    claim = fresh_claim(steps, "fresh")
    phase, output = ran(steps, f"touch {state}/ledger", mounts={state: claim})
    assert phase == "Failed" and "Permission denied" in output
    assert ran(steps, f"touch {state}/ledger", mounts={state: claim}, securityContext={"fsGroup": 10001}) == (
        "Succeeded",
        "",
    )


def test_what_is_written_to_a_volume_is_there_for_the_next_pod(steps: Cluster) -> None:
    claim, with_group = fresh_claim(steps, "kept"), {"fsGroup": 10001}
    assert ran(steps, "echo 1 > /state/spent", mounts={"/state": claim}, securityContext=with_group)[0] == "Succeeded"
    assert ran(steps, "cat /state/spent", mounts={"/state": claim}) == ("Succeeded", "1\n")


def test_the_working_folder_can_be_written_to_beside_what_is_mounted_below_it(steps: Cluster) -> None:
    platform = load_params(None).platform
    steps.apply(secret(WHERE, "keys", {"signer.pem": "a key"}))
    mounts = {platform.keys_path: {"secret": {"secretName": "keys"}}}
    phase, output = ran(steps, f"cat {platform.keys_path}/signer.pem && mkdir /workspace/build/work", mounts=mounts)
    assert (phase, output) == ("Succeeded", "a key")


def test_with_a_read_only_root_a_step_needs_nothing_but_a_folder_for_temporary_files(steps: Cluster) -> None:
    script = "cd /tmp && mbd features --set 'features.source.synthetic.rows={train: 60, valid: 20, test: 20}' --out set"
    phase, output = ran(steps, script, mounts={"/tmp": {"emptyDir": {}}}, read_only=True)
    assert phase == "Succeeded", output
    phase, output = ran(steps, script, read_only=True)
    assert phase == "Failed" and "Read-only file system" in output


def test_names_of_services_lead_to_the_node(steps: Cluster) -> None:
    script = "python -c 'import socket; print(socket.gethostbyname(\"s3\"))'"
    assert ran(steps, script) == ("Succeeded", "10.88.0.1\n")


def test_nothing_outside_can_be_reached(steps: Cluster, tmp_path: Path) -> None:
    script = "python -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 3)'"
    phase, output = ran(steps, script)
    assert phase == "Failed" and ("unreachable" in output or "timed out" in output)
