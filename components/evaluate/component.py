"""Kubeflow component `evaluate`."""

from kfp import dsl

from components.base import component


@component
def evaluate(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.Markdown],
    reference: dsl.Input[dsl.Model] = None,
    subjects: list[str] = [],
) -> None:
    """Measure a model with modalities missing and damaged, beside the reference where there is one."""
    from mbd.kubeflow import tasks

    tasks.evaluate(params, dataset, model, evaluation, metrics, page, reference, subjects)
