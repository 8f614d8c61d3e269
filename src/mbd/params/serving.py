"""Parameters of `mbd serve`."""

from typing import Annotated

from pydantic import Field

from mbd.names import Name
from mbd.params.base import Count, Settings


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

    inference: InferenceSettings = InferenceSettings()
