"""Kubeflow component `notify`."""

from kfp import dsl

from components.base import component


@component
def notify(params: str, pipeline: str, status: dsl.PipelineTaskFinalStatus) -> None:
    """Tell Prometheus how a run ended, whatever happened in it; never fails itself."""
    from mbd.kubeflow import tasks

    tasks.notify(params, pipeline, status.state, status.error_message or "")
