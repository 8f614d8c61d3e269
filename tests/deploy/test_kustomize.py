"""deploy/kustomize as rendered for Kubernetes: valid, hardened, and pinned in production."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mbd.cli import group
from mbd.params import load_params

DEPLOY = Path(__file__).parents[2] / "deploy"
OVERLAYS = ("dev", "gpu", "production")
KUBERNETES = "1.32"
PINNED = re.compile(r"[\w./-]+@sha256:[0-9a-f]{64}")
Document = dict[str, Any]
kubernetes_validate = pytest.importorskip("kubernetes_validate")

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def rendered(folder: Path) -> list[Document]:
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> tuple[str, list[Document]]:
    name = str(request.param)
    return name, rendered(DEPLOY / "kustomize" / "overlays" / name)


def pods(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Yield the name and the pod template of each document that has one."""
    for document in documents:
        spec = document.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            yield document["metadata"]["name"], template["spec"]


def containers(documents: list[Document]) -> Iterator[Document]:
    for _, pod in pods(documents):
        yield from (*pod.get("initContainers", []), *pod["containers"])


def floating(documents: list[Document]) -> list[str]:
    """Return the images that are not pinned by digest."""
    return [c["image"] for c in containers(documents) if not PINNED.fullmatch(c["image"])]


def test_every_field_is_in_the_schema_of_kubernetes(overlay: tuple[str, list[Document]]) -> None:
    for document in overlay[1]:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_the_operators_resources_scrape_the_exporter_and_have_every_rule(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "copy")
    overlay = tmp_path / "copy" / "kustomize" / "overlays" / "dev"
    with (overlay / "kustomization.yaml").open("a") as file:
        file.write("components: [../../../prometheus-operator]\n")
    documents = rendered(overlay)
    found = {(d["kind"], d["metadata"]["name"]): d for d in documents if "monitoring.coreos.com" in d["apiVersion"]}
    monitor, rules = found[("ServiceMonitor", "mbd-exporter")], found[("PrometheusRule", "mbd")]
    (service,) = (d for d in documents if (d["kind"], d["metadata"]["name"]) == ("Service", "mbd-exporter"))
    assert monitor["metadata"]["namespace"] == rules["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {e["port"] for e in monitor["spec"]["endpoints"]} <= {port["name"] for port in service["spec"]["ports"]}
    plain = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    assert list(expressions(rules["spec"])) == list(expressions(plain))


def expressions(rules: Document) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the words of each rule; kustomize folds lines in another way."""
    for rule_group in rules["groups"]:
        for rule in rule_group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"].split()


def test_an_unknown_field_is_detected() -> None:
    (account,) = (d for d in rendered(DEPLOY / "kustomize" / "overlays" / "dev") if d["kind"] == "ServiceAccount")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**account, "spec": {"replicas": 1}}, KUBERNETES, strict=True)


def test_an_overlay_renders_all_services(overlay: tuple[str, list[Document]]) -> None:
    kinds = {(d["kind"], re.sub(r"-[a-z0-9]{10}$", "", d["metadata"]["name"])) for d in overlay[1]}
    assert kinds == {
        ("ServiceAccount", "missing-by-design"),
        ("Deployment", "mbd-exporter"),
        ("Service", "mbd-exporter"),
        ("Deployment", "mbd-serve"),
        ("Service", "mbd-serve"),
        ("CronJob", "mbd-requests"),
        ("CronJob", "mbd-purge-scan"),
        ("ConfigMap", "mbd-params"),
        ("ConfigMap", "mbd-prometheus-rules"),
        ("ConfigMap", "mbd-grafana-dashboard"),
        *(("NetworkPolicy", f"mbd-{name}") for name in ("ingress", "egress", "scrapes", "clients")),
    }
    assert {d["metadata"].get("namespace") for d in overlay[1]} == {
        "mbd-dev" if overlay[0] == "dev" else "missing-by-design"
    }


def test_every_pod_is_hardened(overlay: tuple[str, list[Document]]) -> None:
    for name, pod in pods(overlay[1]):
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
    for container in containers(overlay[1]):
        context = container["securityContext"]
        assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]


def test_secrets_are_references_and_only_signing_services_mount_the_keys(overlay: tuple[str, list[Document]]) -> None:
    assert not [d for d in overlay[1] if d["kind"] == "Secret"]
    with_keys = {
        name
        for name, pod in pods(overlay[1])
        if any(v.get("secret", {}).get("secretName") == "mbd-keys" for v in pod["volumes"])
    }
    assert with_keys == {"mbd-requests"}
    assert all(c["envFrom"] == [{"secretRef": {"name": "mbd-store"}}] for c in containers(overlay[1]))


def test_the_commands_are_valid(overlay: tuple[str, list[Document]]) -> None:
    for container in containers(overlay[1]):
        shown = CliRunner().invoke(group, [*container["args"], "--help"])
        assert shown.exit_code == 0, (container["args"], shown.output)


def test_the_parameters_are_valid_and_refer_to_mounted_files(overlay: tuple[str, list[Document]]) -> None:
    (config,) = (d["data"] for d in overlay[1] if d["metadata"]["name"].startswith("mbd-params"))
    Path("params.yaml").write_text(config["params.yaml"])
    params = load_params(Path("params.yaml"))
    (worker,) = (c for c in containers(overlay[1]) if c["name"] == "requests")
    mounted = [mount["mountPath"] for mount in worker["volumeMounts"]]
    keys = [*params.certificate.signers, params.certificate.log_signer]
    named = [*(key.removeprefix("file:") for key in keys), params.certificate.trust]
    named += [f"/workspace/{path}" for path in (params.certificate.private, params.deletion.ledgers)]
    assert all(any(name.startswith(f"{place}/") for place in mounted) for name in named)


def test_rules_and_dashboard_are_the_files_of_the_repository(overlay: tuple[str, list[Document]]) -> None:
    found = {d["metadata"]["name"]: d["data"] for d in overlay[1] if d["kind"] == "ConfigMap"}
    assert found["mbd-prometheus-rules"] == {"rules.yaml": (DEPLOY / "prometheus" / "rules.yaml").read_text()}
    assert list(found["mbd-grafana-dashboard"].values()) == [(DEPLOY / "grafana" / "dashboard.json").read_text()]


def test_network_policies_allow_scrapes_in_and_only_required_traffic_out(overlay: tuple[str, list[Document]]) -> None:
    policies = {d["metadata"]["name"]: d["spec"] for d in overlay[1] if d["kind"] == "NetworkPolicy"}
    everybody = {"matchLabels": {"app.kubernetes.io/part-of": "missing-by-design"}}
    assert policies["mbd-ingress"] == {"podSelector": everybody, "policyTypes": ["Ingress"]}
    assert policies["mbd-egress"]["podSelector"] == everybody
    assert all(rule.get("ports") for policy in policies.values() for rule in policy.get("egress", []))
    labels = [d["spec"]["template"]["metadata"]["labels"] for d in overlay[1] if d["kind"] == "Deployment"]
    assert all(label["app.kubernetes.io/part-of"] == "missing-by-design" for label in labels)


@pytest.mark.parametrize("name", ["production", "gpu"])
def test_production_images_are_pinned_by_digest(name: str) -> None:
    assert floating(rendered(DEPLOY / "kustomize" / "overlays" / name)) == []


@pytest.mark.parametrize("tag", ["newTag: latest", "newTag: 0.1.0", "newTag: cpu"])
def test_a_floating_tag_in_production_is_detected(tmp_path: Path, tag: str) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    file = tmp_path / "deploy/kustomize/overlays/production/kustomization.yaml"
    changed = re.sub(r"digest: sha256:\w+", tag, file.read_text())
    assert changed != file.read_text()
    file.write_text(changed)
    assert floating(rendered(file.parent)) != []


def test_only_the_worker_has_a_gpu_and_only_in_the_gpu_overlay(overlay: tuple[str, list[Document]]) -> None:
    with_gpu = {c["name"] for c in containers(overlay[1]) if "nvidia.com/gpu" in c["resources"]["limits"]}
    assert with_gpu == ({"requests"} if overlay[0] == "gpu" else set())
