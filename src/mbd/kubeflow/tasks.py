"""One function for each Kubeflow component: it calls the step and looks after the artifacts.

The first task of a run writes all parameters into an artifact, which the others read. What comes in is checked against
the digests of its `step.json`, and so is what goes out: a task has succeeded when its output verifies, not when its
process ended well. Models go in and out encrypted where crypto-shredding is enabled (:mod:`mbd.kubeflow.sealing`).
"""

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from mbd.errors import GateRefusedError
from mbd.files import canonical_digest, read_json, read_step, write_file
from mbd.kubeflow.common import Artifact, environment, numbers, origin, resolved, running, task
from mbd.params import Params, load_params, params_digest, to_yaml
from mbd.steps.context import StepContext

# Tasks import steps when they run: a task does not wait for the imports of the others.
NOT_ATTACKED = "Single subjects were forgotten; attacks are about whole modalities, so nothing was attacked.\n"
NOT_PURGED = "No purge was asked for (`purge_copies`): copies of the old weights may exist.\n"
_LEAKAGE, _METRICS, _REPORT = "leakage.json", "metrics.json", "report.md"
_LOG = logging.getLogger(__name__)


@task
def parameters(
    params: str,
    written: Artifact,
    model: str = "",
    method: str = "",
    epsilon: float = 0.0,
    overrides: Sequence[str] = (),
) -> None:
    """Write all parameters of a run, from the arguments of its pipeline (:func:`mbd.kubeflow.common.resolved`)."""
    _write(resolved(params, model, method, epsilon, overrides), written)


def _write(values: Params, written: Artifact) -> None:
    write_file(Path(written.path), to_yaml(values))
    written.metadata |= {"digest": params_digest(values), "model": values.certificate.model}


@task
def features(params: Artifact, dataset: Artifact, metrics: Artifact) -> list[str]:
    """Make or fetch the FeatureSet; hand on a reference to it. Return the modalities to train references without."""
    from mbd.kubeflow.reference import keep_shared, make_reference
    from mbd.kubeflow.sealing import work_folder
    from mbd.steps.revoked import read_revoked, revocable

    with running(params, "features") as (values, _), work_folder(values.shredding, "mbd-features-") as work:
        folder = work / "features"
        made, summary = make_reference(values, folder)
        reference = made.model_copy(update={"left_out": read_revoked(values).certificates})
        dataset.metadata |= {"name": reference.name, "digest": reference.digest, "commit": reference.commit or ""}
        metrics.metadata |= numbers(summary.ridge)
        write_file(Path(dataset.path), reference.to_json())
        modalities = list(revocable(values, folder))
        keep_shared(folder, reference, values.shredding)
        _LOG.info(summary.to_text())
        return modalities


@task
def train(
    params: Artifact,
    dataset: Artifact,
    model: Artifact,
    metrics: Artifact,
    without: Sequence[str] = (),
    parts: Sequence[Artifact] = (),
) -> None:
    """Train, as if there were no modalities `without`. Modules that are in `parts` are not trained again."""
    from mbd.kubeflow.sealing import verified
    from mbd.steps import train as step

    with _training(params, dataset, model, without) as (values, context, folder, out):
        joined = [verified(context, part) for part in parts]
        result = step.run(values, folder, out, tuple(without), join=joined)
    if result:
        _LOG.info(step.to_text([result]))
        model.metadata["sha256"] = result.sha256
        metrics.metadata |= numbers(result.metrics)


@task
def train_part(params: Artifact, dataset: Artifact, number: int, count: int, part: Artifact) -> None:
    """Train the `number`-th (from 1) of `count` parts of a lattice."""
    from mbd.steps import train as step
    from mbd.training.trained import Part

    with _training(params, dataset, part) as (values, _, folder, out):
        result = step.run(values, folder, out, part=Part(number, count))
    if result:
        _LOG.info(step.to_text([result]))
        part.metadata["sha256"] = result.sha256


@contextmanager
def _training(
    params: Artifact, dataset: Artifact, model: Artifact, without: Sequence[str] = (), seed: int = -1
) -> Iterator[tuple[Params, StepContext, Path, Path]]:
    """Within: parameters, context, FeatureSet, and the folder for the model, which is then sealed."""
    from mbd.features.contract import FeatureSet
    from mbd.kubeflow.reference import feature_set
    from mbd.kubeflow.sealing import have_keys, sealed

    with running(params, "train") as (values, context), feature_set(Path(dataset.path), values) as folder:
        data = FeatureSet.open(folder, without=tuple(without))
        have_keys(values.shredding, data.manifest.name, data.modalities)
        with sealed(values.shredding, model) as out:
            yield values, context, folder, out


