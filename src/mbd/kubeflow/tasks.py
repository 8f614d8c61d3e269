"""One function for each Kubeflow component: it calls the step and looks after the artifacts.

The first task of a run writes all parameters into an artifact, which the others read. What comes in is checked against
the digests of its `step.json`, and so is what goes out: a task has succeeded when its output verifies, not when its
process ended well. Models go in and out encrypted where crypto-shredding is enabled (:mod:`mbd.kubeflow.common`).
"""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from mbd.errors import GateRefusedError
from mbd.files import canonical_digest, read_json, to_json, write_file
from mbd.formats.files import METRICS, REPORT
from mbd.formats.leakage import LEAKAGE
from mbd.kubeflow.common import (
    Artifact,
    environment,
    have_keys,
    hide_persons,
    numbers,
    origin,
    running,
    sealed,
    task,
    work_folder,
    write_artifact,
    write_resolved,
)
from mbd.outputs import read_step
from mbd.params import load_params

# Tasks import steps when they run: a task does not wait for the imports of the others.
_NO_REFERENCE = "Single subjects are deleted; the deletion is exact and needs no reference.\n"
NOT_ATTACKED = "Single subjects were forgotten; attacks are about whole modalities, so nothing was attacked.\n"
NOT_PURGED = "No purge was asked for (`purge_copies`): copies of the old weights may exist.\n"
NOT_REQUESTED = "not requested"
_LOG = logging.getLogger(__name__)


@task
def features(
    params: str,
    resolved: Artifact,
    dataset: Artifact,
    metrics: Artifact,
    model: str = "",
    overrides: Sequence[str] = (),
    *,
    audits: bool = False,
) -> list[str]:
    """Begin a run: make or fetch the FeatureSet; hand on where it is, and all parameters.

    Returns:
        The modalities to train references without.
    """
    from mbd.kubeflow.data import bring_features, keep_shared
    from mbd.steps.revoked import read_revoked, revocable

    write_resolved(resolved, params, model, overrides=overrides, audits=audits)
    with running(resolved, "features") as values, work_folder(values.shredding, "mbd-features-") as work:
        folder = work / "features"
        made, summary = bring_features(values, folder)
        reference = made.model_copy(update={"left_out": read_revoked(values).certificates})
        dataset.metadata |= {"name": reference.name, "digest": reference.digest, "commit": reference.commit or ""}
        metrics.metadata |= numbers(summary.ridge)
        write_file(Path(dataset.path), reference.to_json())
        modalities = list(revocable(values, folder))
        keep_shared(folder, reference, values.shredding)
        _LOG.info(summary.to_text())
        return modalities


@task
def extract(
    params: str, resolved: Artifact, shard: int, shards: int, model: str = "", overrides: Sequence[str] = ()
) -> None:
    """Encode a part of the raw media, for the cache that `features` and every later task read."""
    from mbd.errors import UsageError

    write_resolved(resolved, params, model, overrides=overrides)
    with running(resolved, "features") as values:
        from mbd.features.sources import kind_of
        from mbd.features.sources.media import fill_cache

        if values.shredding.enabled or kind_of(values.features.source) != "media":
            raise UsageError(
                "only raw media are extracted side by side, and not with crypto-shredding: the cache is plain",
                key="platform.extraction_tasks",
                value=shards,
                hint="set it to 1",
            )
        fill_cache(values.features, shard, shards)


@task
def train(
    params: Artifact,
    dataset: Artifact,
    model: Artifact,
    metrics: Artifact,
    without: Sequence[str] = (),
) -> None:
    """Train, as if there were no modalities `without`."""
    from mbd.features.contract import FeatureSet
    from mbd.kubeflow.data import feature_set
    from mbd.steps import train as step

    with running(params, "train") as values, feature_set(Path(dataset.path), values) as folder:
        data = FeatureSet.open(folder, without=tuple(without))
        have_keys(values.shredding, data.manifest.name, data.modalities)
        with sealed(values.shredding, model) as out:
            result = step.run(values, folder, out, tuple(without))
    if result:
        _LOG.info(step.to_text([result]))
        model.metadata["sha256"] = result.sha256
        metrics.metadata |= numbers(result.metrics)


