"""Kubeflow component `reference`."""

from kfp import dsl

from components.base import component


@component
def reference(
    params: str,
    dataset: dsl.Input[dsl.Dataset],
    modalities: list[str],
    reference: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    seed: int = -1,
    parts: dsl.Input[list[dsl.Model]] = None,
) -> None:
    """Train the model that never saw the modalities; not a byte of them is read."""
    from mbd.kubeflow import tasks

    tasks.train(params, dataset, reference, metrics, without=modalities, seed=seed, parts=parts or ())
