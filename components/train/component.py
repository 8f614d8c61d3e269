"""Kubeflow component `train`."""

from kfp import dsl

from components.base import component


@component
def train(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    parts: dsl.Input[list[dsl.Model]] = None,
) -> None:
    """Train the backbone that the parameters name, or make it of parts that are trained."""
    from mbd.kubeflow import tasks

    tasks.train(params, dataset, model, metrics, parts=parts or ())
