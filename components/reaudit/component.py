"""Kubeflow component `reaudit`."""

from kfp import dsl

from components.base import component


@component
def reaudit(params: dsl.Input[dsl.Artifact], certificate: str, leakage: dsl.Input[dsl.Artifact], run: str = "") -> None:
    """Log what new attacks found; refused by the gate, the certificate is refuted and the run fails."""
    from mbd.kubeflow import tasks

    tasks.reaudit(params, certificate, leakage, run)
