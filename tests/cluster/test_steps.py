"""Steps in pods: the bytes of the command line, two pods that train together, a ledger that outlives its pod."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from mbd.privacy.ledger import Ledger
from tests.cluster.image import IMAGE
from tests.cluster.node import Cluster
from tests.cluster.objects import namespace, pod, volume
from tests.digests import path_digest
from tests.integration.command import mbd
from tests.training.build import SMALL, joint_data
from tests.training.two_processes import run_by_two

pytestmark = pytest.mark.cluster

WHERE, STATE = "training", "/state"
TRAIN = ["train", "--features", "set", *(part for setting in SMALL for part in ("--set", setting))]


@pytest.fixture(scope="module")
def state(kubernetes: Cluster) -> Path:
    """The folder of a claim that has a FeatureSet in it, and that the pods work in."""
    folder = kubernetes.folder / "volumes" / WHERE
    kubernetes.apply(namespace(WHERE), *volume(WHERE, "state", folder))
    joint_data(folder / "set")
    return folder


def start(cluster: Cluster, name: str, command: list[str], environment: list[dict[str, Any]] | None = None) -> None:
    """Start `mbd` in a pod, in the folder of the claim."""
    script = f"cd {STATE} && exec mbd {shlex.join(command)}"
    container = {
        "image": IMAGE,
        "command": ["sh", "-c", script],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}, *(environment or [])],
        "volumeMounts": [{"name": "state", "mountPath": STATE}],
    }
    volumes = [{"name": "state", "persistentVolumeClaim": {"claimName": "state"}}]
    cluster.apply(pod(WHERE, name, container, volumes=volumes, securityContext={"fsGroup": 10001}))


def run(cluster: Cluster, name: str, command: list[str]) -> None:
    """Run `mbd` in a pod to a good end."""
    start(cluster, name, command)
    phase, output = cluster.ended(WHERE, name, 240)
    assert phase == "Succeeded", output


def test_training_in_a_pod_has_the_bytes_of_the_command_line(kubernetes: Cluster, state: Path, tmp_path: Path) -> None:
    run(kubernetes, "alone", [*TRAIN, "--out", "alone"])
    joint_data(tmp_path / "set")
    done = mbd(*TRAIN, "--out", "alone", environment={"OMP_NUM_THREADS": "1"}, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert path_digest(state / "alone") == path_digest(tmp_path / "alone")
    assert {path.stat().st_uid for path in (state / "alone").rglob("*")} == {10001}


def test_two_pods_train_together_with_the_bytes_of_two_processes(
    kubernetes: Cluster, state: Path, tmp_path: Path, quick: Path
) -> None:
    """The environment is the one that torchrun or Kubeflow's Trainer gives to each process."""
    common = [{"name": "WORLD_SIZE", "value": "2"}, {"name": "MASTER_PORT", "value": "29500"}]
    own = {"name": "MASTER_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    start(kubernetes, "rank-0", [*TRAIN, "--out", "two"], [*common, own, {"name": "RANK", "value": "0"}])

    def address() -> str:
        return str(kubernetes.get("pod", "rank-0", f"--namespace={WHERE}")["status"].get("podIP", ""))

    kubernetes.until(lambda: bool(address()), "the first pod has an address")
    first = {"name": "MASTER_ADDR", "value": address()}
    start(kubernetes, "rank-1", [*TRAIN, "--out", "two"], [*common, first, {"name": "RANK", "value": "1"}])
    ends = [kubernetes.ended(WHERE, name, 240) for name in ("rank-0", "rank-1")]
    assert [phase for phase, _ in ends] == ["Succeeded", "Succeeded"], ends
    joint_data(tmp_path / "set")
    run_by_two(quick, tmp_path, *TRAIN, "--out", "two")
    assert path_digest(state / "two") == path_digest(tmp_path / "two")


def test_a_ledger_outlives_the_pod_that_was_charged(kubernetes: Cluster, state: Path) -> None:
    settings = ["deletion.method=certified", "deletion.certified.finetune_epochs=1", "deletion.ledgers=ledgers"]
    common = ["--features", "set", *(part for setting in [*SMALL, *settings] for part in ("--set", setting))]
    run(kubernetes, "before", [*TRAIN, "--out", "model"])
    run(kubernetes, "first", ["delete", *common, "--model", "model", "--modality", "audio", "--out", "first"])
    run(kubernetes, "second", ["delete", *common, "--model", "model", "--modality", "visual", "--out", "second"])
    (file,) = (state / "ledgers").glob("*.jsonl")
    charges = [entry for entry in Ledger(file, file.stem).entries if entry.event == "charge"]
    assert [charge.modalities for charge in charges] == [("audio",), ("visual",)]
    assert file.stat().st_uid == 10001