@task
def evaluate(
    params: Artifact,
    dataset: Artifact,
    model: Artifact,
    evaluation: Artifact,
    metrics: Artifact,
    page: Artifact,
    reference: Artifact | None = None,
    subjects: Sequence[str] = (),
) -> None:
    """Evaluate a model beside its reference; after a deletion from persons alone, without their recordings."""
    from mbd.kubeflow.data import feature_set
    from mbd.production.stages import Stages

    out = Path(evaluation.path)
    with running(params, "evaluate") as values, feature_set(Path(dataset.path), values) as data:
        Stages(values, subjects=subjects).evaluate(data, Path(model.path), _folder(reference, subjects), out)
    _show(out, metrics, page)


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
def delete(
    params: Artifact,
    dataset: Artifact,
    model: Artifact,
    reference: Artifact,
    modalities: Sequence[str],
    subjects: Sequence[str],
    deleted: Artifact,
) -> None:
    """Carry out the request: for whole modalities, or for persons, by their pseudonyms."""
    from mbd.kubeflow.data import feature_set
    from mbd.production.answers import read_subjects
    from mbd.production.stages import Stages

    with running(params, "delete") as values:
        stages = Stages(values, modalities, read_subjects(values, values.store.url, subjects) if subjects else ())
        with feature_set(Path(dataset.path), values) as data, sealed(values.shredding, deleted) as out:
            result = stages.delete(data, Path(model.path), _folder(reference, subjects), out)
        if subjects and result:
            hide_persons(values.certificate, deleted)
    if result:
        _LOG.info(result.to_text())
        deleted.metadata |= {"sha256": result.record.after, "guarantee": result.record.guarantee.kind}


@task
def attack(
    params: Artifact,
    dataset: Artifact,
    modalities: Sequence[str],
    leakage: Artifact,
    metrics: Artifact,
    page: Artifact,
    *,
    before: Artifact | None,
    after: Artifact,
    reference: Artifact,
    subjects: Sequence[str] = (),
) -> None:
    """Attack the deleted model. A refusal is on record here, and stops the run in `certify`."""
    out = Path(leakage.path)
    if subjects:
        leakage.metadata["decision"] = "not attacked"
        for file in (out / REPORT, Path(page.path)):
            write_file(file, NOT_ATTACKED)
        return
    from mbd.kubeflow.data import feature_set
    from mbd.production.stages import Stages

    models = (Path(before.path) if before else None, Path(after.path), Path(reference.path))
    try:
        with running(params, "attack") as values, feature_set(Path(dataset.path), values) as data:
            Stages(values, modalities).attack(data, *models, out, show=_LOG.info)
    except GateRefusedError as refusal:
        _LOG.info("refused: %s", refusal)
    _show(out, metrics, page)
    leakage.metadata["decision"] = read_json(out / LEAKAGE)["decision"]


@task
def certify(
    params: Artifact,
    dataset: Artifact,
    deleted: Artifact,
    leakage: Artifact,
    evaluation: Artifact,
    request: str,
    run: str,
    certificate: Artifact,
) -> None:
    """Certify what was shown, or refuse; the certificate names the data's revision and the run it came from."""
    from mbd.production.stages import Stages

    attacks = Path(leakage.path) if leakage.metadata.get("decision") != "not attacked" else None
    with (
        running(params, "certify") as values,
        TemporaryDirectory(prefix="mbd-request-") as work,
        environment(origin(dataset, run)),
    ):
        document = Path(work) / "request.json" if request else None
        if document:
            write_file(document, request)
        model, metrics, out = (Path(artifact.path) for artifact in (deleted, evaluation, certificate))
        result = Stages(values).certify(model, attacks, metrics, out, document)
    read_step(Path(certificate.path))
    _LOG.info("certificate %s", result.certificate)
    if result.private:
        _LOG.info("commitment openings saved to %s; back them up and keep them secret", result.private)


@task
def publish(params: Artifact, certificate: Artifact, deleted: Artifact, published: Artifact, page: Artifact) -> None:
    """Publish the certificate and the deleted model to the store of the parameters."""
    from mbd.production.stages import Stages

    out = Path(published.path)
    with running(params, "publish") as values:
        bundle, model = Path(certificate.path), Path(deleted.path)
        receipt = Stages(values).publish(bundle, model, values.store.url, out).receipt
    _show(out, None, page)
    published.metadata["certificate"] = receipt.certificate
    _LOG.info("model %s", receipt.weights)
    _LOG.info("certificate %s/certificates/%s", values.store.url, receipt.certificate)


