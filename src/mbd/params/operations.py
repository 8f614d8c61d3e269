"""Parameters of the surroundings: object store, monitoring."""

from typing import Annotated

from pydantic import AfterValidator, Field

from mbd.params.base import Count, Name, Section


def _no_credentials(url: str) -> str:
    if "@" in url.split("://", 1)[-1].split("/", 1)[0]:
        raise ValueError("a URL in the parameters must not carry credentials; use the environment")
    return url


Url = Annotated[str, AfterValidator(_no_credentials)]


class Store(Section):
    """Where certificates and models are published."""

    url: Annotated[Url, Field(pattern=r"^(file|s3)://")] = "file://build/store"
    """file://FOLDER or s3://BUCKET[/PREFIX]"""
    endpoint: Url | None = None
    """S3 endpoint; null: Amazon's"""
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """longest wait for an answer"""


class Requests(Section):
    """Requests to forget, and what is revoked where nobody names a modality."""

    modality: Name = "audio"
    """what dvc.yaml and the pipelines revoke unless told otherwise"""
    due_days: Count = 30
    """days within which a request is to be carried out"""
    lease_seconds: Count = 3600
    """time after which the work of a crashed worker is taken over"""


class Monitoring(Section):
    """Where deletion metrics go."""

    pushgateway: Url | None = None
    """URL of a Prometheus Pushgateway; null: none"""
