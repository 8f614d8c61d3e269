"""Parameters of a model in production: requests, registries, the Kubeflow cluster, and `mbd serve`.

The cluster: where it is, what a step's container gets, what happens when one fails. `mbd serve`: who may do what, how
much, who is notified, and which models answer.
"""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from mbd.params.base import Count, NonNegative, Settings
from mbd.params.operations import Url
from mbd.records import Name

PIPELINES = ("train", "delete", "reaudit", "sweep")
KUBEFLOW_TOKEN = "MBD_KUBEFLOW_TOKEN"  # noqa: S105 -- the name of an environment variable


class RevisionSettings(Settings):
    """The FeatureSet of a DVC revision that pipelines work on."""

    repository: Url | None = None
    """git URL of the DVC repository; null: every step makes the FeatureSet of features.source itself"""
    rev: str = "HEAD"
    """branch, tag or commit"""
    path: str = "build/features"
    """folder of the FeatureSet in the repository"""
    remote: str | None = None
    """DVC remote to read from; null: the repository's default"""


class TolerationSettings(Settings):
    """A taint that training may ignore."""

    key: str
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class GpuSettings(Settings):
    """What steps that train ask for."""

    type: str = "nvidia.com/gpu"
    """resource name of the accelerator"""
    limit: Annotated[int, Field(ge=0)] = 0
    """how many; 0: train on the CPU, with the CPU image"""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """labels that the node must have"""
    tolerations: tuple[TolerationSettings, ...] = ()
    """taints of GPU nodes to ignore"""


class RetriesSettings(Settings):
    """What happens when a step fails."""

    count: Annotated[int, Field(ge=0)] = 2
    """retries of a step (never after a refusal by the gate)"""
    backoff_seconds: NonNegative = 30
    """wait before the first retry; doubles each time"""


class PlatformSettings(Settings):
    """The Kubeflow cluster."""

    kubeflow_host: Url | None = None
    """URL of the Kubeflow Pipelines API; null: none"""
    namespace: str | None = None
    """namespace of runs, where the installation has several users"""
    experiment: str = "missing-by-design"
    """experiment of the runs"""
    pipeline_root: Annotated[str, Field(pattern=r"^[a-z0-9]+://")] | None = None
    """where Kubeflow keeps artifacts; null: the cluster's default"""
    service_account: str | None = None
    """service account of the steps' pods"""
    image: str = "missing-by-design:cpu"
    """image of every step; pin it by digest (NAME@sha256:…) for production"""
    gpu_image: str = "missing-by-design:gpu"
    """image of steps that train when gpu.limit is above 0"""
    gpu: GpuSettings = GpuSettings()
    cpu: str = "1"
    """CPU request of a step"""
    memory: str = "4Gi"
    """memory request and limit of a step"""
    timeout_seconds: Count = 21600
    """timeout of one step"""
    retries: RetriesSettings = RetriesSettings()
    patience_seconds: NonNegative = 600
    """how long a step waits, trying again, while the store, the DVC remote or another service is away"""
    secrets: dict[str, dict[str, str]] = Field(default_factory=dict)
    """secret: {key: environment variable}; credentials of store, DVC remote, Pushgateway"""
    keys_secret: str | None = None
    """secret with the signing keys, mounted read-only at keys_path; null: none"""
    keys_path: str = "/workspace/build/keys"
    """folder of certificate.signers in a container"""
    lineage_secret: str | None = None
    """secret with lineage.key, for tasks that fetch the current release or find persons; null: they get keys_secret"""
    lineage_path: str = "/workspace/build/lineage"
    """folder of certificate.lineage_key in a container, if there is a lineage_secret"""
    trust_config: str | None = None
    """config map with the trust file, mounted into every task at trust_path; null: only tasks that sign have one"""
    trust_path: str = "/workspace/build/trust"
    """folder of certificate.trust in a container, if there is a trust_config"""
    state_claim: str | None = None
    """persistent volume claim for what outlives a task (ledgers, openings, tombstones), mounted at state_path"""
    state_path: str = "/workspace/build/ledgers"
    """folder of deletion.ledgers in a container"""
    data_keys_claim: str | None = None
    """persistent volume claim with the wrapped data keys, mounted at data_keys_path; shredding.enabled needs one"""
    data_keys_path: str = "/workspace/build/shredding"
    """folder of shredding.keys in a container"""
    wrapper_secret: str | None = None
    """secret with the key that wraps data keys, mounted read-only at wrapper_path; null: a KMS wraps"""
    wrapper_path: str = "/workspace/build/wrapper"
    """folder of shredding.wrapper in a container"""
    extraction_tasks: Count = 1
    """tasks that encode raw media side by side in the pipeline train, by a cache on the volume of state_claim"""
    features: RevisionSettings = RevisionSettings()


Public = Literal["store", "metrics", "inference"]
PUBLIC: tuple[Public, ...] = get_args(Public)


def _encrypted(url: str) -> str:
    if not url.startswith(("https://", "http://127.0.0.1", "http://localhost", "http://[::1]")):
        raise ValueError("use https://; plain http:// is accepted for the loopback interface only")
    return url


