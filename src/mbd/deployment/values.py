"""What a deployment needs besides the parameters: `values.yaml`.

Images, secrets, claims, GPU and namespace of the runs are parameters (`platform`), because the pipelines use them too.
"""

import json
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from mbd.params import load_params
from mbd.params.base import Count, Settings
from mbd.params.tree import read_tree, validate_tree
from mbd.records import Name

Schedule = Annotated[str, Field(pattern=r"^\S+( \S+){4}$")]
_DNS = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class ResourceValues(Settings):
    """What a container gets."""

    cpu: str = "100m"
    """CPU request"""
    memory: str = "512Mi"
    """memory request and limit"""


class SecretValues(Settings):
    """Where the secrets that the parameters name come from."""

    source: Literal["existing", "files", "external"] = "existing"
    """existing: they are there | files: made of `folder` and of the environment | external: by External Secrets"""
    folder: str = "build/keys"
    """folder of the keys, trust.json and tokens.json, as `mbd keys new` and `mbd serve token` write them"""
    store: str | None = None
    """external: name of the secret store"""
    kind: Literal["ClusterSecretStore", "SecretStore"] = "ClusterSecretStore"
    """external: its kind"""
    path: str = "missing-by-design"
    """external: where in it the secrets are: PATH/SECRET, with the keys as properties"""


class ClaimValues(Settings):
    """The volumes that platform.state_claim and platform.data_keys_claim name."""

    create: bool = True
    """whether to make them; false: they are there"""
    storage_class: str | None = None
    """storage class that can be written to by several nodes; null: the cluster's default"""
    access: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """ReadWriteOnce suffices on a cluster of one node"""
    size: str = "10Gi"
    """size of each"""


class ServeValues(Settings):
    """The HTTP interface: requests, certificates, the store, the console."""

    replicas: Annotated[int, Field(ge=0)] = 2
    """0: none"""
    tokens_secret: _DNS = "mbd-access"  # noqa: S105 -- the name of a secret
    """secret with tokens.json, which holds hashes only, and request.key, under which requests are entered"""
    host: str | None = None
    """host name of an Ingress before it; null: none"""
    ingress_class: str | None = None
    """class of the Ingress; null: the cluster's default"""
    tls_secret: _DNS | None = None
    """secret with the certificate of the host; null: the Ingress has none"""
    resources: ResourceValues = ResourceValues()


class InferenceValues(Settings):
    """The model server."""

    models: tuple[Name, ...] = ()
    """models to serve, by their names in the log; none: no model server"""
    kserve: bool = False
    """a ServingRuntime and an InferenceService of KServe; false: a Deployment and a Service"""
    replicas: Count = 2
    """pods; a release is swapped in each of them, without a rollout"""
    resources: ResourceValues = ResourceValues(cpu="1", memory="2Gi")


class ScheduleValues(Settings):
    """What runs by the clock; null: not at all."""

    requests: Schedule | None = "0 * * * *"
    """the worker that carries out requests, and renews the log's checkpoint"""
    scan: Schedule | None = "30 2 * * *"
    """the search for purged files that have come back"""


class MonitoringValues(Settings):
    """Metrics, rules and dashboard."""

    exporter: bool = True
    """whether to run the exporter"""
    operator: bool = False
    """a ServiceMonitor and a PrometheusRule of the Prometheus Operator; false: annotations and a config map"""
    dashboard: bool = True
    """a config map with the dashboard, labelled for Grafana's sidecar"""
    namespace: str = "monitoring"
    """namespace of Prometheus and the Pushgateway"""


class NetworkValues(Settings):
    """Network policies for the pods made here."""

    policies: bool = True
    """whether to make them"""
    ingress_namespace: str = "ingress-nginx"
    """namespace of the ingress controller, or of the gateway"""
    egress_ports: tuple[int, ...] = (443,)
    """ports that may be reached, besides those of the URLs in the parameters"""


class DeployValues(Settings):
    """Everything about a deployment that is no parameter."""

    namespace: _DNS = "kubeflow"
    """namespace of everything here: that of the runs, which use its secrets and claims"""
    secrets: SecretValues = SecretValues()
    claims: ClaimValues = ClaimValues()
    serve: ServeValues = ServeValues()
    inference: InferenceValues = InferenceValues()
    schedules: ScheduleValues = ScheduleValues()
    monitoring: MonitoringValues = MonitoringValues()
    network: NetworkValues = NetworkValues()


def read_values(file: Path) -> DeployValues:
    """Return the values in a file."""
    return validate_tree(*read_tree(file, ()), DeployValues)


NAMED = {
    "platform.secrets": {"mbd-store": {name: name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}},
    "platform.keys_secret": "mbd-keys",
    "platform.trust_config": "mbd-trust",
    "platform.state_claim": "mbd-state",
}
"""parameters that a deployment needs, and what `mbd init --kubeflow` sets them to"""


def with_names(params_file: Path | None, settings: Sequence[str]) -> tuple[str, ...]:
    """Return the settings, and before them those of :data:`NAMED` that neither they nor the file set."""
    params = load_params(params_file, settings)
    missing = {key: value for key, value in NAMED.items() if not attrgetter(key)(params)}
    return (*(f"{key}={json.dumps(value)}" for key, value in missing.items()), *settings)
