"""`deploy/kustomize` on a real Kubernetes: its overlays are accepted, and what they describe does its work in pods."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from mbd.steps import verify
from tests.cluster.node import NODE, Cluster
from tests.cluster.objects import config_map, namespace, secret, volume
from tests.cluster.service import DEPLOY, Service, apply, deployed, overlay
from tests.integration.servers.rgw import S3

pytestmark = pytest.mark.cluster

WHERE = {"dev": "mbd-dev", "production": "missing-by-design", "gpu": "missing-by-design"}
ACCOUNT = "system:serviceaccount:mbd-dev:missing-by-design"


@pytest.fixture(scope="module")
def service(
    kubernetes: Cluster, s3: S3, pushgateway: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    with deployed(kubernetes, s3, tmp_path_factory.mktemp("service"), "mbd-dev") as found:
        yield found


@pytest.mark.parametrize("name", ["dev", "production", "gpu"])
def test_the_api_server_accepts_every_overlay(kubernetes: Cluster, name: str) -> None:
    kubernetes.apply(namespace(WHERE[name]))
    rendered = kubernetes.kubectl("kustomize", DEPLOY / "kustomize" / "overlays" / name)
    options = ["--server-side", "--validate=strict", "--dry-run=server", "--filename=-"]
    accepted = kubernetes.kubectl("apply", *options, given=rendered)
    assert {line.split("/")[0] for line in accepted.splitlines()} >= {
        "deployment.apps",
        "cronjob.batch",
        "networkpolicy.networking.k8s.io",
        "serviceaccount",
    }


def test_an_unknown_field_would_be_refused(kubernetes: Cluster) -> None:
    given = '{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "replicas": 1}'
    done = kubernetes.try_kubectl("apply", "--server-side", "--validate=strict", "--filename=-", given=given)
    assert done.returncode != 0
    assert "replicas" in done.stderr


def test_the_exporter_is_ready_and_serves_what_the_store_holds(service: Service) -> None:
    service.cluster.kubectl("rollout", "status", "deployment/mbd-exporter", "--namespace=mbd-dev", seconds=180)
    assert "mbd_" in service.metrics()


def test_the_service_account_has_no_rights_and_no_token(service: Service) -> None:
    for verb, kind in (("get", "secrets"), ("list", "pods"), ("create", "pods"), ("get", "configmaps")):
        done = service.cluster.try_kubectl("auth", "can-i", verb, kind, "--namespace=mbd-dev", f"--as={ACCOUNT}")
        assert done.stdout.strip() == "no", (verb, kind)
    inside = ["exec", "deployment/mbd-exporter", "--namespace=mbd-dev", "--", "ls", "/var/run/secrets"]
    assert service.cluster.try_kubectl(*inside).returncode != 0


def test_the_request_worker_carries_out_a_request_and_the_certificate_verifies_outside(
    service: Service, pushgateway: str
) -> None:
    asked = service.requests.submit(service.params.certificate.model, ["audio"], due_days=30)
    service.run("mbd-requests", "requests-1")
    request = service.requests.get(asked.id)
    assert request.state == "certified"
    assert service.certificates() == {request.certificate}
    place = f"{service.params.store.url}/certificates/{request.certificate}"
    assert verify.run(service.params, place, trust=Path(service.params.certificate.trust)).verified
    assert [path for path in service.state.rglob("*") if path.is_file()], "what opens the commitments outlives the pod"
    with urllib.request.urlopen(f"{pushgateway}/metrics", timeout=10) as page:
        assert 'step="request-run"' in page.read().decode()


def test_a_second_run_finds_nothing_to_do(service: Service) -> None:
    before = service.certificates()
    service.run("mbd-requests", "requests-2")
    assert service.certificates() == before != set()


def test_the_search_for_purged_files_runs(service: Service) -> None:
    service.run("mbd-purge-scan", "purge-scan-1")


def test_the_gpu_overlay_waits_for_a_gpu_and_starts_where_one_is_advertised(
    kubernetes: Cluster, digest: str, tmp_path: Path
) -> None:
    within = "--namespace=missing-by-design"
    for name in ("missing-by-design", "missing-by-design-gpu"):
        kubernetes.tag_image("docker.io/library/missing-by-design:cpu", f"registry.example.org/{name}@{digest}")
    keys = {"signer.pem": "none", "log.pem": "none"}
    kubernetes.apply(
        namespace("missing-by-design"),
        secret("missing-by-design", "mbd-store", {"AWS_ACCESS_KEY_ID": "none"}),
        secret("missing-by-design", "mbd-keys", keys),
        config_map("missing-by-design", "mbd-trust", {"trust.json": "{}"}),
        *volume("missing-by-design", "mbd-model", kubernetes.folder / "volumes" / "gpu-model"),
        *volume("missing-by-design", "mbd-state", kubernetes.folder / "volumes" / "gpu-state"),
    )
    apply(kubernetes, overlay("gpu", tmp_path, {"sha256:0{64}": digest}))
    kubernetes.kubectl("create", "job", "--from=cronjob/mbd-requests", "gpu", within)

    def scheduled() -> dict[str, str]:
        pods = kubernetes.get("pods", within, "--selector=job-name=gpu")["items"]
        conditions = [each for pod in pods for each in pod["status"].get("conditions", [])]
        return {each["status"]: each.get("message", "") for each in conditions if each["type"] == "PodScheduled"}

    kubernetes.until(lambda: "False" in scheduled(), "the pod waits")
    kubernetes.kubectl("label", "node", NODE, "nvidia.com/gpu.present=true")
    kubernetes.kubectl("taint", "node", NODE, "nvidia.com/gpu=present:NoSchedule")
    kubernetes.until(lambda: "Insufficient nvidia.com/gpu" in scheduled().get("False", ""), "only the GPU is missing")
    patch = '[{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "1"}]'
    kubernetes.kubectl("patch", "node", NODE, "--subresource=status", "--type=json", f"--patch={patch}")
    kubernetes.until(lambda: "True" in scheduled(), "the pod has a node")

    def started() -> bool:
        (pod,) = kubernetes.get("pods", within, "--selector=job-name=gpu")["items"]
        states = [each["state"] for each in pod["status"].get("initContainerStatuses", [])]
        return any("running" in state or "terminated" in state for state in states)

    kubernetes.until(started, "its first container has started")
    kubernetes.kubectl("delete", "job", "gpu", within)
    kubernetes.kubectl("taint", "node", NODE, "nvidia.com/gpu-")


@pytest.fixture(scope="module")
def digest(kubernetes: Cluster) -> str:
    """The digest of our image on the node."""
    return kubernetes.image_digest("docker.io/library/missing-by-design:cpu")
