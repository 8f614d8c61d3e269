"""Kubeflow component `registered_reference`."""

from kfp import dsl

from components.base import component


@component
def registered_reference(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    modalities: list[str],
    reference: dsl.Output[dsl.Model],
    subjects: list[str] = [],
) -> None:
    """Fetch the registered reference of the current release; only where none is registered, train it."""
    from mbd.kubeflow import production

    production.registered_reference(params, dataset, model, modalities, subjects, reference)
