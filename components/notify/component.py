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
    purged: bool = False,
) -> None:
    """Report to Prometheus how a run ended, by what it published; never fails itself."""
    from mbd.kubeflow import tasks

    wanted, message = modalities or [modality], status.error_message or ""
    tasks.notify(params, pipeline, run, wanted, status.state, message, purged=purged)