SecureUrl = Annotated[Url, AfterValidator(_encrypted)]


class OidcSettings(Settings):
    """Bearer tokens of an OpenID provider, beside those of `mbd serve token`."""

    issuer: str | None = None
    """issuer of the tokens (claim `iss`); null: none are accepted"""
    audience: str | None = None
    """audience of the tokens (claim `aud`)"""
    jwks: str | None = None
    """public keys of the provider: a JWKS file, or an https:// URL"""
    claim: str = "roles"
    """claim that holds the roles: a list, or a text with blanks between them"""

    @model_validator(mode="after")
    def _is_complete(self) -> "OidcSettings":
        if self.issuer and not (self.audience and self.jwks):
            raise ValueError("to accept tokens of an OpenID provider, set issuer, audience and jwks")
        if self.jwks and "://" in self.jwks:
            _encrypted(self.jwks)
        return self


class InferenceSettings(Settings):
    """Inference by the Open Inference Protocol: which models, how they are batched, and when they are taken out."""

    models: tuple[Name, ...] = ()
    """names of the models to serve, each by its current release in the log; none: no inference"""
    poll_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """pause between two looks at the log: a new release is loaded, and a revoked one taken out, within one"""
    log_seconds: Annotated[float, Field(gt=0, le=86400)] = 300.0
    """how long models are served while the store cannot be reached; then they are taken out"""
    batch_rows: Annotated[int, Field(ge=1, le=4096)] = 64
    """rows that are computed at once, of requests with the same modalities"""
    batch_milliseconds: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """how long a request waits for others to be computed with; 0: only while another batch is computed"""
    queue_rows: Count = 1024
    """rows that may wait; requests beyond are answered 503"""
    request_rows: Count = 1024
    """rows of one request"""
    request_bytes: Annotated[int, Field(ge=1024, le=2**31)] = 16 << 20
    """largest body of a request"""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """CPU threads that compute"""
    folder: str | None = None
    """folder in which a private one (mode 0700) holds the fetched models; null: the system's temporary folder"""


class ServingSettings(Settings):
    """The HTTP interface."""

    tokens: str = "build/keys/tokens.json"
    """file of the access tokens, which holds only their hashes (`mbd serve token`)"""
    oidc: OidcSettings = OidcSettings()
    public: tuple[Public, ...] = PUBLIC
    """what needs no token: store (certificates, models and the published part of the store) | metrics | inference"""
    weights: bool = False
    """whether the weights in the store can be fetched"""
    url: SecureUrl | None = None
    """address that clients use, where it is not the one that the server listens on (a proxy)"""
    poll_seconds: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """pause between two scans of the store"""
    rate_per_minute: Annotated[int, Field(ge=0, le=10**6)] = 600
    """requests that one client may make each minute, by token or else by address, inference apart; 0: any number"""
    body_bytes: Annotated[int, Field(ge=1024, le=2**31)] = 1 << 16
    """largest body of a request, inference apart"""
    connections: Annotated[int, Field(ge=1, le=60000)] = 4000
    """connections at a time; beyond, a new one takes the place of the one that has waited longest for a request"""
    address_connections: Annotated[int, Field(ge=1, le=60000)] = 3000
    """the same of one address; every client of a proxy has that of the proxy"""
    shutdown_seconds: Annotated[int, Field(ge=1, le=600)] = 20
    """time that requests have to end when the server stops"""
    webhooks: tuple[SecureUrl, ...] = ()
    """URLs to which every change of a request's state is posted, signed with the secret in MBD_WEBHOOK_SECRET"""
    webhook_seconds: Annotated[float, Field(gt=0, le=60)] = 10.0
    """timeout of such a post"""
    inference: InferenceSettings = InferenceSettings()


class RequestsSettings(Settings):
    """Deletion requests, and the modality that is revoked by default."""

    modality: Name = "audio"
    """modality that dvc.yaml and the pipelines revoke unless another is given"""
    revocable: tuple[Name, ...] | None = None
    """modalities that a reference is trained for, so that deleting them trains nothing; null: all of the data"""
    due_days: Count = 30
    """days within which a request has to be carried out"""
    lease_seconds: Count = 600
    """time after which another worker takes over from a crashed one; a running worker renews its lease"""


class RegistrationSettings(Settings):
    """Which trained model becomes the current one of its name."""

    metric: str | None = None
    """metric on the valid split by which a new model is compared with the current one; null: the first of the task"""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """by how much the new model may be worse and still become current"""
    retrain_days: Count | None = None
    """days after which a model should be trained again, for an alert; null: never"""


class MlflowSettings(Settings):
    """An MLflow model registry from which a model is served; needs the extra `mlflow`."""

    uri: Url | None = None
    """URL of the tracking server; null: MLFLOW_TRACKING_URI. Credentials: MLflow's environment variables"""
    model: Name | None = None
    """registered model that releases are written back to, and whose old versions are purged; null: none"""
    alias: Name = "production"
    """alias that names the current release"""
    experiment: Name = "missing-by-design"
    """experiment whose runs hold the files of what is written back"""
