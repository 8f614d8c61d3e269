"""Kubeflow component `reference`."""

from kfp import dsl

from components.base import component


@component
def reference(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    reference: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    modalities: list[str] = [],
    modality: str = "",
    known: dsl.Input[dsl.Model] = None,
) -> None:
    """Train the model that never saw the modalities; modules of `known` that never saw them are taken from there."""
    from mbd.kubeflow import tasks

    without, parts = modalities or [modality], [known] if known else []
    tasks.train(params, dataset, reference, metrics, without=without, parts=parts)
