"""Kubeflow component `attack`."""

from kfp import dsl

from components.base import component


@component
def attack(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    after: dsl.Input[dsl.Model],
    reference: dsl.Input[dsl.Model],
    modalities: list[str],
    leakage: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.Markdown],
    before: dsl.Input[dsl.Model] = None,
    subjects: list[str] = [],
) -> None:
    """Attack the deleted model beside the reference; the decision of the gate is on record."""
    from mbd.kubeflow import tasks

    models = {"before": before, "after": after, "reference": reference}
    tasks.attack(params, dataset, modalities, leakage, metrics, page, subjects=subjects, **models)
