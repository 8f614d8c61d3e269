"""Kubeflow component `features`."""

from kfp import dsl

from components.base import component


@component
def features(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> list[str]:
    """Make or fetch the FeatureSet; hand on a reference with its digest, and which modalities references go without."""
    from mbd.kubeflow import tasks

    return tasks.features(params, dataset, metrics)
