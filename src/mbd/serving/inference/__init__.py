"""Inference by the Open Inference Protocol, version 2: only what the guard admits answers.

    service = InferenceService(params, open_store(url), trust)
    app.include_router(router(service))          # it runs as long as the application
    service.samples.text()                       # metrics for Prometheus

A request goes through `routes` (HTTP), `protocol` (tensors), `served` (which release, and does it take this) and
`batching` (together with others of its kind) to `Model.predict`. Beside that, `poller` follows the log (`releases`).
"""

from mbd.serving.inference.routes import router
from mbd.serving.inference.service import InferenceService

__all__ = ["InferenceService", "router"]
