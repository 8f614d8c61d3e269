"""The walk of docs/kubeflow.md and what may go wrong, on the Kubeflow that MBD_KFP_HOST names (`make test-kubeflow`).

KUBECONFIG leads to its cluster, NAMESPACE is that of its runs; STORE, S3_ENDPOINT, PUSHGATEWAY, IMAGE and the variables
of AWS are those of the walk. The store has to be empty, and reached by the same address from pods and from here.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import CLUSTER, KUBEFLOW, REPOSITORY, blocks
from tests.pipelines.small import SETTINGS, UNCUT

NEEDED = ("MBD_KFP_HOST", "STORE", "S3_ENDPOINT", "PUSHGATEWAY", "IMAGE")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(name in os.environ for name in NEEDED), reason=f"there is no Kubeflow: set {', '.join(NEEDED)}"
    ),
]
PARTS = blocks(REPOSITORY / "docs" / "kubeflow.md", CLUSTER, KUBEFLOW)
METHODS = {
    "exact": ("deletion.method=exact",),
    "surgery": (*SETTINGS, "model.backbone=joint", "deletion.method=surgery"),
    "certified": (*SETTINGS, "model.backbone=joint", "deletion.method=certified"),
}
REMOVAL = 2  # blocks at the end of the walk that remove what it made


def bash(folder: Path, script: str, *, succeeds: bool = True) -> str:
    """Run a script in the folder of the walk; return what it prints."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"NAMESPACE=${{NAMESPACE:-kubeflow}}\n{script}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=7200,
    )
    assert (done.returncode == 0) == succeeds, done.stdout[-6000:]
    return done.stdout


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has followed the walk to its end, before the removal."""
    folder = tmp_path_factory.mktemp("walk")
    bash(folder, "\n".join(block.text for block in PARTS[:-REMOVAL]))
    return folder


def test_the_walk_ends_with_certificates_and_a_complete_purge(walked: Path) -> None:
    shown = json.loads(bash(walked, "mbd models show sentiment --trust build/keys/trust.json --json"))
    assert shown["revoked"] == ["audio", "visual"]
    assert '"state": "SUCCEEDED"' in bash(walked, "mbd pipeline status visual --json")


def options(*settings: str) -> str:
    """Return settings as options for a shell."""
    return " ".join(f"--set '{setting}'" for setting in settings)


def ran(walked: Path, pipeline: str, title: str, *settings: str, more: str = "") -> None:
    """Run a pipeline to a good end."""
    bash(walked, f"mbd pipeline submit {pipeline} --title {title} {more} {options(*settings)}")
    bash(walked, f"mbd pipeline status {title} --watch --logs")


def of_run(title: str) -> str:
    """Return the options of kubectl for the pods of a run's tasks; Kubeflow's own pods have other names."""
    identifier = "python -c 'import json, sys; print(json.load(sys.stdin)[\"identifier\"])'"
    return f"--namespace $NAMESPACE --selector pipeline/runid=$(mbd pipeline status {title} --json | {identifier})"


@pytest.mark.parametrize("method", METHODS)
def test_a_model_of_its_own_is_trained_deleted_from_and_audited_again(walked: Path, method: str) -> None:
    settings = *METHODS[method], f"certificate.model={method}"
    ran(walked, "train", f"{method}-train", *settings)
    ran(walked, "delete", f"{method}-delete", *settings, more="--modality audio")
    ran(walked, "reaudit", f"{method}-reaudit", *settings, more="--modality audio")


def test_with_encrypted_artifacts_a_purge_is_complete_too(walked: Path) -> None:
    named = "platform.data_keys_claim=mbd-data-keys", "platform.wrapper_secret=mbd-wrapper"
    bash(walked, f"mbd shred keys; mbd deploy render {options(*named)} | kubectl apply --filename -")
    bash(walked, f"mbd doctor --cluster {options(*named)} || true")  # its pod gives the new volume to our user
    settings = *named, "shredding.enabled=true", "purge.keys=true", "certificate.model=encrypted"
    ran(walked, "train", "encrypted-train", *settings)
    ran(walked, "delete", "encrypted-delete", *settings, more="--modality audio --argument purge_copies=true")


def test_a_lost_pod_is_replaced(walked: Path) -> None:
    bash(walked, "mbd pipeline submit train --title lost --set certificate.model=lost")
    wait = f"kubectl get pods {of_run('lost')} --field-selector status.phase=Running --output name"
    lose = "kubectl delete --namespace $NAMESPACE $POD --grace-period 0 --force"
    found = f'POD=$({wait} | grep container-impl | head -1) && [ -n "$POD" ]'
    bash(walked, f"until {found}; do sleep 1; done; {lose}; mbd pipeline status lost --watch --logs")


@pytest.mark.skipif(
    not {"STORE_STOP", "STORE_START"} <= os.environ.keys(),
    reason="STORE_STOP and STORE_START are not set: the commands that stop and start the S3 server",
)
def test_a_store_that_is_away_for_a_minute_is_waited_for(walked: Path) -> None:
    bash(walked, "mbd pipeline submit train --title away --set certificate.model=away")
    bash(walked, "sleep 60; $STORE_STOP; sleep 60; $STORE_START; mbd pipeline status away --watch --logs")


def test_a_sweep_again_is_answered_from_the_cache_until_it_deletes(walked: Path) -> None:
    more = "--modality audio --argument 'settings=[\"deletion.epsilon=0.5\"]'"
    for title in ("sweep-1", "sweep-2"):
        ran(walked, "sweep", title, more=more)
    count = "kubectl get pods {} --output name | grep --count container-impl"
    first, again = (int(bash(walked, count.format(of_run(title)))) for title in ("sweep-1", "sweep-2"))
    assert again == first - 3  # features, train and reference


@pytest.mark.skipif(
    "MEDIA" not in os.environ, reason="MEDIA is not set: features.source of raw media that pods can read"
)
def test_media_are_extracted_side_by_side_with_the_bytes_of_one_task(walked: Path) -> None:
    shown = []
    for tasks in (1, 3):
        settings = [f"certificate.model=media-{tasks}", f"features.source={os.environ['MEDIA']}"]
        settings += [f"platform.extraction_tasks={tasks}", f"features.source.media.cache=build/ledgers/media-{tasks}"]
        ran(walked, "train", f"media-{tasks}", *settings)
        known = bash(walked, f"mbd models show media-{tasks} --trust build/keys/trust.json --json")
        shown.append(json.loads(known)["current"]["weights"])
    assert shown[0] == shown[1]


def test_a_refusal_fails_the_run_in_certify_once_and_says_why(walked: Path) -> None:
    chosen = [*SETTINGS, "model.backbone=joint", "deletion.method=surgery", UNCUT, "certificate.model=refused"]
    ran(walked, "train", "refused-train", *chosen)
    bash(walked, f"mbd pipeline submit delete --modality audio --title refused {options(*chosen)}")
    output = bash(walked, "mbd pipeline status refused --watch --logs", succeeds=False)
    assert "failed: certify" in output
    assert "exit code 3 (refused" in output


def test_a_schedule_fires_and_is_replaced_without_ending_its_run(walked: Path) -> None:
    command = "mbd pipeline schedule reaudit --modality audio --title minutely"
    bash(walked, f"{command} --cron '* * * * *'; sleep 90")
    output = bash(walked, f"{command} --cron '0 3 * * 1'")
    assert "the schedule before is disabled, and stays until its run has ended" in output
    (run,) = set(output.rpartition("has ended: ")[2].splitlines()[0].split(", "))
    bash(walked, f"mbd pipeline status '{run}' --watch")
    assert "updated" not in bash(walked, f"{command} --cron '0 3 * * 1'; mbd pipeline schedule reaudit --disable")


def test_the_removal_leaves_nothing_but_the_store(walked: Path) -> None:
    bash(walked, "\n".join(block.text for block in PARTS[-REMOVAL:]))
    assert bash(walked, "mbd log check --store $STORE --trust build/keys/trust.json")