@task
def evaluate(
    params: Artifact,
    dataset: Artifact,
    models: Sequence[Artifact],
    evaluation: Artifact,
    metrics: Artifact,
    page: Artifact,
    subjects: Sequence[str] = (),
) -> None:
    """Evaluate models side by side; of a deletion from persons the first one alone, without their recordings."""
    from mbd.kubeflow.reference import feature_set
    from mbd.kubeflow.sealing import verified
    from mbd.production import persons
    from mbd.steps import evaluate as step

    out = Path(evaluation.path)
    with running(params, "evaluate") as (values, context), feature_set(Path(dataset.path), values) as data:
        if subjects:
            persons.evaluated(values, data, verified(context, models[0]), out)
        else:
            step.run(values, data, [verified(context, model) for model in models], out)
    _show(out, metrics, page)


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
    """Carry out the request: for whole modalities, or for persons, by references into the private storage."""
    from mbd.kubeflow.reference import feature_set
    from mbd.kubeflow.sealing import hide_persons, sealed, verified
    from mbd.production import persons
    from mbd.steps import delete as step

    with running(params, "delete") as (values, context):
        old = verified(context, model)
        with feature_set(Path(dataset.path), values) as data, sealed(values.shredding, deleted) as out:
            if subjects:
                named = persons.read_subjects(values, values.store.url, subjects)
                result = persons.deleted_from(values, data, old, modalities, named, out)
            else:
                result = step.run(values, data, old, modalities, (), out, verified(context, reference))
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
        for file in (out / _REPORT, Path(page.path)):
            write_file(file, NOT_ATTACKED)
        return
    from mbd.kubeflow.reference import feature_set
    from mbd.kubeflow.sealing import verified
    from mbd.steps import attack as step

    try:
        with running(params, "attack") as (values, context):
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
    from mbd.kubeflow.sealing import verified
    from mbd.steps import certify as step

    attacked = leakage.metadata.get("decision") != "not attacked"
    with (
        running(params, "certify") as (values, context),
        TemporaryDirectory(prefix="mbd-request-") as work,
        environment(origin(dataset, run)),
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
def publish(params: Artifact, certificate: Artifact, deleted: Artifact, published: Artifact, page: Artifact) -> None:
    """Publish the certificate and the deleted model to the store of the parameters."""
    from mbd.kubeflow.sealing import verified
    from mbd.production.releases import publish_on_current

    out = Path(published.path)
    with running(params, "publish") as (values, context):
        bundle, model = verified(context, certificate), verified(context, deleted)
        receipt = publish_on_current(values, bundle, model, values.store.url, out).receipt
    _show(out, None, page)
    published.metadata["certificate"] = receipt.certificate
    _LOG.info("model %s", receipt.weights)
    _LOG.info("certificate %s/certificates/%s", values.store.url, receipt.certificate)


@task
def purge(params: Artifact, published: Artifact, deleted: Artifact, proof: Artifact, *, requested: bool = True) -> None:
    """Remove every copy of the old weights, if asked to; fails if one is left, or a place could not be searched."""
    out = Path(proof.path)
    if not requested:
        proof.metadata["claim"] = "not requested"
        write_file(out / _REPORT, NOT_PURGED)
        return
    from mbd.kubeflow.sealing import verified
    from mbd.steps import purge as step

    with running(params, "purge") as (values, context):
        receipt, deletion = verified(context, published) / "receipt.json", verified(context, deleted)
        plan = step.plan(values, receipt, values.store.url, deletion)
        done = step.run(values, plan, values.store.url, out)
        read_step(out)
        proof.metadata["claim"] = done.record.erasure.claim
        done.refuse_incomplete()


@task
def published(params: Artifact, modality: str, model: Artifact) -> tuple[list[str], list[str], str]:
    """Fetch the model that was published last without a modality.

    Return what its certificate deleted, all that was ever revoked, and the certificate's digest.
    """
    from mbd.kubeflow.sealing import sealed
    from mbd.steps import fetch

    with running(params, "certificate-fetch") as (values, _), sealed(values.shredding, model) as out:
        found = fetch.run(values, values.store.url, out, modality=modality)
    model.metadata |= {"certificate": found.certificate, "revoked": ", ".join(found.revoked)}
    return list(found.modalities), list(found.revoked), found.certificate


@task
def reaudit(params: Artifact, certificate: str, leakage: Artifact, run: str = "") -> None:
    """Log what new attacks found, in this run; where the gate refused, the certificate is refuted and the run fails."""
    from mbd.kubeflow.sealing import verified
    from mbd.steps import reaudit as step

    with running(params, "certificate-reaudit") as (values, context), environment({"MBD_RUN_ID": run}):
        statement = step.run(values, certificate, verified(context, leakage), values.store.url)
    _LOG.info("certificate %s/certificates/%s", values.store.url, certificate)
    _LOG.info("passed; attack again by %s", statement.predicate.reaudit_by.date())


@task
def overlaid(params: Artifact, setting: str, written: Artifact) -> None:
    """Write the parameters with settings `a.b=value …` on top, and with ledgers of their own."""
    text = Path(params.path).read_text(encoding="utf-8")
    ledgers = f"deletion.ledgers={gettempdir()}/mbd-sweep-{canonical_digest([text, setting])[:16]}"
    _write(load_params(Path(params.path), [*setting.split(), ledgers]), written)


def _show(out: Path, metrics: Artifact | None, page: Artifact) -> None:
    """Verify what a step wrote, and let Kubeflow show its numbers and its report."""
    read_step(out)
    if metrics:
        metrics.metadata |= numbers(read_json(out / _METRICS))
    shutil.copyfile(out / _REPORT, page.path)
