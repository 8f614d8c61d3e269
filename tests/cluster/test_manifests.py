"""`deploy/kustomize` on a real Kubernetes: its overlays are accepted, and what they describe does its work in pods."""

import re
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mbd.certificate.keys import make_keys
from mbd.params import Params, load_params, to_yaml
from mbd.requests.request_store import RequestStore
from mbd.steps import features, train, verify
from mbd.storage import open_store
from tests.certificate.authority import key_settings
from tests.cluster.node import ADDRESS, NODE, Cluster
from tests.cluster.objects import config_map, namespace, secret, volume
from tests.integration.servers.rgw import S3
from tests.requests.small import SETTINGS

pytestmark = pytest.mark.cluster

DEPLOY = Path(__file__).parents[2] / "deploy"
WHERE = {"dev": "mbd-dev", "production": "missing-by-design", "gpu": "missing-by-design"}
ACCOUNT = "system:serviceaccount:mbd-dev:missing-by-design"
BUCKET = "missing-by-design"


@dataclass(frozen=True)
class Service:
    """The overlay `dev`, applied, with everything that it names; and the same store as seen from outside."""

    cluster: Cluster
    params: Params
    state: Path

    def job(self, cron_job: str, name: str, seconds: float = 300) -> str:
        """Run what a CronJob describes now; return what it printed once it is complete."""
        within = "--namespace=mbd-dev"
        self.cluster.kubectl("create", "job", f"--from=cronjob/{cron_job}", name, within)

        def conditions() -> set[str]:
            status = self.cluster.get("job", name, within)["status"]
            return {each["type"] for each in status.get("conditions", []) if each["status"] == "True"}

        self.cluster.until(lambda: bool(conditions() & {"Complete", "Failed"}), f"job {name} has ended", seconds)
        output = self.cluster.kubectl("logs", f"job/{name}", "--all-containers", within)
        assert "Complete" in conditions(), output
        return output

    def metrics(self) -> str:
        """Return the page of the exporter's pod."""
        (pod,) = self.cluster.get("pods", "--namespace=mbd-dev", "--selector=app.kubernetes.io/name=mbd-exporter")[
            "items"
        ]
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9890/metrics", timeout=10) as page:
            return str(page.read().decode())


def overlay(name: str, folder: Path, digest: str = "") -> Path:
    """Return a copy of an overlay whose images have the digest of an image that there is."""
    shutil.copytree(DEPLOY, folder / "deploy")
    for file in (folder / "deploy/kustomize/overlays").glob("*/kustomization.yaml"):
        file.write_text(re.sub("sha256:0{64}", digest or "sha256:" + "0" * 64, file.read_text()))
    return folder / "deploy" / "kustomize" / "overlays" / name


def apply(cluster: Cluster, folder: Path) -> None:
    """Apply an overlay; a field that the API server does not know is an error."""
    rendered = cluster.kubectl("kustomize", folder)
    cluster.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", given=rendered)


@pytest.fixture(scope="module")
def service(
    kubernetes: Cluster, s3: S3, pushgateway: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    folder, volumes = tmp_path_factory.mktemp("service"), kubernetes.folder / "volumes"
    make_keys(folder / "keys", "signer")
    chosen = overlay("dev", folder)
    inside = load_params(chosen / "params.yaml", SETTINGS)
    (chosen / "params.yaml").write_text(to_yaml(inside))
    outside = load_params(
        chosen / "params.yaml", [f"store.endpoint=http://{ADDRESS}:9000", "monitoring.mode=none", *key_settings(folder)]
    )
    s3.client().create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
    features.run(outside, folder / "features")
    train.run(outside, folder / "features", volumes / "model" / "model")
    keys = {name: (folder / "keys" / name).read_text() for name in ("signer.pem", "log.pem", "trust.json")}
    kubernetes.apply(
        namespace("mbd-dev"),
        secret("mbd-dev", "mbd-store", s3.environment),
        secret("mbd-dev", "mbd-keys", {name: text for name, text in keys.items() if name.endswith(".pem")}),
        config_map("mbd-dev", "mbd-trust", {"trust.json": keys["trust.json"]}),
        *volume("mbd-dev", "mbd-model", volumes / "model"),
        *volume("mbd-dev", "mbd-state", volumes / "state"),
    )
    apply(kubernetes, chosen)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        yield Service(kubernetes, outside, volumes / "state")


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
    requests = RequestStore(open_store(service.params.store.url, service.params.store))
    asked = requests.submit(service.params.certificate.model, ["audio"], due_days=30, token="t-1")
    service.job("mbd-requests", "requests-1")
    (request,) = [each for each in requests.all() if each.id == asked.id]
    assert request.state == "certified"
    assert verify.run(service.params, f"{service.params.store.url}/certificates/{request.certificate}").verified
    assert [path for path in service.state.rglob("*") if path.is_file()], "what opens the commitments outlives the pod"
    with urllib.request.urlopen(f"{pushgateway}/metrics", timeout=10) as page:
        assert 'step="request-run"' in page.read().decode()


def test_a_second_run_finds_nothing_to_do(service: Service) -> None:
    before = {entry.name for entry in open_store(service.params.store.url, service.params.store).list("certificates/")}
    service.job("mbd-requests", "requests-2")
    after = {entry.name for entry in open_store(service.params.store.url, service.params.store).list("certificates/")}
    assert before == after != set()


def test_the_search_for_purged_files_runs(service: Service) -> None:
    service.job("mbd-purge-scan", "purge-scan-1")


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
    apply(kubernetes, overlay("gpu", tmp_path, digest))
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
