"""Kubeflow component `train`."""

from kfp import dsl

from components.base import component


@component
def train(
    params: str,
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    seed: int = -1,
    parts: dsl.Input[list[dsl.Model]] = None,
) -> None:
    """Train the backbone that the parameters name, or make it of parts that are trained."""
    from mbd.kubeflow import tasks

    tasks.train(params, dataset, model, metrics, seed=seed, parts=parts or ())