@task
def purge(params: Artifact, published: Artifact, deleted: Artifact, proof: Artifact, *, requested: bool = True) -> None:
    """Remove every copy of the old weights, if requested.

    What is left, or could not be searched, is on record here, and stops the run in :func:`require_purged`: Kubeflow
    keeps no artifact of a task that fails.
    """
    out = Path(proof.path)
    if not requested:
        proof.metadata["claim"] = NOT_REQUESTED
        write_file(out / REPORT, NOT_PURGED)
        return
    from mbd.purge.workspace import PIPELINE_ROOT
    from mbd.steps import purge as step
    from mbd.steps.step import read_folder

    with running(params, "purge") as values:
        receipt = read_folder(Path(published.path)) / "receipt.json"
        plan = step.plan(values, receipt, values.store.url, Path(deleted.path))
        done = step.run(values, plan, values.store.url, out)
        read_step(out)
    proof.metadata["claim"] = done.record.erasure.claim
    for place in done.record.places:
        _LOG.info(
            "%s %s: %d copies, %d removed, %d left", place.kind, place.where, place.found, place.removed, place.left
        )
        for obstacle in place.obstacles:
            _LOG.warning("%s: %s (%s)", obstacle.reason, obstacle.detail, obstacle.hint)
        if place.kind == PIPELINE_ROOT:
            for copy in place.copies:
                _LOG.info("the metadata store of Kubeflow still names %s in %s", copy.name, place.where)


@task
def require_purged(proof: Artifact) -> None:
    """Fail if a purge has left a copy, or could not search a place; its obstacles are the reason."""
    from mbd.formats.purge import PURGE, PurgeRecord
    from mbd.steps.purge import refuse_incomplete

    if proof.metadata["claim"] != NOT_REQUESTED:
        refuse_incomplete(PurgeRecord.read(Path(proof.path) / PURGE, "record of a purge"))


@task
def published(params: Artifact, modality: str, model: Artifact) -> tuple[list[str], str]:
    """Fetch the current release without a modality; return all that was ever deleted from it, and its certificate."""
    from mbd.steps.certificates import fetch_certified

    with running(params, "certificate-fetch") as values, sealed(values.shredding, model) as out:
        certified = fetch_certified(values, values.store.url, out, modality=modality)
    model.metadata |= {"certificate": certified.certificate, "revoked": ", ".join(certified.revoked)}
    return list(certified.revoked), certified.certificate


@task
def reaudit(params: Artifact, certificate: str, leakage: Artifact, run: str = "") -> None:
    """Log what new attacks found, in this run; where the gate refused, the certificate is refuted and the run fails."""
    from mbd.steps.certificates import log_audit

    with running(params, "certificate-reaudit") as values, environment({"MBD_RUN_ID": run}):
        statement = log_audit(values, certificate, Path(leakage.path), values.store.url)
    _LOG.info("certificate %s/certificates/%s", values.store.url, certificate)
    _LOG.info("passed; attack again by %s", statement.predicate.reaudit_by.date())


@task
def overlaid(params: Artifact, setting: str, resolved: Artifact) -> None:
    """Write the parameters with settings `a.b=value …` on top, and with ledgers of their own."""
    text = Path(params.path).read_text(encoding="utf-8")
    ledgers = f"deletion.ledgers={gettempdir()}/mbd-sweep-{canonical_digest([text, setting])[:16]}"
    write_artifact(load_params(Path(params.path), [*setting.split(), ledgers]), resolved)


def _folder(reference: Artifact | None, subjects: Sequence[str]) -> Path | None:
    """Return the folder of a reference; None: there is none, as after a deletion from persons."""
    return Path(reference.path) if reference and not subjects else None


def _show(out: Path, metrics: Artifact | None, page: Artifact) -> None:
    """Verify what a step wrote, and let Kubeflow show its numbers and its report."""
    read_step(out)
    if metrics:
        metrics.metadata |= numbers(read_json(out / METRICS))
    shutil.copyfile(out / REPORT, page.path)
