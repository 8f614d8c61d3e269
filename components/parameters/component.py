"""Kubeflow component `parameters`."""

from kfp import dsl

from components.base import component


@component
def parameters(
    written: dsl.Output[dsl.Artifact],
    params: str = "",
    model: str = "",
    method: str = "",
    epsilon: float = 0.0,
    overrides: list[str] = [],
) -> None:
    """Check the arguments of a run and write all its parameters, for every other task; empty: as in `params`."""
    from mbd.kubeflow import tasks

    tasks.parameters(params, written, model, method, epsilon, overrides)
