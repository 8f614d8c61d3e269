"""Kubeflow component `settings`."""

from kfp import dsl

from components.base import component


@component
def settings(params: dsl.Input[dsl.Artifact], setting: str, written: dsl.Output[dsl.Artifact]) -> None:
    """Lay one setting of a sweep over the parameters; its certified deletions are charged to ledgers of their own."""
    from mbd.kubeflow import tasks

    tasks.overlaid(params, setting, written)
