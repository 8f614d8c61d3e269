"""One function for each Kubeflow component: it calls the step and looks after the artifacts.

The parameters travel as one text (:func:`mbd.kubeflow.common.write_params`). What comes in is checked against the
digests of its `step.json`, and so is what goes out: a task has succeeded when its output verifies, not when its process
ended well. Models go in and out encrypted where crypto-shredding is enabled (:mod:`mbd.kubeflow.sealing`).
"""

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from mbd.errors import GateRefusedError
from mbd.files import canonical_digest, read_json, read_step, write_file
from mbd.kubeflow.common import Artifact, environment, numbers, read_params, task, write_params
from mbd.params import Params
from mbd.steps.context import StepContext, step_context

# Tasks import steps when they run: a task does not wait for the imports of the others.
NOT_ATTACKED = "Single subjects were forgotten; attacks are about whole modalities, so nothing was attacked.\n"
NOT_PURGED = "No purge was asked for (`purge_copies`): copies of the old weights may exist.\n"
_LEAKAGE, _METRICS, _REPORT = "leakage.json", "metrics.json", "report.md"
_LOG = logging.getLogger(__name__)
_SUCCEEDED = {"SUCCEEDED", "COMPLETE"}


@contextmanager
def _running(params: str, command: str, *settings: str) -> Iterator[tuple[Params, StepContext]]:
    """Within: the parameters, and the context that a step runs in."""
    values = read_params(params, *settings)
    with step_context(values, command, warn=_LOG.warning) as context:
        yield values, context


@task
def features(params: str, dataset: Artifact, metrics: Artifact) -> None:
    """Make or fetch the FeatureSet; hand on a reference to it."""
    from mbd.kubeflow.reference import keep_shared, make_reference
    from mbd.kubeflow.sealing import work_folder

    with _running(params, "features") as (values, _), work_folder(values.shredding, "mbd-features-") as work:
        folder = work / "features"
        reference, summary = make_reference(values, folder)
        dataset.metadata |= {"name": reference.name, "digest": reference.digest, "commit": reference.commit or ""}
        metrics.metadata |= numbers(summary.ridge)
        write_file(Path(dataset.path), reference.to_json())
        keep_shared(folder, reference, values.shredding)
        _LOG.info(summary.to_text())


@task
def train(
    params: str,
    dataset: Artifact,
    model: Artifact,
    metrics: Artifact,
    without: Sequence[str] = (),
    seed: int = -1,
    parts: Sequence[Artifact] = (),
) -> None:
    """Train, as if there were no modalities `without`; a seed from 0 on overrides that of the parameters.

    Networks that are in `parts` are not trained again.
    """
    from mbd.kubeflow.sealing import verified
    from mbd.steps import train as step

    with _training(params, dataset, model, without, seed) as (values, context, folder, out):
        joined = [verified(context, part) for part in parts]
        result = step.run(values, folder, out, tuple(without), join=joined)
    if result:
        _LOG.info(step.to_text([result]))
        model.metadata["sha256"] = result.sha256
        metrics.metadata |= numbers(result.metrics)


@task
def train_part(params: str, dataset: Artifact, number: int, count: int, part: Artifact, seed: int = -1) -> None:
    """Train the `number`-th (from 1) of `count` parts of a lattice of networks."""
    from mbd.steps import train as step
    from mbd.training.trained import Part

    with _training(params, dataset, part, seed=seed) as (values, _, folder, out):
        result = step.run(values, folder, out, part=Part(number, count))
    if result:
        _LOG.info(step.to_text([result]))
        part.metadata["sha256"] = result.sha256


@contextmanager
def _training(
    params: str, dataset: Artifact, model: Artifact, without: Sequence[str] = (), seed: int = -1
) -> Iterator[tuple[Params, StepContext, Path, Path]]:
    """Within: parameters, context, FeatureSet, and the folder for the model, which is then sealed."""
    from mbd.features.contract import FeatureSet
    from mbd.kubeflow.reference import feature_set
    from mbd.kubeflow.sealing import have_keys, sealed

    chosen = [f"training.seed={seed}"] if seed >= 0 else []
    with _running(params, "train", *chosen) as (values, context), feature_set(Path(dataset.path), values) as folder:
        data = FeatureSet.open(folder, without=tuple(without))
        have_keys(values.shredding, data.manifest.name, data.modalities)
        with sealed(values.shredding, model) as out:
            yield values, context, folder, out


