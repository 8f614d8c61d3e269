"""Kubeflow component `purge`."""

from kfp import dsl

from components.base import component


@component
def purge(
    params: dsl.Input[dsl.Artifact],
    published: dsl.Input[dsl.Artifact],
    deleted: dsl.Input[dsl.Model],
    proof: dsl.Output[dsl.Artifact],
    requested: bool = True,
) -> None:
    """Remove every copy of the old weights if requested, and prove it in the log; fails if one is left."""
    from mbd.kubeflow import tasks

    tasks.purge(params, published, deleted, proof, requested=requested)
