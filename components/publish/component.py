"""Kubeflow component `publish`."""

from kfp import dsl

from components.base import component


@component
def publish(
    params: dsl.Input[dsl.Artifact],
    certificate: dsl.Input[dsl.Artifact],
    deleted: dsl.Input[dsl.Model],
    published: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.Markdown],
) -> None:
    """Publish certificate and deleted model to the store, with an entry in the log."""
    from mbd.kubeflow import tasks

    tasks.publish(params, certificate, deleted, published, page)
