"""Tasks around the model in production: fetch the current release and its reference, register a trained model."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mbd.files import to_json, write_file
from mbd.formats.files import REPORT
from mbd.kubeflow.common import Artifact, environment, origin, running, sealed, task, work_folder, write_resolved

_NO_REFERENCE = "Single subjects are deleted; the deletion is exact and needs no reference.\n"
_LOG = logging.getLogger(__name__)


@task
def fetch(
    params: str,
    resolved: Artifact,
    modalities: Sequence[str],
    subjects: Sequence[str],
    model: Artifact,
    dataset: Artifact,
    *,
    name: str = "",
    method: str = "",
    epsilon: float = 0.0,
    overrides: Sequence[str] = (),
) -> list[str]:
    """Begin a deletion: fetch the current release of the model; hand on where its data are, and all parameters.

    Returns:
        What is deleted from it.
    """
    from mbd.kubeflow.data import bring_features, keep_shared
    from mbd.production.answers import refuse_not_held
    from mbd.production.releases import fetch_release, not_taken

    write_resolved(resolved, params, name, method, epsilon, overrides, audits=True)
    with running(resolved, "models-fetch") as values, work_folder(values.shredding, "mbd-features-") as work:
        url, folder = values.store.url, work / "features"
        with sealed(values.shredding, model) as out:
            start = fetch_release(values, url, out, modalities, person=bool(subjects))
        made, _ = bring_features(values, folder, start.base.revision)
        left_out = {"left_out": start.respected.certificates, "without": not_taken(start.record, folder)}
        reference = made.model_copy(update=left_out)
        if subjects:
            with start.respected.left_out(folder, reference.without) as data:
                refuse_not_held(values, url, data, modalities, subjects)
        write_file(Path(dataset.path), reference.to_json())
        keep_shared(folder, reference, values.shredding)
    dataset.metadata |= {"name": reference.name, "digest": reference.digest, "commit": reference.commit or ""}
    model.metadata |= {"sha256": start.record.sha256, "model": values.certificate.model}
    return list(start.modalities)


@task
def registered_reference(
    params: Artifact,
    dataset: Artifact,
    model: Artifact,
    modalities: Sequence[str],
    subjects: Sequence[str],
    reference: Artifact,
) -> None:
    """Fetch the registered reference of the current release; where there is none, train it."""
    if subjects:
        reference.metadata["trained"] = False
        write_file(Path(reference.path) / REPORT, _NO_REFERENCE)
        return
    from mbd.kubeflow.data import feature_set
    from mbd.model.checkpoint import load_model
    from mbd.production.releases import find_base, obtain_reference
    from mbd.steps.step import read_folder

    with running(params, "models-fetch") as values:
        old = read_folder(Path(model.path))
        base, data = find_base(values, values.store.url, old), feature_set(Path(dataset.path), values)
        with sealed(values.shredding, reference) as out:
            trained = obtain_reference(base, load_model(old)[0], modalities, data, out)
    reference.metadata["trained"] = trained


@task
def register(
    params: Artifact,
    dataset: Artifact,
    model: Artifact,
    references: Sequence[Artifact],
    registered: Artifact,
    run: str = "",
) -> None:
    """Register a model and its references in the log; it becomes current unless it is worse than what is."""
    from mbd.kubeflow.data import feature_set
    from mbd.production import register as step

    with running(params, "register") as values, environment(origin(dataset, run)):
        folders, name = [Path(reference.path) for reference in references], values.certificate.model
        with feature_set(Path(dataset.path), values) as data:
            done = step.run(values, Path(model.path), folders, name, values.store.url, data)
    write_file(Path(registered.path), to_json(asdict(done)))
    registered.metadata |= {"registration": done.registration, "promoted": done.promoted, "reason": done.reason}
    _LOG.info("%s: %s (%s)", name, "current" if done.promoted else "not promoted", done.reason)
