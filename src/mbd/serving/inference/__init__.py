"""Inference by the Open Inference Protocol, version 2: only what the guard admits answers.

    from mbd.serving.inference.routes import InferenceService, router

    service = InferenceService(params, open_store(url), trust)
    app.include_router(router(service))          # it runs as long as the application
    service.samples.text()                       # metrics for Prometheus

A request goes through `routes` (HTTP), `protocol` (tensors), `served` (which release, and does it take
this) and `batching` (together with others of its kind) to `Model.predict`. Beside that, `releases` follows the log.
"""
