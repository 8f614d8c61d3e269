"""The walk of docs/kubeflow.md, as a script: from an empty namespace to a certificate."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.image import IMAGE
from tests.cluster.node import Cluster
from tests.cluster.objects import volume
from tests.cluster.tools import program
from tests.docs.blocks import CLUSTER, REPOSITORY, blocks
from tests.integration.servers.rgw import S3

pytestmark = pytest.mark.cluster
PAGE = REPOSITORY / "docs" / "kubeflow.md"


def test_a_reader_of_the_page_gets_from_an_empty_namespace_to_a_certificate(
    kubernetes: Cluster, s3: S3, pushgateway: str, quick: Path, tmp_path: Path
) -> None:
    s3.client().create_bucket(Bucket="walk")
    persistent, _ = volume("kubeflow", "mbd-state", kubernetes.folder / "volumes" / "walk")
    kubernetes.apply(persistent)  # what a storage class would make
    programs = [str(quick / "bin"), str(program("kubernetes", "kubectl").parent), os.environ["PATH"]]
    environment = {
        **s3.environment,
        "PATH": os.pathsep.join(programs),
        "HOME": str(tmp_path),
        "KUBECONFIG": str(kubernetes.kubeconfig),
        "STORE": "s3://walk",
        # names that lead there from pods and from here
        "S3_ENDPOINT": "http://s3.storage.svc.cluster.local:9000",
        "PUSHGATEWAY": "http://pushgateway.monitoring.svc.cluster.local:9091",
        "IMAGE": IMAGE,
        "OMP_NUM_THREADS": "1",
    }
    script = "\n".join(block.text for block in blocks(PAGE, CLUSTER))
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert "nothing failed" in done.stdout
    assert "VERIFIED" in done.stdout
