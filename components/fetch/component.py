"""Kubeflow component `fetch`."""

from kfp import dsl

from components.base import component


@component
def fetch(
    params: dsl.Input[dsl.Artifact],
    modalities: list[str],
    model: dsl.Output[dsl.Model],
    dataset: dsl.Output[dsl.Dataset],
    subjects: list[str] = [],
) -> list[str]:
    """Fetch the current release of the model from the log, and a reference to its data; return what is deleted."""
    from mbd.kubeflow import production

    return production.fetch(params, modalities, subjects, model, dataset)