@task
def evaluate(
    params: str, dataset: Artifact, models: Sequence[Artifact], evaluation: Artifact, metrics: Artifact, page: Artifact
) -> None:
    """Evaluate models side by side."""
    from mbd.kubeflow.reference import feature_set
    from mbd.kubeflow.sealing import verified
    from mbd.steps import evaluate as step

    out = Path(evaluation.path)
    with _running(params, "evaluate") as (values, context):
        folders = [verified(context, model) for model in models]
        with feature_set(Path(dataset.path), values) as data:
            step.run(values, data, folders, out)
    _show(out, metrics, page)


@task
def delete(
    params: str,
    dataset: Artifact,
    model: Artifact,
    reference: Artifact,
    modalities: Sequence[str],
    subjects: Sequence[str],
    deleted: Artifact,
) -> None:
    """Carry out the request."""
    from mbd.kubeflow.reference import feature_set
    from mbd.kubeflow.sealing import sealed, verified
    from mbd.steps import delete as step

    with _running(params, "delete") as (values, context):
        old = verified(context, model)
        never_exposed = None if subjects else verified(context, reference)
        with feature_set(Path(dataset.path), values) as data, sealed(values.shredding, deleted) as out:
            result = step.run(values, data, old, modalities, subjects, out, never_exposed)
    if result:
        _LOG.info(result.to_text())
        deleted.metadata |= {"sha256": result.record.after, "guarantee": result.record.guarantee.kind}


