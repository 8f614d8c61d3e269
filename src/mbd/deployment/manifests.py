"""The manifests of a deployment, from its values and the parameters.

Pods have what tasks of the pipelines have (`pipelines/placement.py`): the same image, secrets, claims and paths. No
service here uses the Kubernetes API.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from mbd.deployment.values import DeployValues, ResourceValues
from mbd.errors import UsageError
from mbd.files import find_bundled
from mbd.params import Params
from mbd.params.resolve import in_container

Document = dict[str, Any]
USER = 10001
ACCOUNT = "missing-by-design"
_APP, _PART = "app.kubernetes.io/name", {"app.kubernetes.io/part-of": "missing-by-design"}
_ACCESS, _MODELS = "/etc/mbd/access", "/models"
_METRICS, _HTTP, _INFERENCE = 9890, 8890, 8080
_TASK = ("params", "trust", "keys", "lineage", "state", "data-keys", "wrapper", "memory")
"""what a container that signs and keeps state has"""
POD_SECURITY = {
    **{"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER},
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def render(values: DeployValues, params: Params) -> list[Document]:
    """Return every object of the deployment, in an order in which they can be applied."""
    # through JSON, so that no two objects share a part, which YAML would write as an alias
    return [json.loads(json.dumps(document)) for document in Deployment(values, params).documents()]


def required_secrets(values: DeployValues, params: Params) -> dict[str, dict[str, str]]:
    """Return the secrets that services and tasks refer to: {name: {key: file of the folder, or $VARIABLE}}."""
    platform, secrets = params.platform, dict[str, dict[str, str]]()
    for secret, keys in platform.secrets.items():
        secrets[secret] = {key: f"${variable}" for key, variable in keys.items()}
    signing = ["signer.pem", "log.pem", *([] if platform.lineage_secret else ["lineage.key"])]
    files = {
        platform.keys_secret: signing,
        platform.lineage_secret: ["lineage.key"],
        platform.wrapper_secret: ["shredding.kek"],
        values.serve.tokens_secret if values.serve.replicas else None: ["tokens.json", "request.key"],
    }
    return secrets | {secret: {name: name for name in names} for secret, names in files.items() if secret}


def required_claims(params: Params) -> list[str]:
    """Return the claims that services and tasks refer to."""
    return [claim for claim in (params.platform.state_claim, params.platform.data_keys_claim) if claim]


class Deployment:
    """What the parts of a deployment have in common."""

    def __init__(self, values: DeployValues, params: Params) -> None:
        self.values, self.params, self.platform = values, params, params.platform
        for name in ("keys_secret", "trust_config", "state_claim"):
            if getattr(self.platform, name) is None:
                raise UsageError(
                    "a deployment needs it: its services verify, sign, and keep state",
                    key=f"platform.{name}",
                    hint="`mbd init --kubeflow` writes parameters that name everything",
                )
        changed = in_container(params).model_dump(mode="json", exclude_defaults=True)
        self._text = yaml.safe_dump(changed, sort_keys=False)

    def documents(self) -> Iterator[Document]:
        """Yield every object."""
        yield {**self._object("v1", "ServiceAccount", ACCOUNT), "automountServiceAccountToken": False}
        yield from self._secrets()
        yield {**self._object("v1", "ConfigMap", "mbd-params"), "data": {"params.yaml": self._text}}
        if self.values.claims.create:
            yield from map(self._claim, required_claims(self.params))
        if self.values.monitoring.exporter:
            exporter = self._listening("exporter", "exporter", _METRICS, ResourceValues(), port_name="metrics")
            yield from self._service("mbd-exporter", exporter, 1)
        if self.values.serve.replicas:
            yield from self._serve()
        if self.values.inference.models:
            yield from self._inference()
        if self.values.schedules.requests:
            yield self._worker(self.values.schedules.requests)
        if self.values.schedules.scan:
            yield self._scan(self.values.schedules.scan)
        yield from self._monitoring()
        if self.values.network.policies:
            yield from self._policies()

    def _object(self, version: str, kind: str, name: str, labels: Mapping[str, str] | None = None) -> Document:
        named = {"name": name, "namespace": self.values.namespace, "labels": {_APP: name, **_PART, **(labels or {})}}
        return {"apiVersion": version, "kind": kind, "metadata": named}

    def _secrets(self) -> Iterator[Document]:
        where, folder = self.values.secrets, Path(self.values.secrets.folder)
        for name, keys in required_secrets(self.values, self.params).items():
            if where.source == "files":
                content = {key: _read(folder, place) for key, place in keys.items()}
                yield {**self._object("v1", "Secret", name), "stringData": content}
            elif where.source == "external":
                if where.store is None:
                    raise UsageError("External Secrets need a secret store", key="secrets.store")
                remote = [
                    {"secretKey": key, "remoteRef": {"key": f"{where.path}/{name}", "property": key}} for key in keys
                ]
                reference = {"kind": where.kind, "name": where.store}
                spec = {"refreshInterval": "1h", "secretStoreRef": reference, "target": {"name": name}, "data": remote}
                yield {**self._object("external-secrets.io/v1", "ExternalSecret", name), "spec": spec}
        if where.source != "existing":
            data = {"trust.json": _read(folder, "trust.json")}
            yield {**self._object("v1", "ConfigMap", self.platform.trust_config or ""), "data": data}

    def _claim(self, name: str) -> Document:
        claims = self.values.claims
        storage = {"storageClassName": claims.storage_class} if claims.storage_class is not None else {}
        size = {"resources": {"requests": {"storage": claims.size}}}
        return {
            **self._object("v1", "PersistentVolumeClaim", name),
            "spec": {"accessModes": [claims.access], **storage, **size},
        }

    def _mounts(self) -> dict[str, tuple[str, Document]]:
        """Return what a container may have: {name: (path, volume)}."""
        platform = self.platform
        volumes: dict[str, tuple[str, Document]] = {
            "params": ("/workspace/params.yaml", {"configMap": {"name": "mbd-params"}}),
            "trust": (platform.trust_path, {"configMap": {"name": platform.trust_config}}),
            "access": (_ACCESS, _secret(self.values.serve.tokens_secret)),
            "models": (_MODELS, {"emptyDir": {"sizeLimit": "4Gi"}}),
            "tmp": ("/tmp", {"emptyDir": {}}),  # noqa: S108 -- of a container
            "memory": ("/tmp", {"emptyDir": {"medium": "Memory", "sizeLimit": platform.memory}}),  # noqa: S108
            "keys": (platform.keys_path, _secret(platform.keys_secret)),
            "state": (platform.state_path, {"persistentVolumeClaim": {"claimName": platform.state_claim}}),
        }
        if platform.lineage_secret:
            volumes["lineage"] = platform.lineage_path, _secret(platform.lineage_secret)
        if platform.data_keys_claim:
            claim = {"persistentVolumeClaim": {"claimName": platform.data_keys_claim}}
            volumes["data-keys"] = platform.data_keys_path, claim
        if platform.wrapper_secret:
            volumes["wrapper"] = platform.wrapper_path, _secret(platform.wrapper_secret)
        return volumes

    def _container(
        self, name: str, args: Sequence[str], mounts: Sequence[str], resources: ResourceValues, **more: object
    ) -> Document:
        paths = self._mounts()
        named = [
            {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": each}}}
            for secret, keys in self.platform.secrets.items()
            for each, key in keys.items()
        ]
        if "state" in mounts:  # the newest head of the log that was seen: a store that was rolled back is refused
            named.append({"name": "XDG_CACHE_HOME", "value": f"{self.platform.state_path}/cache"})
        writable = {"tmp", "memory", "models", "state", "data-keys"}
        return {
            "name": name,
            "image": self.platform.image,
            "args": [*args],
            "env": named,
            "resources": {
                "requests": {"cpu": resources.cpu, "memory": resources.memory},
                "limits": {"memory": resources.memory},
            },
            "securityContext": CONTAINER_SECURITY,
            "volumeMounts": [
                {
                    "name": mount,
                    "mountPath": paths[mount][0],
                    **({"subPath": "params.yaml"} if mount == "params" else {}),
                    **({} if mount in writable else {"readOnly": True}),
                }
                for mount in mounts
                if mount in paths
            ],
            **more,
        }

    def _pod(self, *containers: Document, inits: Sequence[Document] = (), **more: object) -> Document:
        used = dict.fromkeys(mount["name"] for one in (*inits, *containers) for mount in one["volumeMounts"])
        paths = self._mounts()
        return {
            "serviceAccountName": ACCOUNT,
            "automountServiceAccountToken": False,
            "securityContext": POD_SECURITY,
            **({"initContainers": [*inits]} if inits else {}),
            "containers": [*containers],
            "volumes": [{"name": name, **paths[name][1]} for name in used],
            **more,
        }

    def _service(self, name: str, container: Document, replicas: int) -> Iterator[Document]:
        """Yield a Deployment of a container that listens, and its Service."""
        (port,) = container["ports"]
        yield {
            **self._object("apps/v1", "Deployment", name),
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {_APP: name}},
                "template": {
                    "metadata": self._template(name, port["containerPort"]),
                    "spec": self._pod(container, terminationGracePeriodSeconds=40),
                },
            },
        }
        ports = [{"name": port["name"], "port": port["containerPort"], "targetPort": port["name"]}]
        yield {**self._object("v1", "Service", name), "spec": {"selector": {_APP: name}, "ports": ports}}

    def _template(self, name: str, port: int | None = None) -> Document:
        """Return the metadata of a pod; it is another where the parameters are, so that they reach it."""
        digest = hashlib.sha256(self._text.encode()).hexdigest()[:16]
        scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)} if port else {}
        return {"labels": {_APP: name, **_PART}, "annotations": {"missing-by-design/parameters": digest, **scraped}}

    def _listening(
        self,
        name: str,
        command: str,
        port: int,
        resources: ResourceValues,
        *mounts: str,
        settings: Sequence[str] = (),
        port_name: str = "http",
        probes: tuple[str, str] = ("/healthz", "/readyz"),
    ) -> Document:
        args = [command, "--address", "0.0.0.0", "--port", str(port)]  # noqa: S104 -- of a pod
        args += [word for setting in settings for word in ("--set", setting)]
        live, ready = ({"httpGet": {"path": path, "port": port_name}} for path in probes)
        return self._container(
            name,
            args,
            ("params", "trust", *mounts, "tmp"),
            resources,
            ports=[{"name": port_name, "containerPort": port}],
            livenessProbe={**live, "periodSeconds": 30},
            readinessProbe={**ready, "periodSeconds": 5},
        )

    def _serve(self) -> Iterator[Document]:
        serve, name = self.values.serve, "mbd-serve"
        # in the place of the lineage key lies the key of requests alone
        settings = [f"serving.tokens={_ACCESS}/tokens.json", f"certificate.lineage_key={_ACCESS}/lineage.key"]
        container = self._listening("serve", "serve", _HTTP, serve.resources, "access", settings=settings)
        yield from self._service(name, container, serve.replicas)
        if serve.host is None:
            return
        backend = {"service": {"name": name, "port": {"name": "http"}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        spec: Document = {"rules": [{"host": serve.host, "http": {"paths": paths}}]}
        if serve.ingress_class:
            spec["ingressClassName"] = serve.ingress_class
        if serve.tls_secret:
            spec["tls"] = [{"hosts": [serve.host], "secretName": serve.tls_secret}]
        yield {**self._object("networking.k8s.io/v1", "Ingress", name), "spec": spec}

    def _inference(self) -> Iterator[Document]:
        """Yield the model server. It needs no storageUri: the log says which release is current."""
        inference, name = self.values.inference, "mbd-inference"
        container = self._listening(
            "kserve-container" if inference.kserve else "inference",
            "serve",
            _INFERENCE,
            inference.resources,
            *("access", "models"),
            settings=[
                f"serving.inference.models=[{', '.join(inference.models)}]",
                f"serving.inference.folder={_MODELS}",
                f"serving.tokens={_ACCESS}/tokens.json",
            ],
            port_name="http1" if inference.kserve else "http",
            probes=("/v2/health/live", "/v2/health/ready"),  # not ready before a release is loaded, nor without one
        )
        if not inference.kserve:
            yield from self._service(name, container, inference.replicas)
            return
        pod, template = self._pod(container), self._template(name, _INFERENCE)
        shown = {"name": "missing-by-design", "version": "1"}
        runtime = {"supportedModelFormats": [{**shown, "autoSelect": True}], "protocolVersions": ["v2"]}
        parts = {key: pod[key] for key in ("containers", "volumes")}
        yield {
            **self._object("serving.kserve.io/v1alpha1", "ServingRuntime", name),
            "spec": {**template, **runtime, "multiModel": False, **parts},
        }
        service = self._object("serving.kserve.io/v1beta1", "InferenceService", name)
        service["metadata"]["annotations"] = {"serving.kserve.io/deploymentMode": "RawDeployment"}
        predictor = {key: pod[key] for key in ("serviceAccountName", "automountServiceAccountToken", "securityContext")}
        predictor |= {"minReplicas": inference.replicas, "maxReplicas": 2 * inference.replicas}
        predictor |= {"scaleMetric": "cpu", "scaleTarget": 70, "timeout": 60}
        predictor["model"] = {"modelFormat": shown, "runtime": name, "protocolVersion": "v2"}
        yield {**service, "spec": {"predictor": predictor}}

    def _cron_job(self, name: str, schedule: str, template: Document, *, retries: int) -> Document:
        job = {
            "backoffLimit": retries,
            "activeDeadlineSeconds": self.platform.timeout_seconds,
            "template": {"metadata": self._template(name), "spec": {"restartPolicy": "Never", **template}},
        }
        return {
            **self._object("batch/v1", "CronJob", name),
            "spec": {
                "schedule": schedule,
                "concurrencyPolicy": "Forbid",
                "startingDeadlineSeconds": 600,
                "successfulJobsHistoryLimit": 3,
                "failedJobsHistoryLimit": 5,
                "jobTemplate": {"spec": job},
            },
        }

    def _worker(self, schedule: str) -> Document:
        """Return what renews the log's checkpoint and carries out open requests: a step that signs, on a GPU or not."""
        resources = ResourceValues(cpu=self.platform.cpu, memory=self.platform.memory)
        renew = self._container("renew", ["log", "renew"], _TASK, resources)
        requests = self._container("requests", ["request", "run"], _TASK, resources)
        placed: Document = {}
        if (gpu := self.platform.gpu).limit:
            requests["image"] = self.platform.gpu_image
            requests["resources"]["limits"][gpu.type] = str(gpu.limit)
            placed["tolerations"] = [each.model_dump(exclude_none=True) for each in gpu.tolerations]
            placed["nodeSelector"] = dict(gpu.node_selector)
        pod = self._pod(requests, inits=[renew], **placed)
        return self._cron_job("mbd-requests", schedule, pod, retries=0)

    def task_pod(self, name: str, args: Sequence[str], resources: ResourceValues) -> Document:
        """Return a pod that runs a command once, with what a task of the pipelines has."""
        spec = self._pod(self._container("main", args, _TASK, resources), restartPolicy="Never")
        return {**self._object("v1", "Pod", name), "spec": spec}

    def _scan(self, schedule: str) -> Document:
        resources = ResourceValues(memory="1Gi")
        container = self._container("purge-scan", ["purge", "scan"], ("params", "trust", "tmp"), resources)
        return self._cron_job("mbd-purge-scan", schedule, self._pod(container), retries=1)

    def _monitoring(self) -> Iterator[Document]:
        rules = find_bundled("deploy/prometheus/rules.yaml").read_text(encoding="utf-8")
        if self.values.monitoring.operator:
            rule = self._object("monitoring.coreos.com/v1", "PrometheusRule", "mbd-rules")
            yield {**rule, "spec": yaml.safe_load(rules)}
            ends = [{"port": port, "path": "/metrics", "interval": "30s"} for port in ("metrics", "http")]
            monitor = self._object("monitoring.coreos.com/v1", "ServiceMonitor", "mbd")
            yield {**monitor, "spec": {"selector": {"matchLabels": _PART}, "endpoints": ends}}
        else:
            config = self._object("v1", "ConfigMap", "mbd-prometheus-rules", {"prometheus_rules": "1"})
            yield {**config, "data": {"rules.yaml": rules}}
        if self.values.monitoring.dashboard:
            text = find_bundled("deploy/grafana/dashboard.json").read_text(encoding="utf-8")
            config = self._object("v1", "ConfigMap", "mbd-grafana-dashboard", {"grafana_dashboard": "1"})
            yield {**config, "data": {"missing-by-design.json": text}}

    def _policies(self) -> Iterator[Document]:
        """Yield policies: scrapes and clients in; DNS, the parameters' URLs and metrics out."""
        network, monitoring = self.values.network, self.values.monitoring.namespace
        yield self._policy("mbd-ingress", {"matchLabels": _PART}, "Ingress", None)
        open_to = {
            "mbd-exporter": (_METRICS, [_namespace(monitoring)]),
            "mbd-serve": (_HTTP, [_namespace(network.ingress_namespace), _namespace(monitoring)]),
            "mbd-inference": (_INFERENCE, [{"namespaceSelector": {}}]),  # who may ask: the gateway, and tokens
        }
        for name, (port, sources) in open_to.items():
            rule = {"from": sources, "ports": [{"protocol": "TCP", "port": port}]}
            yield self._policy(name, {"matchLabels": {_APP: name}}, "Ingress", [rule])
        params, serving = self.params, self.params.serving
        urls = (
            *(params.store.url, params.store.endpoint, params.monitoring.pushgateway, params.mlflow.uri),
            *(self.platform.kubeflow_host, self.platform.features.repository, serving.oidc.jwks, *serving.webhooks),
        )
        ports = sorted({*network.egress_ports, *filter(None, (_port(url) for url in urls if url))})
        dns = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
        rules = [
            {"to": [_namespace("kube-system")], "ports": dns},
            {"ports": [{"protocol": "TCP", "port": port} for port in ports]},
        ]
        yield self._policy("mbd-egress", {"matchLabels": _PART}, "Egress", rules)

    def _policy(self, name: str, pods: Document, direction: str, rules: list[Document] | None) -> Document:
        spec: Document = {"podSelector": pods, "policyTypes": [direction]}
        if rules is not None:
            spec[direction.lower()] = rules
        return {**self._object("networking.k8s.io/v1", "NetworkPolicy", name), "spec": spec}


def _namespace(name: str) -> Document:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _secret(name: str | None) -> Document:
    return {"secret": {"secretName": name, "defaultMode": 0o440}}


def _port(url: str) -> int | None:
    parts = urlsplit(url)
    return parts.port or {"http": 80, "https": 443, "ssh": 22}.get(parts.scheme)


def _read(folder: Path, place: str) -> str:
    """Return the content of a file of the folder, or of an environment variable `$NAME`."""
    if place.startswith("$"):
        if place[1:] not in os.environ:
            raise UsageError(
                "a secret is to be made of an environment variable that is not set",
                key="secrets.source",
                value=place,
                hint=f"export {place[1:]}=…, or set secrets.source to existing",
            )
        return os.environ[place[1:]]
    try:
        return (folder / place).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"a secret is to be made of a file that cannot be read: {error.strerror}",
            file=folder / place,
            key="secrets.folder",
            hint="`mbd keys new` and `mbd serve token` make them",
        ) from error
