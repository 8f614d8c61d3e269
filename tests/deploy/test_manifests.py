"""What `mbd deploy render` prints: valid for Kubernetes and KServe, hardened, and in step with the parameters."""

import os
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from click.testing import CliRunner

from mbd.cli import group
from mbd.deployment.manifests import render, required_claims, required_secrets
from mbd.deployment.values import DeployValues, read_values, with_names
from mbd.errors import UsageError
from mbd.params import Params, load_params
from tests.docs.blocks import CLUSTER as OF_WALK
from tests.docs.blocks import REPOSITORY, blocks
from tests.refusals import refused

DEPLOY = REPOSITORY / "deploy"
KUBERNETES = "1.32"
Document = dict[str, Any]
kubernetes_validate = pytest.importorskip("kubernetes_validate")
OTHERS = {
    "namespace": "team-voice",
    "secrets": {"source": "external", "store": "vault"},
    "claims": {"storage_class": "nfs"},
    "serve": {"host": "mbd.example.org", "ingress_class": "nginx", "tls_secret": "mbd-tls"},
    "inference": {"models": ["sentiment"], "kserve": True},
    "monitoring": {"operator": True},
}
CLUSTER = [
    *("store.url=s3://bucket", "platform.kubeflow_host=http://ml-pipeline.kubeflow:8888"),
    *("monitoring.mode=push", "monitoring.pushgateway=http://pushgateway.monitoring:9091"),
]
GPU = ["platform.gpu.limit=1", "platform.gpu.tolerations=[{key: nvidia.com/gpu}]", "platform.gpu_image=gpu@sha256:1"]
KEYS = ["platform.lineage_secret=mbd-lineage", "platform.data_keys_claim=mbd-data-keys", "platform.wrapper_secret=kek"]


