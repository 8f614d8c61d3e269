"""Parameters of the Kubeflow cluster: where it is, what a step's container gets, what happens when one fails."""

from typing import Annotated, Literal

from pydantic import Field

from mbd.params.base import Count, NonNegative, Settings
from mbd.params.operations import Url

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
