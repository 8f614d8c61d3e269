"""Kubeflow component `published`."""

from typing import NamedTuple

from kfp import dsl

from components.base import component


@component
def published(
    params: dsl.Input[dsl.Artifact],
    modality: str,
    model: dsl.Output[dsl.Model],
) -> NamedTuple("Published", [("modalities", list), ("revoked", list), ("certificate", str)]):  # type: ignore[valid-type]
    """Fetch the model that was published last without a modality, and say what its certificate is about."""
    from mbd.kubeflow import tasks

    return tasks.published(params, modality, model)