@pytest.fixture(params=["as written", "the others"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[DeployValues, Params, list[Document]]:
    """Values, parameters and manifests: as `mbd init --kubeflow` writes them, or with every choice made otherwise."""
    other = request.param == "the others"
    values = DeployValues.model_validate(OTHERS if other else {})
    (tmp_path / "build" / "keys").mkdir(parents=True)
    values = values.model_copy(update={"secrets": values.secrets.model_copy(update={"folder": str(tmp_path)})})
    (tmp_path / "trust.json").write_text("{}")
    params = on_cluster(*GPU, *KEYS) if other else on_cluster()
    return values, params, render(values, params)


def on_cluster(*settings: str) -> Params:
    """Return parameters with what a deployment needs."""
    return load_params(None, with_names(None, [*CLUSTER, *settings]))


def pods(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Yield the name and the pod of each document that has one."""
    for document in documents:
        spec = document.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            yield document["metadata"]["name"], template["spec"]


def containers(documents: list[Document]) -> Iterator[Document]:
    for _, pod in pods(documents):
        yield from (*pod.get("initContainers", []), *pod["containers"])
    yield from (each for one in documents if one["kind"] == "ServingRuntime" for each in one["spec"]["containers"])


def named(documents: list[Document], kind: str, name: str) -> Document:
    (found,) = (d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name))
    return found


def test_every_field_is_in_the_schema_of_kubernetes(
    deployment: tuple[DeployValues, Params, list[Document]],
) -> None:
    for document in deployment[2]:
        group_of = document["apiVersion"].partition("/")[0]
        if group_of not in ("serving.kserve.io", "monitoring.coreos.com", "external-secrets.io"):
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
    changed = deepcopy(deployment[2][0]) | {"replicas": 1}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(changed, KUBERNETES, strict=True)


def test_the_files_of_the_walk_are_those_of_a_deployment_and_its_objects_are_valid(quick: Path, tmp_path: Path) -> None:
    """`tests/cluster` follows the walk to its end; here everything is there but the cluster."""
    steps = "\n".join(block.text for block in blocks(REPOSITORY / "docs" / "kubeflow.md", OF_WALK))
    before, waits, _ = steps.partition("kubectl rollout")
    assert waits
    kept = 'kubectl() { case "$1 ${!#}" in get*) false;; "apply -") cat > own.yaml;; esac; }'
    variables = ("S3_ENDPOINT", "IMAGE", "PUSHGATEWAY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    environment = {**os.environ, **dict.fromkeys(variables, "http://there"), "STORE": "s3://walk"}
    environment["PATH"] = os.pathsep.join([str(quick / "bin"), environment["PATH"]])
    script = f"{kept}\n{before}"
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env=environment, check=True)
    made = [d for name in ("manifests", "own") for d in yaml.safe_load_all((tmp_path / f"{name}.yaml").read_text())]
    for document in made:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    kinds = {document["kind"] for document in made}
    assert kinds >= {"Secret", "PersistentVolumeClaim", "Deployment", "Ingress", "CronJob", "RoleBinding"}
    (launcher,) = (d for d in made if d["metadata"]["name"] == "kfp-launcher")
    provider = yaml.safe_load(launcher["data"]["providers"])["s3"]["default"]["credentials"]["secretRef"]
    params, values = load_params(tmp_path / "params.yaml"), read_values(tmp_path / "values.yaml")
    keys = required_secrets(values, params)[provider["secretName"]]
    assert {provider["accessKeyKey"], provider["secretKeyKey"]} == set(keys)


def test_everything_that_a_pod_refers_to_is_made_or_required(
    deployment: tuple[DeployValues, Params, list[Document]],
) -> None:
    values, params, documents = deployment
    made = {(d["kind"], d["metadata"]["name"]) for d in documents}
    assert {d["metadata"]["namespace"] for d in documents} == {values.namespace}
    for _, pod in pods(documents):
        assert ("ServiceAccount", pod["serviceAccountName"]) in made
        for volume in pod["volumes"]:
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in made
            if secret := volume.get("secret"):
                assert secret["secretName"] in required_secrets(values, params)
            if config := volume.get("configMap"):
                assert ("ConfigMap", config["name"]) in made | {("ConfigMap", params.platform.trust_config)}
    for container in containers(documents):
        for variable in container["env"]:
            if reference := variable.get("valueFrom"):
                secret = reference["secretKeyRef"]
                assert secret["key"] in required_secrets(values, params)[secret["name"]]
    external = {name for kind, name in made if kind == "ExternalSecret"}
    assert external == (set(required_secrets(values, params)) if values.secrets.source == "external" else set())
    assert {name for kind, name in made if kind == "PersistentVolumeClaim"} == set(required_claims(params))


def test_every_pod_is_hardened(deployment: tuple[DeployValues, Params, list[Document]]) -> None:
    for name, pod in pods(deployment[2]):
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
    for container in containers(deployment[2]):
        context = container["securityContext"]
        assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]


def test_only_what_signs_has_the_signing_keys(deployment: tuple[DeployValues, Params, list[Document]]) -> None:
    with_keys = {
        name for name, pod in pods(deployment[2]) if "mbd-keys" in str([one.get("secret") for one in pod["volumes"]])
    }
    assert with_keys == {"mbd-requests"}


def test_the_commands_are_valid_and_listen_where_probes_and_services_look(
    deployment: tuple[DeployValues, Params, list[Document]],
) -> None:
    for container in containers(deployment[2]):
        shown = CliRunner().invoke(group, [*container["args"], "--help"])
        assert shown.exit_code == 0, (container["args"], shown.output)
        for port in container.get("ports", ()):
            assert container["args"][container["args"].index("--port") + 1] == str(port["containerPort"])
            for probe in ("livenessProbe", "readinessProbe"):
                assert container[probe]["httpGet"]["port"] == port["name"]
    for service in (d for d in deployment[2] if d["kind"] == "Service"):
        behind = named(deployment[2], "Deployment", service["metadata"]["name"])["spec"]["template"]
        (port,) = service["spec"]["ports"]
        assert service["spec"]["selector"].items() <= behind["metadata"]["labels"].items()
        assert [one["name"] for one in behind["spec"]["containers"][0]["ports"]] == [port["targetPort"]]


def test_the_parameters_of_the_pods_lead_to_what_is_mounted(
    deployment: tuple[DeployValues, Params, list[Document]], tmp_path: Path
) -> None:
    documents = deployment[2]
    file = tmp_path / "mounted.yaml"
    file.write_text(named(documents, "ConfigMap", "mbd-params")["data"]["params.yaml"])
    params = load_params(file)
    (worker,) = (c for c in containers(documents) if c["name"] == "requests")
    mounted = [mount["mountPath"] for mount in worker["volumeMounts"]]
    keys = [*params.certificate.signers, params.certificate.log_signer]
    paths = [*(key.removeprefix("file:") for key in keys), params.certificate.trust, params.certificate.private]
    paths += filter(None, [params.certificate.lineage_key])
    assert all(any(path.startswith(f"{place}/") for place in mounted) for path in paths), paths
    assert params.deletion.ledgers in mounted


def test_rules_and_dashboard_are_the_files_of_the_repository(
    deployment: tuple[DeployValues, Params, list[Document]],
) -> None:
    values, _, documents = deployment
    rules = (DEPLOY / "prometheus" / "rules.yaml").read_text()
    if values.monitoring.operator:
        assert named(documents, "PrometheusRule", "mbd-rules")["spec"] == yaml.safe_load(rules)
        monitor = named(documents, "ServiceMonitor", "mbd")["spec"]
        services = [d for d in documents if d["kind"] == "Service"]
        for service in services:
            assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        ports = {port["name"] for service in services for port in service["spec"]["ports"]}
        assert {end["port"] for end in monitor["endpoints"]} == ports
    else:
        assert named(documents, "ConfigMap", "mbd-prometheus-rules")["data"] == {"rules.yaml": rules}
    dashboard = named(documents, "ConfigMap", "mbd-grafana-dashboard")["data"]
    assert [*dashboard.values()] == [(DEPLOY / "grafana" / "dashboard.json").read_text()]


def test_traffic_goes_out_only_to_what_the_parameters_name(
    deployment: tuple[DeployValues, Params, list[Document]],
) -> None:
    rules = named(deployment[2], "NetworkPolicy", "mbd-egress")["spec"]["egress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == {53, 443, 8888, 9091}


def test_traffic_goes_out_to_webhooks_to_who_signs_tokens_and_to_the_registry() -> None:
    oidc = "serving.oidc={issuer: https://i.example, audience: mbd, jwks: https://i.example:8444/keys}"
    params = on_cluster("serving.webhooks=[https://hooks.example:8443/in]", oidc, "mlflow.uri=http://mlflow:5000")
    rules = named(render(DeployValues(), params), "NetworkPolicy", "mbd-egress")["spec"]["egress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} >= {8443, 8444, 5000}


def test_only_the_worker_has_a_gpu_and_only_where_the_parameters_ask_for_one(
    deployment: tuple[DeployValues, Params, list[Document]],
) -> None:
    _, params, documents = deployment
    with_gpu = {c["name"]: c["image"] for c in containers(documents) if "nvidia.com/gpu" in c["resources"]["limits"]}
    assert with_gpu == ({"requests": "gpu@sha256:1"} if params.platform.gpu.limit else {})


def test_secrets_are_made_of_files_and_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = DeployValues.model_validate({"secrets": {"source": "files", "folder": str(tmp_path)}})
    params = on_cluster()
    with refused(UsageError, key="secrets.source", value="$AWS_ACCESS_KEY_ID"):
        render(values, params)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, f"the {name}")
    with pytest.raises(UsageError, match="cannot be read"):
        render(values, params)
    for name in ("signer.pem", "log.pem", "lineage.key", "request.key", "tokens.json", "trust.json"):
        (tmp_path / name).write_text(f"the {name}")
    documents = render(values, params)
    assert named(documents, "Secret", "mbd-store")["stringData"]["AWS_ACCESS_KEY_ID"] == "the AWS_ACCESS_KEY_ID"
    assert set(named(documents, "Secret", "mbd-keys")["stringData"]) == {"signer.pem", "log.pem", "lineage.key"}
    assert named(documents, "ConfigMap", "mbd-trust")["data"] == {"trust.json": "the trust.json"}


def test_without_secrets_for_its_services_there_is_no_deployment() -> None:
    with refused(UsageError, key="platform.keys_secret"):
        render(DeployValues(), Params())


def test_an_unknown_value_is_refused_with_the_nearest_known_key(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("serve: {replica: 3}")
    with refused(UsageError, key="serve.replica"):
        read_values(tmp_path / "values.yaml")


def strict(required: str, **properties: Document) -> Document:
    """Return the schema of an object without other fields."""
    fields = {"type": "object", "properties": properties, "additionalProperties": False}
    return fields | {"required": required.split()}


TEXT, FLAG, COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
TEXTS = {"type": "object", "additionalProperties": TEXT}
OF_KUBERNETES: Document = {}
"""checked by the schema of a pod"""
FORMAT = strict("name version", name=TEXT, version=TEXT, autoSelect=FLAG)
POD_OF_RUNTIME = ("containers", "volumes")
POD_OF_PREDICTOR = ("serviceAccountName", "automountServiceAccountToken", "securityContext")
RUNTIME = strict(
    "containers supportedModelFormats",
    annotations=TEXTS,
    labels=TEXTS,
    supportedModelFormats={"type": "array", "items": FORMAT, "minItems": 1},
    protocolVersions={"type": "array", "items": {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}},
    multiModel=FLAG,
    **dict.fromkeys(POD_OF_RUNTIME, OF_KUBERNETES),
)
PREDICTOR = strict(
    "model",
    minReplicas=COUNT,
    maxReplicas=COUNT,
    scaleMetric={"enum": ["cpu", "memory", "concurrency", "rps"]},
    scaleTarget=COUNT,
    timeout=COUNT,
    model=strict("modelFormat", modelFormat=FORMAT, runtime=TEXT, protocolVersion=TEXT),
    **dict.fromkeys(POD_OF_PREDICTOR, OF_KUBERNETES),
)
"""the parts of KServe's v1alpha1 and v1beta1 that are used; any other field is an error"""


def test_the_model_server_is_valid_for_kserve() -> None:
    values = DeployValues.model_validate({"inference": OTHERS["inference"]})
    documents = render(values, on_cluster())
    runtime = named(documents, "ServingRuntime", "mbd-inference")
    service = named(documents, "InferenceService", "mbd-inference")
    jsonschema.validate(runtime["spec"], RUNTIME)
    jsonschema.validate(service["spec"]["predictor"], PREDICTOR)
    predictor = service["spec"]["predictor"]
    spec = {name: runtime["spec"][name] for name in POD_OF_RUNTIME}
    spec |= {name: predictor[name] for name in POD_OF_PREDICTOR}
    labels = {"labels": runtime["spec"]["labels"], "annotations": runtime["spec"]["annotations"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **labels}, "spec": spec}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    assert predictor["model"]["runtime"] == runtime["metadata"]["name"]
    assert [container["name"] for container in runtime["spec"]["containers"]] == ["kserve-container"]
    policy = named(documents, "NetworkPolicy", "mbd-inference")["spec"]["podSelector"]["matchLabels"]
    assert policy.items() <= runtime["spec"]["labels"].items()


def test_without_kserve_the_model_server_is_a_deployment() -> None:
    values = DeployValues.model_validate({"inference": {"models": ["sentiment"]}})
    documents = render(values, on_cluster())
    (container,) = named(documents, "Deployment", "mbd-inference")["spec"]["template"]["spec"]["containers"]
    assert "serving.inference.models=[sentiment]" in container["args"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
