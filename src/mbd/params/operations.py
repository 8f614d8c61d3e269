"""Parameters of operations that those who verify have as well: certificates, store, monitoring, purge, shredding."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from mbd.formats.predicate import CHECKPOINT_AGE, LONGEST_INTERVAL
from mbd.params.base import Count, Settings
from mbd.records import Digest, Line, Name
from mbd.registry import scheme_of


class IssuerSettings(Settings):
    """Who answers for a certificate."""

    name: Line | None = None
    """person or organisation that issues certificates; it is published; null: MBD_ISSUER of the environment"""
    contact: Line | None = None
    """where to ask about a certificate: an e-mail address or a URL; it is published"""


class CertificateSettings(Settings):
    """A Modality Deletion Certificate."""

    signers: tuple[str, ...] = ("file:build/keys/signer.pem",)
    """URI of every key that signs: file:PATH, or URI#NAME for a KMS or HSM whose key the trust file has as NAME"""
    log_signer: str = "file:build/keys/log.pem"
    """URI of the key that signs the log's checkpoints"""
    trust: str = "build/keys/trust.json"
    """trust file: the trusted keys, with threshold and validity windows"""
    model: Name = "sentiment"
    """name under which the model is published"""
    lineage_key: str | None = None
    """file with the secret by which certificates name their lineage; null: lineage.key beside the first signing key"""
    issuer: IssuerSettings = IssuerSettings()
    private: str = "build/private"
    """folder (mode 0700) for the openings of commitments; never published, never part of a bundle"""
    reaudit_days: Annotated[int, Field(ge=1, le=LONGEST_INTERVAL.days)] = 90
    """days until the deleted model has to be audited again"""
    checkpoint_days: Annotated[int, Field(ge=1, le=366)] = CHECKPOINT_AGE.days
    """days after which a checkpoint of the log is too old to show that nothing was revoked (`mbd log renew`)"""
    first_time: bool = False
    """let this machine sign a log that has entries and that it has never signed (--first-time)"""

    @property
    def checkpoint_age(self) -> timedelta:
        """How old a checkpoint of the log may be."""
        return timedelta(days=self.checkpoint_days)


def _no_credentials(url: str) -> str:
    if "@" in url.split("://", 1)[-1].split("/", 1)[0]:
        raise ValueError("a URL in the parameters must not carry credentials; use the environment")
    return url


def _has_store_scheme(url: str) -> str:
    scheme_of(url)
    return url


Url = Annotated[str, AfterValidator(_no_credentials)]


class StoreSettings(Settings):
    """Where certificates and models are published."""

    url: Annotated[Url, AfterValidator(_has_store_scheme)] = "file://build/store"
    """file://FOLDER, s3://BUCKET[/PREFIX], https://HOST[/PREFIX] (to read), or of an installed package"""
    private: Annotated[Url, AfterValidator(_has_store_scheme)] | None = None
    """URL of requests, working files and tombstones, which readers of the store must not see; null: private/ in it"""
    endpoint: Url | None = None
    """S3 endpoint; null: Amazon's"""
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """timeout of a request"""
    retries: Annotated[int, Field(ge=0, le=20)] = 5
    """retries of a request that fails because of the server or the network, with growing pauses"""
    part_mebibytes: Annotated[int, Field(ge=5, le=1024)] = 16
    """size of the parts of multipart uploads to S3"""
    lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None = "GOVERNANCE"
    """Object Lock of certificates, where the bucket has it: GOVERNANCE | COMPLIANCE (cannot be lifted); null: none"""
    lock_days: Annotated[int, Field(ge=1, le=36500)] = 365
    """days that a certificate stays locked"""


class MonitoringSettings(Settings):
    """Metrics for Prometheus, and how they are delivered."""

    mode: Literal["none", "push", "textfile"] = "none"
    """how steps report their metrics: none | push (to a Pushgateway) | textfile (for a node exporter)"""
    pushgateway: Url | None = None
    """URL of a Prometheus Pushgateway (user and password: PUSHGATEWAY_USER, PUSHGATEWAY_PASSWORD); null: none"""
    textfile: str = "build/metrics"
    """folder of the textfiles; also where metrics go that could not be pushed"""
    job: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,63}$")] = "mbd"
    """job label of the metrics of steps"""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 5.0
    """timeout of the Pushgateway"""
    schedules: dict[Annotated[str, Field(pattern=r"^[a-z][a-z-]*$")], Count] = Field(default_factory=dict)
    """{command: seconds between scheduled runs}, as {request-run: 86400}; two missed or failed runs raise an alert"""
    scan_seconds: Annotated[float, Field(gt=0, le=86400)] = 60.0
    """pause between two scans of the store by the exporter"""
    kubeflow: bool = False
    """whether the exporter also asks platform.kubeflow_host how the last runs ended"""

    @model_validator(mode="after")
    def _has_a_gateway(self) -> "MonitoringSettings":
        if self.mode == "push" and self.pushgateway is None:
            raise ValueError("to push, set monitoring.pushgateway to the URL of the Pushgateway")
        return self


class PurgeSettings(Settings):
    """Removal of every copy of the old weights."""

    features: bool = False
    """also remove the feature files and cached vectors of the deleted modality"""
    also: tuple[Digest, ...] = ()
    """SHA-256 of further files to remove: exports, dumps, models of other experiments"""
    keys: bool = False
    """also destroy the data keys of the deleted modality: no encrypted model that took it can be read afterwards"""
    folders: tuple[Url, ...] = ()
    """further places to search: folders, file:// or s3:// URLs (model registries, exports, backups, clones)"""
    kfp_root: str = "build/kfp"
    """folder with the outputs of pipelines that ran on this machine"""
    archives: bool = False
    """also remove archives and other files that hold what is purged among other things"""
    shared_caches: bool = False
    """also remove from a DVC cache that other repositories may use"""
    tombstones: str | None = "build/tombstones"
    """digests that no step may read or write: a file, or the URL of a store; null: not checked"""


class ShreddingSettings(Settings):
    """Encrypted FeatureSets and models, made unreadable everywhere by destroying a key."""

    enabled: bool = False
    """let steps read encrypted folders, decrypted while the step runs"""
    keys: str = "build/shredding"
    """folder of the wrapped data keys and of shredding.json; keep it out of backups, or destroyed keys come back"""
    wrapper: Annotated[str, Field(pattern=r"^(file|awskms):.+")] = "file:build/keys/shredding.kek"
    """key that wraps the data keys: file:PATH (mode 0600), or awskms:KEY (id, ARN or alias/NAME)"""
    lineage: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """name under which keys are kept; null: the name of the data, for a FeatureSet and all models made from it"""
    temporary: str | None = None
    """folder for plaintext while a step runs; null: /dev/shm if there is one, else the system's temporary folder"""
