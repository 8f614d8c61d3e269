"""Kubeflow component `features`."""

from kfp import dsl

from components.base import component


@component
def features(
    params: str,
    dataset: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Make or fetch the FeatureSet; hand on a reference with its digest, not the data."""
    from mbd.kubeflow import tasks

    tasks.features(params, dataset, metrics)
