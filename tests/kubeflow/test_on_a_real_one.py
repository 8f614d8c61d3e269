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


@pytest.mark.parametrize(
    "settings", [["deletion.method=exact"], ["shredding.enabled=true", "platform.data_keys_claim=mbd-data-keys"]]
)
def test_a_model_of_its_own_is_trained_deleted_from_and_audited_again(walked: Path, settings: list[str]) -> None:
    if "shredding.enabled=true" in settings and "DATA_KEYS" not in os.environ:
        pytest.skip("there are no data keys on a claim: make mbd-data-keys by `mbd shred keys`, and set DATA_KEYS=1")
    name = f"model-{len(settings)}"
    chosen = " ".join(f"--set '{setting}'" for setting in [*settings, f"certificate.model={name}"])
    for pipeline, more in (("train", ""), ("delete", "--modality audio"), ("reaudit", "--modality audio")):
        bash(walked, f"mbd pipeline submit {pipeline} {more} --title {name}-{pipeline} {chosen}")
        bash(walked, f"mbd pipeline status {name}-{pipeline} --watch --logs")


def test_a_refusal_fails_the_run_in_certify_once_and_says_why(walked: Path) -> None:
    chosen = [*SETTINGS, "model.backbone=joint", "deletion.method=surgery", UNCUT, "certificate.model=refused"]
    settings = " ".join(f"--set '{setting}'" for setting in chosen)
    bash(walked, f"mbd pipeline submit train --title refused-train {settings}")
    bash(walked, "mbd pipeline status refused-train --watch")
    bash(walked, f"mbd pipeline submit delete --modality audio --title refused {settings}")
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
