"""Kubeflow components, one for each step. They hold no logic: each calls its task in :mod:`mbd.kubeflow`.

The image brings mbd and kfp, so that nothing is installed when a step starts. Pipelines put the image of
`platform.image` in place of the one named here. `components/README.md` lists what each takes and gives.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from kfp import dsl

from mbd.params.platform import PlatformSettings

IMAGE = PlatformSettings().image


def component(function: Callable[..., object]) -> Any:  # noqa: ANN401 -- kfp has no types
    """Make a component of a function that runs in our image."""
    return dsl.component(function, base_image=IMAGE, install_kfp_package=False)


@component
def features(
    resolved: dsl.Output[dsl.Artifact],
    dataset: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    params: str = "",
    model: str = "",
    overrides: list[str] = [],
    audits: bool = False,
) -> list[str]:
    """Begin a run: check its arguments and write all parameters for the other tasks, make or fetch the FeatureSet.

    It hands on where the FeatureSet is, with its digest, and which modalities references go without.
    """
    from mbd.kubeflow import tasks

    return tasks.features(params, resolved, dataset, metrics, model, overrides, audits=audits)


@component
def extract(
    resolved: dsl.Output[dsl.Artifact],
    shard: int,
    shards: int,
    params: str = "",
    model: str = "",
    overrides: list[str] = [],
) -> None:
    """Encode one of several parts of the raw media, for the cache that the other tasks read."""
    from mbd.kubeflow import tasks

    tasks.extract(params, resolved, shard, shards, model, overrides)


@component
def settings(params: dsl.Input[dsl.Artifact], setting: str, resolved: dsl.Output[dsl.Artifact]) -> None:
    """Lay one setting of a sweep over the parameters; its certified deletions are charged to ledgers of their own."""
    from mbd.kubeflow import tasks

    tasks.overlaid(params, setting, resolved)


@component
def train(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Train the backbone that the parameters name."""
    from mbd.kubeflow import tasks

    tasks.train(params, dataset, model, metrics)


@component
def reference(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    reference: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    modalities: list[str] = [],
    modality: str = "",
) -> None:
    """Train the model that never saw the modalities."""
    from mbd.kubeflow import tasks

    tasks.train(params, dataset, reference, metrics, without=modalities or [modality])


@component
def evaluate(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.Markdown],
    reference: dsl.Input[dsl.Model] = None,
    subjects: list[str] = [],
) -> None:
    """Measure a model with modalities missing and damaged, beside the reference where there is one."""
    from mbd.kubeflow import tasks

    tasks.evaluate(params, dataset, model, evaluation, metrics, page, reference, subjects)


@component
def fetch(
    resolved: dsl.Output[dsl.Artifact],
    modalities: list[str],
    model: dsl.Output[dsl.Model],
    dataset: dsl.Output[dsl.Dataset],
    params: str = "",
    name: str = "",
    method: str = "",
    epsilon: float = 0.0,
    overrides: list[str] = [],
    subjects: list[str] = [],
) -> list[str]:
    """Begin a deletion: check its arguments and write all parameters for the other tasks, fetch the current release.

    It is that of the model called `name` in the log; where its data are, and what is deleted, is handed on.
    """
    from mbd.kubeflow import tasks

    asked = params, resolved, modalities, subjects, model, dataset
    return tasks.fetch(*asked, name=name, method=method, epsilon=epsilon, overrides=overrides)


@component
def registered_reference(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    modalities: list[str],
    reference: dsl.Output[dsl.Model],
    subjects: list[str] = [],
) -> None:
    """Fetch the registered reference of the current release; only where none is registered, train it."""
    from mbd.kubeflow import tasks

    tasks.registered_reference(params, dataset, model, modalities, subjects, reference)


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


@component
def attack(
    params: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    after: dsl.Input[dsl.Model],
    reference: dsl.Input[dsl.Model],
    modalities: list[str],
    leakage: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.Markdown],
    before: dsl.Input[dsl.Model] = None,
    subjects: list[str] = [],
) -> None:
    """Attack the deleted model beside the reference; the decision of the gate is on record."""
    from mbd.kubeflow import tasks

    models = {"before": before, "after": after, "reference": reference}
    tasks.attack(params, dataset, modalities, leakage, metrics, page, subjects=subjects, **models)


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


@component
def publish(
    params: dsl.Input[dsl.Artifact],
    certificate: dsl.Input[dsl.Artifact],
    deleted: dsl.Input[dsl.Model],
    published: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.Markdown],
) -> None:
    """Publish certificate and deleted model to the store, with an entry in the log."""
    from mbd.kubeflow import tasks

    tasks.publish(params, certificate, deleted, published, page)


@component
def purge(
    params: dsl.Input[dsl.Artifact],
    published: dsl.Input[dsl.Artifact],
    deleted: dsl.Input[dsl.Model],
    proof: dsl.Output[dsl.Artifact],
    requested: bool = True,
) -> None:
    """Remove every copy of the old weights if requested, and state in the log what was removed and what is left."""
    from mbd.kubeflow import tasks

    tasks.purge(params, published, deleted, proof, requested=requested)


@component
def require_purged(proof: dsl.Input[dsl.Artifact]) -> None:
    """Fail if a purge was requested and a copy is left, or a place could not be searched."""
    from mbd.kubeflow import tasks

    tasks.require_purged(proof)


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
    from mbd.kubeflow import tasks

    tasks.register(params, dataset, model, references, registered, run)


@component
def published(
    params: dsl.Input[dsl.Artifact],
    modality: str,
    model: dsl.Output[dsl.Model],
) -> NamedTuple("Published", [("revoked", list), ("certificate", str)]):  # type: ignore[valid-type]
    """Fetch the current release without a modality; return all that was ever deleted from it, and its certificate."""
    from mbd.kubeflow import tasks

    return tasks.published(params, modality, model)


@component
def reaudit(params: dsl.Input[dsl.Artifact], certificate: str, leakage: dsl.Input[dsl.Artifact], run: str = "") -> None:
    """Log what new attacks found; refused by the gate, the certificate is refuted and the run fails."""
    from mbd.kubeflow import tasks

    tasks.reaudit(params, certificate, leakage, run)
