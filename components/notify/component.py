"""Kubeflow component `notify`."""

from kfp import dsl

from components.base import component


@component
def notify(
    params: str,
    pipeline: str,
    run: str,
    status: dsl.PipelineTaskFinalStatus,
    modalities: list[str] = [],
    modality: str = "",
    model: str = "",
    overrides: list[str] = [],
    purged: bool = False,
) -> None:
    """Report to Prometheus how a run ended, by what it published; never fails itself."""
    from mbd.kubeflow import ending

    wanted, message = modalities or [modality], status.error_message or ""
    ended = pipeline, run, wanted, status.state, message
    ending.notify(params, *ended, model=model, overrides=overrides, purged=purged)
