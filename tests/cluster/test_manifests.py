"""What `mbd deploy render` prints on a real Kubernetes: it is accepted, gets ready, and does its work in pods."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mbd.deployment.cluster import check_cluster
from mbd.deployment.manifests import render
from mbd.deployment.values import DeployValues, with_names
from mbd.doctor import CheckState
from mbd.params import load_params
from mbd.steps import verify
from tests.cluster.node import NODE, Cluster
from tests.cluster.objects import namespace, volume
from tests.cluster.service import Service, deployed
from tests.cluster.tools import program
from tests.integration.servers.prometheus import prometheus_server
from tests.integration.servers.rgw import S3

pytestmark = pytest.mark.cluster
MODALITIES = {"text": 12, "audio": 6, "visual": 8}


@pytest.fixture(scope="module")
def service(
    kubernetes: Cluster, s3: S3, pushgateway: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    with deployed(kubernetes, s3, tmp_path_factory.mktemp("service"), "mbd-dev") as found:
        yield found


def infer(service: Service, url: str, *modalities: str) -> dict[str, object]:
    inputs = [
        {"name": each, "datatype": "FP32", "shape": [1, MODALITIES[each]], "data": [0.5] * MODALITIES[each]}
        for each in modalities
    ]
    return service.call(f"{url}/v2/models/{service.params.certificate.model}/infer", {"inputs": inputs})


def test_an_unknown_field_would_be_refused(kubernetes: Cluster) -> None:
    given = '{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "replicas": 1}'
    done = kubernetes.try_kubectl("apply", "--server-side", "--validate=strict", "--filename=-", given=given)
    assert done.returncode != 0
    assert "replicas" in done.stderr


def test_everything_gets_ready_and_no_pod_has_rights_or_a_token(service: Service) -> None:
    for name in ("mbd-exporter", "mbd-serve", "mbd-inference"):
        service.ready(name)
    account = f"--as=system:serviceaccount:{service.namespace}:missing-by-design"
    for verb, kind in (("get", "secrets"), ("list", "pods"), ("create", "pods"), ("get", "configmaps")):
        done = service.cluster.try_kubectl("auth", "can-i", verb, kind, service.within, account)
        assert done.stdout.strip() == "no", (verb, kind)
    inside = ["exec", "deployment/mbd-exporter", service.within, "--", "ls", "/var/run/secrets"]
    assert service.cluster.try_kubectl(*inside).returncode != 0


def test_a_request_over_http_ends_with_a_certificate_and_audio_is_refused_afterwards(
    service: Service, pushgateway: str, tmp_path: Path
) -> None:
    http, model = service.ready("mbd-serve"), service.ready("mbd-inference")
    assert "outputs" in infer(service, model, "text", "audio", "visual")
    document = {"model": service.params.certificate.model, "modalities": ["audio"], "requester": "case-17"}
    asked = service.call(f"{http}/requests", document)
    service.run("mbd-requests", "requests-1")
    request = service.call(f"{http}/requests/{asked['id']}")
    assert request["state"] == "certified", request
    assert service.certificates() == {request["certificate"]}
    place = f"{service.params.store.url}/certificates/{request['certificate']}"
    assert verify.run(service.params, place, trust=Path(service.params.certificate.trust)).verified
    assert [path for path in service.state.rglob("*") if path.is_file()], "what opens the commitments outlives the pod"

    def refused() -> bool:
        return bool(infer(service, model, *MODALITIES).get("certificate") == request["certificate"])

    service.cluster.until(refused, "the model server refuses audio", 60)
    assert infer(service, model, "text", "visual")["model_version"] == request["certificate"]
    with prometheus_server(tmp_path / "prometheus", service.ready("mbd-exporter"), pushgateway) as prometheus:
        assert prometheus.value('mbd_step_last_success_timestamp_seconds{step="request-run"}') > 0
        assert prometheus.value('sum(mbd_certificates{state="valid"})', 90) == 1


def test_the_doctor_finds_what_is_there_and_names_what_is_missing_with_the_command_that_makes_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(service.cluster.kubeconfig))
    monkeypatch.setenv("PATH", str(program("kubernetes", "kubectl").parent), prepend=":")
    found = {each.name: each for each in check_cluster(service.values, service.inside)}
    objects = {"secret mbd-store", "secret mbd-keys", "config map mbd-trust", "claim mbd-state"}
    in_a_pod = {f"pod: {name}" for name in ("store", "keys", "state", "Pushgateway")}
    assert {name for name, each in found.items() if each.state is CheckState.OK} >= objects | in_a_pod, found
    assert found["serviceaccount pipeline-runner"].state is CheckState.FAILED  # there is no Kubeflow here
    service.cluster.kubectl("delete", "secret", "mbd-keys", service.within)
    missing = {each.name: each for each in check_cluster(service.values, service.inside)}["secret mbd-keys"]
    assert missing.state is CheckState.FAILED
    assert missing.to_do and missing.to_do.startswith("kubectl create secret generic mbd-keys")
    service.cluster.kubectl(*missing.to_do.split()[1:])
    assert {each.name: each for each in check_cluster(service.values, service.inside)}[
        "secret mbd-keys"
    ].state is CheckState.OK


def test_a_second_run_finds_nothing_to_do(service: Service) -> None:
    before = service.certificates()
    service.run("mbd-requests", "requests-2")
    assert service.certificates() == before != set()


def test_the_search_for_purged_files_runs(service: Service) -> None:
    service.run("mbd-purge-scan", "purge-scan-1")


def test_the_worker_waits_for_a_gpu_and_starts_where_one_is_advertised(
    kubernetes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, within = "mbd-gpu", "--namespace=mbd-gpu"
    image = f"registry.example.org/mbd@{kubernetes.image_digest('docker.io/library/missing-by-design:cpu')}"
    kubernetes.tag_image("docker.io/library/missing-by-design:cpu", image)
    gpu = ["limit=1", "node_selector={nvidia.com/gpu.present: 'true'}", "tolerations=[{key: nvidia.com/gpu}]"]
    settings = [f"platform.gpu.{each}" for each in gpu]
    settings += [f"platform.image={image}", f"platform.gpu_image={image}"]
    params = load_params(None, with_names(None, settings))
    for name in ("signer.pem", "log.pem", "lineage.key", "request.key", "tokens.json", "trust.json"):
        (tmp_path / name).write_text("none")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "none")
    choices = {"secrets": {"source": "files", "folder": str(tmp_path)}, "namespace": where}
    choices |= {"claims": {"access": "ReadWriteOnce", "size": "1Gi", "storage_class": ""}, "serve": {"replicas": 0}}
    persistent, _ = volume(where, "mbd-state", kubernetes.folder / "volumes" / where)
    kubernetes.apply(namespace(where), persistent, *render(DeployValues.model_validate(choices), params))
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
    kubernetes.kubectl("delete", "namespace", where, "--wait=false")
    kubernetes.kubectl("taint", "node", NODE, "nvidia.com/gpu-")
