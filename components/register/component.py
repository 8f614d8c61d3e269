"""Kubeflow component `register`."""

from kfp import dsl

from components.base import component


@component
def register(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    references: dsl.Input[list[dsl.Model]],
    registered: dsl.Output[dsl.Artifact],
    run: str = "",
) -> None:
    """Register a model and its references in the log; it becomes current unless it is worse than what is."""
    from mbd.kubeflow import production

    production.register(params, dataset, model, references, registered, run)
