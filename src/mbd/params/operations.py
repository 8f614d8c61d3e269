"""Parameters of operations: the object store, requests, monitoring and the purge."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from mbd.errors import UsageError
from mbd.params.base import Count, Name, Settings
from mbd.records import Digest
from mbd.registry import STORES


def _no_credentials(url: str) -> str:
    if "@" in url.split("://", 1)[-1].split("/", 1)[0]:
        raise ValueError("a URL in the parameters must not carry credentials; use the environment")
    return url


def scheme_of(url: str) -> str:
    """Return the scheme of a store's URL; a UsageError if there is no such store."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise UsageError("a store is named by a URL", key="store.url", value=url, hint="write file://FOLDER")
    return STORES.check(scheme)


def _has_store_scheme(url: str) -> str:
    scheme_of(url)
    return url


Url = Annotated[str, AfterValidator(_no_credentials)]


class StoreSettings(Settings):
    """Where certificates and models are published."""

    url: Annotated[Url, AfterValidator(_has_store_scheme)] = "file://build/store"
    """file://FOLDER, s3://BUCKET[/PREFIX], or a scheme that an installed package adds"""
    endpoint: Url | None = None
    """S3 endpoint; null: Amazon's"""
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """longest wait for an answer"""
    retries: Annotated[int, Field(ge=0, le=20)] = 5
    """how often a request that fails by the server's or the network's fault is made again, after growing pauses"""
    part_mebibytes: Annotated[int, Field(ge=5, le=1024)] = 16
    """size of the parts in which larger files go to S3"""
    lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None = "GOVERNANCE"
    """Object Lock of certificates, where the bucket has it: GOVERNANCE | COMPLIANCE (nobody can lift it); null: none"""
    lock_days: Annotated[int, Field(ge=1, le=36500)] = 365
    """days that a certificate stays locked"""


class RequestsSettings(Settings):
    """Requests to forget, and what is revoked where nobody names a modality."""

    modality: Name = "audio"
    """what dvc.yaml and the pipelines revoke unless told otherwise"""
    due_days: Count = 30
    """days within which a request is to be carried out"""
    lease_seconds: Count = 600
    """time after which the work of a crashed worker is taken over; a living one renews its lease"""


class MonitoringSettings(Settings):
    """What Prometheus is told, and how."""

    mode: Literal["none", "push", "textfile"] = "none"
    """how steps report when they have ended: none | push (to a Pushgateway) | textfile (for a node exporter)"""
    pushgateway: Url | None = None
    """URL of a Prometheus Pushgateway (user and password: PUSHGATEWAY_USER, PUSHGATEWAY_PASSWORD); null: none"""
    textfile: str = "build/metrics"
    """folder of the textfiles; also where metrics go that could not be pushed"""
    job: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,63}$")] = "mbd"
    """job under which steps report"""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 5.0
    """longest wait for the Pushgateway"""
    schedules: dict[Annotated[str, Field(pattern=r"^[a-z][a-z-]*$")], Count] = Field(default_factory=dict)
    """{command: seconds between its scheduled runs}, as {request-run: 86400}; two without success raise an alert"""
    scan_seconds: Annotated[float, Field(gt=0, le=86400)] = 60.0
    """pause between two looks of the exporter at the store"""

    @model_validator(mode="after")
    def _has_a_gateway(self) -> "MonitoringSettings":
        if self.mode == "push" and self.pushgateway is None:
            raise ValueError("to push, set monitoring.pushgateway to the URL of the Pushgateway")
        return self


class PurgeSettings(Settings):
    """Removing every copy of the old weights, and keeping them away."""

    features: bool = False
    """whether the deleted modality's feature files and cached vectors go, too"""
    also: tuple[Digest, ...] = ()
    """SHA-256 of further files that go: exports, dumps, models of other experiments"""
    keys: bool = False
    """whether the deleted modality's data keys are destroyed: no encrypted model that took it can be read then"""
    folders: tuple[Url, ...] = ()
    """further places to search: folders, file:// or s3:// URLs (model registries, exports, backups, clones)"""
    kfp_root: str = "build/kfp"
    """folder with the outputs of pipelines that ran on this machine"""
    shared_caches: bool = False
    """whether to remove from a DVC cache that other repositories may use, too"""
    tombstones: str | None = "build/tombstones"
    """digests that no step may read or write: a file, or the URL of a store; null: steps do not look"""
