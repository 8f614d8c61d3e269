"""Kubeflow component `train_part`."""

from kfp import dsl

from components.base import component


@component
def train_part(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    number: int,
    count: int,
    part: dsl.Output[dsl.Model],
) -> None:
    """Train some of the modules of a lattice, side by side with the others."""
    from mbd.kubeflow import tasks

    tasks.train_part(params, dataset, number, count, part)
