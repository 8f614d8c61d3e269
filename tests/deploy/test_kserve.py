"""deploy/kserve: valid for the API of KServe and of Kubernetes, hardened, pinned, and in step with the parameters."""

import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from click import Context
from click.testing import CliRunner

from mbd.cli import group
from mbd.params import load_params
from tests.deploy.test_kustomize import DEPLOY, KUBERNETES, PINNED, kubernetes_validate, rendered

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
Document = dict[str, Any]


def strict(required: str, **properties: Document) -> Document:
    """Return the schema of an object without other fields."""
    fields = {"type": "object", "properties": properties, "additionalProperties": False}
    return fields | {"required": required.split()}


TEXT, FLAG, COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
TEXTS = {"type": "object", "additionalProperties": TEXT}
OF_KUBERNETES: Document = {}
"""checked by the schema of a pod"""
METADATA = strict("name namespace", name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
PROTOCOLS = {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}
FORMAT = strict("name", name=TEXT, version=TEXT)
SUPPORTED = strict("name", name=TEXT, version=TEXT, autoSelect=FLAG, priority={"type": "integer", "minimum": 1})
POD_OF_RUNTIME = ("containers", "volumes")
POD_OF_PREDICTOR = ("serviceAccountName", "automountServiceAccountToken", "securityContext")
RUNTIME = strict(
    "apiVersion kind metadata spec",
    apiVersion={"const": "serving.kserve.io/v1alpha1"},
    kind={"const": "ServingRuntime"},
    metadata=METADATA,
    spec=strict(
        "containers supportedModelFormats",
        annotations=TEXTS,
        labels=TEXTS,
        supportedModelFormats={"type": "array", "items": SUPPORTED, "minItems": 1},
        protocolVersions={"type": "array", "items": PROTOCOLS},
        multiModel=FLAG,
        disabled=FLAG,
        **dict.fromkeys(POD_OF_RUNTIME, OF_KUBERNETES),
    ),
)
SERVICE = strict(
    "apiVersion kind metadata spec",
    apiVersion={"const": "serving.kserve.io/v1beta1"},
    kind={"const": "InferenceService"},
    metadata=METADATA,
    spec=strict(
        "predictor",
        predictor=strict(
            "model",
            minReplicas=COUNT,
            maxReplicas=COUNT,
            scaleMetric={"enum": ["cpu", "memory", "concurrency", "rps"]},
            scaleTarget=COUNT,
            timeout=COUNT,
            model=strict("modelFormat", modelFormat=FORMAT, runtime=TEXT, protocolVersion=PROTOCOLS),
            **dict.fromkeys(POD_OF_PREDICTOR, OF_KUBERNETES),
        ),
    ),
)
"""the parts of KServe's v1alpha1 and v1beta1 that are used; any other field is an error"""


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    return {document["kind"]: document for document in rendered(DEPLOY / "kserve")}


def pod(documents: dict[str, Document]) -> Document:
    """Return the pod that KServe makes of both."""
    runtime, predictor = documents["ServingRuntime"]["spec"], documents["InferenceService"]["spec"]["predictor"]
    spec = {name: runtime[name] for name in POD_OF_RUNTIME} | {name: predictor[name] for name in POD_OF_PREDICTOR}
    labels = {"labels": runtime["labels"], "annotations": runtime["annotations"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **labels}, "spec": spec}


def test_every_field_is_in_the_schema_of_kserve_or_kubernetes(documents: dict[str, Document]) -> None:
    jsonschema.validate(documents["ServingRuntime"], RUNTIME)
    jsonschema.validate(documents["InferenceService"], SERVICE)
    for document in (pod(documents), documents["ConfigMap"], documents["NetworkPolicy"]):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    assert set(documents) == {"ServingRuntime", "InferenceService", "ConfigMap", "NetworkPolicy"}


@pytest.mark.parametrize(
    ("kind", "schema", "path"),
    [
        ("ServingRuntime", RUNTIME, ["spec"]),
        ("ServingRuntime", RUNTIME, ["spec", "supportedModelFormats", 0]),
        ("InferenceService", SERVICE, ["spec", "predictor"]),
        ("InferenceService", SERVICE, ["spec", "predictor", "model"]),
    ],
)
def test_an_unknown_field_is_detected(
    documents: dict[str, Document], kind: str, schema: Document, path: list[str | int]
) -> None:
    changed = deepcopy(documents[kind])
    place: Any = changed
    for part in path:
        place = place[part]
    place["unknown"] = 1
    with pytest.raises(jsonschema.ValidationError, match="'unknown' was unexpected"):
        jsonschema.validate(changed, schema)


def test_an_unknown_field_of_the_container_is_detected(documents: dict[str, Document]) -> None:
    changed = deepcopy(pod(documents))
    changed["spec"]["containers"][0]["image_policy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(changed, KUBERNETES, strict=True)


def test_the_service_uses_the_runtime_by_its_format_and_protocol(documents: dict[str, Document]) -> None:
    runtime, model = documents["ServingRuntime"], documents["InferenceService"]["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    formats = [(one["name"], one["version"]) for one in runtime["spec"]["supportedModelFormats"]]
    assert (model["modelFormat"]["name"], model["modelFormat"]["version"]) in formats
    assert [container["name"] for container in runtime["spec"]["containers"]] == ["kserve-container"]


def test_the_pod_is_hardened_and_its_image_pinned(documents: dict[str, Document]) -> None:
    spec = pod(documents)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
    assert PINNED.fullmatch(container["image"])
    secrets = [volume for volume in spec["volumes"] if "secret" in volume]
    assert not secrets and container["envFrom"] == [{"secretRef": {"name": "mbd-store"}}]


def test_the_parameters_are_valid_name_the_served_model_and_refer_to_mounted_files(
    documents: dict[str, Document],
) -> None:
    Path("params.yaml").write_text(documents["ConfigMap"]["data"]["params.yaml"])
    params = load_params(Path("params.yaml"))
    assert params.serving.inference.models == (documents["InferenceService"]["metadata"]["name"],)
    (container,) = pod(documents)["spec"]["containers"]
    mounted = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounted[params.serving.inference.folder or ""] is False
    assert mounted[str(Path(params.certificate.trust).parent)] is True
    configured = {volume["configMap"]["name"] for volume in pod(documents)["spec"]["volumes"] if "configMap" in volume}
    assert documents["ConfigMap"]["metadata"]["name"] in configured


def test_probes_and_policy_reach_the_port_that_the_command_listens_on(documents: dict[str, Document]) -> None:
    (container,) = pod(documents)["spec"]["containers"]
    port = int(container["args"][container["args"].index("--port") + 1])
    assert container["ports"][0]["containerPort"] == port
    probes = {container[name]["httpGet"]["path"]: container[name]["httpGet"]["port"] for name in PROBES}
    assert probes == {"/v2/health/live": port, "/v2/health/ready": port}
    policy = documents["NetworkPolicy"]["spec"]
    assert policy["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port}]
    assert policy["podSelector"]["matchLabels"].items() <= documents["ServingRuntime"]["spec"]["labels"].items()


PROBES = ("livenessProbe", "readinessProbe")


@pytest.mark.skipif("serve" not in group.list_commands(Context(group)), reason="this install has no `mbd serve`")
def test_the_command_is_valid(documents: dict[str, Document]) -> None:
    (container,) = pod(documents)["spec"]["containers"]
    shown = CliRunner().invoke(group, [*container["args"], "--help"])
    assert shown.exit_code == 0, shown.output


def test_the_files_are_all_used() -> None:
    folder = DEPLOY / "kserve"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())
    used = {*listed["resources"], *listed["configurations"], *listed["configMapGenerator"][0]["files"]}
    assert {file.name for file in folder.iterdir()} == used | {"kustomization.yaml"}
