"""Kubeflow component `certify`."""

from kfp import dsl

from components.base import component


@component
def certify(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    deleted: dsl.Input[dsl.Model],
    leakage: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    certificate: dsl.Output[dsl.Artifact],
    request: str = "",
    run: str = "",
) -> None:
    """Sign a certificate of what was shown; refused by the gate, the run fails here with the reason."""
    from mbd.kubeflow import tasks

    tasks.certify(params, dataset, deleted, leakage, evaluation, request, run, certificate)
