"""Kubeflow component `delete`."""

from kfp import dsl

from components.base import component


@component
def delete(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    reference: dsl.Input[dsl.Model],
    modalities: list[str],
    deleted: dsl.Output[dsl.Model],
    subjects: list[str] = [],
) -> None:
    """Make the model forget the modalities."""
    from mbd.kubeflow import tasks

    tasks.delete(params, dataset, model, reference, modalities, subjects, deleted)
