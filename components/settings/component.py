"""Kubeflow component `settings`."""

from components.base import component


@component
def settings(params: str, setting: str) -> str:
    """Lay one setting of a sweep over the parameters; its certified deletions are charged to ledgers of their own."""
    from mbd.kubeflow import tasks

    return tasks.overlaid(params, setting)