@task
def attack(
    params: str,
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
        for file in (out / _REPORT, Path(page.path)):
            write_file(file, NOT_ATTACKED)
        return
    from mbd.kubeflow.reference import feature_set
    from mbd.kubeflow.sealing import verified
    from mbd.steps import attack as step

    try:
        with _running(params, "attack") as (values, context):
            old = verified(context, before) if before else None
            new, never_exposed = verified(context, after), verified(context, reference)
            with feature_set(Path(dataset.path), values) as data:
                step.run(values, data, old, new, never_exposed, modalities, out, show=_LOG.info)
    except GateRefusedError as refusal:
        _LOG.info("refused: %s", refusal)
    _show(out, metrics, page)
    leakage.metadata["decision"] = read_json(out / _LEAKAGE)["decision"]


@task
def certify(
    params: str,
    dataset: Artifact,
    deleted: Artifact,
    leakage: Artifact,
    evaluation: Artifact,
    request: str,
    run: str,
    certificate: Artifact,
) -> None:
    """Certify what was shown, or refuse; the certificate names the data's revision and the run it came from."""
    from mbd.kubeflow.reference import read_reference
    from mbd.kubeflow.sealing import verified
    from mbd.steps import certify as step

    attacked = leakage.metadata.get("decision") != "not attacked"
    origin = {"MBD_DVC_REVISION": read_reference(Path(dataset.path)).commit or "", "MBD_RUN_ID": run}
    with (
        _running(params, "certify") as (values, context),
        TemporaryDirectory(prefix="mbd-request-") as work,
        environment(origin),
    ):
        asked = Path(work) / "request.json" if request else None
        if asked:
            write_file(asked, request)
        result = step.run(
            values,
            verified(context, deleted),
            verified(context, leakage) if attacked else None,
            verified(context, evaluation),
            Path(certificate.path),
            request=asked,
        )
    read_step(Path(certificate.path))
    _LOG.info("certificate %s", result.certificate)
    if result.private:
        _LOG.info("commitment openings saved to %s; back them up and keep them secret", result.private)


@task
def publish(params: str, certificate: Artifact, deleted: Artifact, published: Artifact, page: Artifact) -> None:
    """Publish the certificate and the deleted model to the store of the parameters."""
    from mbd.kubeflow.sealing import verified
    from mbd.steps import publish as step

    out = Path(published.path)
    with _running(params, "publish") as (values, context):
        bundle, model = verified(context, certificate), verified(context, deleted)
        receipt = step.run(values, bundle, model, values.store.url, out).receipt
    _show(out, None, page)
    published.metadata["certificate"] = receipt.certificate
    _LOG.info("model %s", receipt.weights)
    _LOG.info("certificate %s/certificates/%s", values.store.url, receipt.certificate)


@task
def purge(params: str, published: Artifact, deleted: Artifact, proof: Artifact, *, requested: bool = True) -> None:
    """Remove every copy of the old weights, if asked to; fails if one is left, or a place could not be searched."""
    out = Path(proof.path)
    if not requested:
        proof.metadata["claim"] = "not requested"
        write_file(out / _REPORT, NOT_PURGED)
        return
    from mbd.kubeflow.sealing import verified
    from mbd.steps import purge as step

    with _running(params, "purge") as (values, context):
        receipt, deletion = verified(context, published) / "receipt.json", verified(context, deleted)
        plan = step.plan(values, receipt, values.store.url, deletion)
        done = step.run(values, plan, values.store.url, out)
        read_step(out)
        proof.metadata["claim"] = done.record.erasure.claim
        done.refuse_incomplete()


@task
def published(params: str, modality: str, model: Artifact) -> tuple[list[str], list[str], str]:
    """Fetch the model that was published last without a modality.

    Return what its certificate deleted, all that was ever revoked, and the certificate's digest.
    """
    from mbd.kubeflow.sealing import sealed
    from mbd.steps import fetch

    with _running(params, "certificate-fetch") as (values, _), sealed(values.shredding, model) as out:
        found = fetch.run(values, values.store.url, out, modality=modality)
    model.metadata |= {"certificate": found.certificate, "revoked": ", ".join(found.revoked)}
    return list(found.modalities), list(found.revoked), found.certificate


@task
def reaudit(params: str, certificate: str, leakage: Artifact, run: str = "") -> None:
    """Log what new attacks found, in this run; where the gate refused, the certificate is refuted and the run fails."""
    from mbd.kubeflow.sealing import verified
    from mbd.steps import reaudit as step

    with _running(params, "certificate-reaudit") as (values, context), environment({"MBD_RUN_ID": run}):
        statement = step.run(values, certificate, verified(context, leakage), values.store.url)
    _LOG.info("certificate %s/certificates/%s", values.store.url, certificate)
    _LOG.info("passed; attack again by %s", statement.predicate.reaudit_by.date())


@task
def notify(
    params: str,
    pipeline: str,
    run: str,
    modalities: Sequence[str],
    state: str,
    message: str = "",
    *,
    purged: bool = False,
) -> None:
    """Report to Prometheus how a run of a pipeline has ended, as the step `pipeline-NAME`. Never fails the run."""
    try:
        from mbd.steps.metrics_reporting import Report

        values = read_params(params)
        try:
            succeeded = has_published(values, pipeline, run, modalities, purged=purged)
        except Exception as error:
            _LOG.warning("the store does not say how the run ended (%s); using Kubeflow's state %s", error, state)
            succeeded = state in _SUCCEEDED
        ended, details = "succeeded" if succeeded else "failed", f", {message}" if message else ""
        _LOG.info("%s: %s (Kubeflow: %s%s)", pipeline, ended, state, details)
        report = Report(f"pipeline-{pipeline}", values)
        report.ended(f"pipeline-{pipeline}", None if succeeded else "failure")
        if values.monitoring.mode != "none":
            report.deliver()
    except Exception as error:
        _LOG.warning("the end of the run was not reported: %s", error)


def has_published(params: Params, pipeline: str, run: str, modalities: Sequence[str], *, purged: bool = False) -> bool:
    """Return whether a run has published what its pipeline is for.

    The state that Kubeflow hands to an exit handler does not say: a run that succeeded may be COMPLETE, RUNNING or, if
    a step was ever retried, FAILED. What counts is in the store, signed and logged: the certificate that names the run,
    and for an audit the statement about the certificate that names the run.

    Args:
        params: They name store, model and trust file.
        pipeline: `delete` or `reaudit`.
        run: The run's id.
        modalities: What it is about.
        purged: A purge was requested, so a statement that it is complete has to be there, too.

    """
    from mbd.certificate.replay import read_history
    from mbd.certificate.trust import read_trust
    from mbd.storage import open_store

    store, trust = open_store(params.store.url, params.store), read_trust(Path(params.certificate.trust))
    history = read_history(store, trust)
    latest = history.model(params.certificate.model).latest(modalities[0])
    if latest is None:
        return False
    about = history.about(latest.digest)
    if pipeline == "reaudit":
        return any(one.effect == "passed" and one.run_id == run for one in about)
    claims = [one.reason for one in about if one.kind == "purge"]
    return latest.run_id == run and (not purged or "complete" in claims)


def overlaid(params: str, setting: str) -> str:
    """Return the parameters with settings `a.b=value …` on top, and with ledgers of their own."""
    ledgers = f"deletion.ledgers={gettempdir()}/mbd-sweep-{canonical_digest([params, setting])[:16]}"
    return write_params(read_params(params, *setting.split(), ledgers))


def _show(out: Path, metrics: Artifact | None, page: Artifact) -> None:
    """Verify what a step wrote, and let Kubeflow show its numbers and its report."""
    read_step(out)
    if metrics:
        metrics.metadata |= numbers(read_json(out / _METRICS))
    shutil.copyfile(out / _REPORT, page.path)
