"""One function for each Kubeflow component: it runs the step's command and looks after the artifacts.

The parameters travel as one text, the whole of `params.yaml`. What comes in is checked against the digests of its
`step.json`, and so is what goes out: a step has succeeded when its output verifies, not when its process ended well.
Models go in and out encrypted where crypto-shredding is enabled (:mod:`mbd.kubeflow.sealing`).
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from mbd.errors import GateRefusedError
from mbd.features.contract import FeatureSet
from mbd.files import canonical_digest, read_json, write_file
from mbd.kubeflow.common import Artifact, each, environment, mbd, numbers, say, settled, task, verify
from mbd.kubeflow.reference import feature_set, keep_shared, make_reference, read_reference
from mbd.kubeflow.sealing import have_keys, readable, sealed, workshop
from mbd.params import load_params, to_yaml
from mbd.params.shredding import ShreddingSettings

NOT_ATTACKED = "Single subjects were forgotten; attacks are about whole modalities, so nothing was attacked.\n"
_LEAKAGE, _REPORT = "leakage.json", "report.md"


@task
def features(params: str, dataset: Artifact, metrics: Artifact) -> None:
    """Make or fetch the FeatureSet; hand on a reference to it."""
    with settled(params) as (_, values), workshop(values.shredding, "mbd-features-") as work:
        folder = work / "features"
        reference, summary = make_reference(values, folder)
        dataset.metadata |= {"name": reference.name, "digest": reference.digest, "commit": reference.commit or ""}
        metrics.metadata |= numbers(summary.ridge)
        write_file(Path(dataset.path), reference.to_json())
        keep_shared(folder, reference, values.shredding)


@task
def train(
    params: str, dataset: Artifact, model: Artifact, metrics: Artifact, without: Sequence[str] = (), seed: int = -1
) -> None:
    """Train, as if there were no modalities `without`; a seed from 0 on overrides that of the parameters."""
    chosen = ["--set", f"training.seed={seed}"] if seed >= 0 else []
    with settled(params) as (file, values), feature_set(Path(dataset.path), values) as folder:
        data = FeatureSet.open(folder, without=tuple(without))
        have_keys(values.shredding, data.manifest.name, data.modalities)
        with sealed(values.shredding, model) as out:
            mbd(file, "train", "--features", str(folder), *each("--without", without), *chosen, "--out", out)
    model.metadata["sha256"] = read_json(Path(model.path) / "model.json")["sha256"]
    metrics.metadata |= numbers(read_json(Path(model.path) / "metrics.json"))


@task
def evaluate(
    params: str, dataset: Artifact, models: Sequence[Artifact], evaluation: Artifact, metrics: Artifact, page: Artifact
) -> None:
    """Evaluate models side by side."""
    with _on_features(params, dataset, *(("--model", model) for model in models)) as (file, _, given):
        mbd(file, "evaluate", *given, "--out", evaluation.path)
    verify(Path(evaluation.path))
    metrics.metadata |= numbers(read_json(Path(evaluation.path) / "metrics.json"))
    _show(evaluation, page)


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
    asked = [*each("--modality", modalities), *each("--subject", subjects)]
    read = [("--model", model), *([] if subjects else [("--reference", reference)])]
    with _on_features(params, dataset, *read) as (file, shredding, given), sealed(shredding, deleted) as out:
        mbd(file, "delete", *given, *asked, "--out", out)
    record = read_json(Path(deleted.path) / "deletion.json")
    deleted.metadata |= {"sha256": record["after"], "guarantee": record["guarantee"]["kind"]}


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
    """Attack the deleted model. A refusal is on record, and `certify` is where it stops the run."""
    if subjects:
        write_file(Path(leakage.path) / _REPORT, NOT_ATTACKED)
        leakage.metadata["decision"] = "not attacked"
        _show(leakage, page)
        return
    read = [("--after", after), ("--reference", reference), *([("--before", before)] if before else [])]
    with _on_features(params, dataset, *read) as (file, _, given):
        try:
            mbd(file, "attack", *given, *each("--modality", modalities), "--out", leakage.path)
        except GateRefusedError as refusal:
            say(f"refused: {refusal}")
    verify(Path(leakage.path))
    leakage.metadata["decision"] = read_json(Path(leakage.path) / _LEAKAGE)["decision"]
    metrics.metadata |= numbers(read_json(Path(leakage.path) / "metrics.json"))
    _show(leakage, page)


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
    """Certify what was shown, or refuse; the certificate tells the data's revision and the run it came from."""
    read = [("--deletion", deleted), ("--evaluation", evaluation)]
    read += [("--leakage", leakage)] if leakage.metadata.get("decision") != "not attacked" else []
    origin = {"MBD_DVC_REVISION": read_reference(Path(dataset.path)).commit or "", "MBD_RUN_ID": run}
    with settled(params) as (file, values), TemporaryDirectory(prefix="mbd-request-") as work, environment(origin):
        asked = ["--request", str(Path(work) / "request.json")] if request else []
        if request:
            write_file(Path(work) / "request.json", request)
        with _reading(values.shredding, *read) as given:
            mbd(file, "certify", *given, *asked, "--out", certificate.path)
    verify(Path(certificate.path))


@task
def publish(params: str, certificate: Artifact, deleted: Artifact, published: Artifact, page: Artifact) -> None:
    """Publish the certificate and the deleted model to the store of the parameters."""
    read = ("--certificate", certificate), ("--model", deleted)
    with settled(params) as (file, values), _reading(values.shredding, *read) as given:
        mbd(file, "publish", *given, "--store", values.store.url, "--out", published.path)
    verify(Path(published.path))
    published.metadata["certificate"] = read_json(Path(published.path) / "receipt.json")["certificate"]
    _show(published, page)


@task
def purge(params: str, published: Artifact, deleted: Artifact, proof: Artifact) -> None:
    """Remove every copy of the old weights; fails if one is left, or a place could not be searched."""
    with settled(params) as (file, values), readable(values.shredding, published, deleted) as (receipt, deletion):
        given = ["--receipt", str(Path(receipt) / "receipt.json"), "--deletion", deletion, "--yes"]
        mbd(file, "purge", *given, "--store", values.store.url, "--out", proof.path)
    verify(Path(proof.path))
    proof.metadata["claim"] = read_json(Path(proof.path) / "purge.json")["erasure"]["claim"]


@task
def published(params: str, modality: str, model: Artifact) -> tuple[list[str], list[str], str]:
    """Fetch the model that was published last without a modality.

    Return what its certificate deleted, all that was ever revoked, and the certificate's digest.
    """
    with settled(params) as (file, values), sealed(values.shredding, model) as out:
        mbd(file, "certificate", "fetch", "--modality", modality, "--store", values.store.url, "--out", out)
    found = read_json(Path(model.path) / "published.json")
    model.metadata |= {"certificate": found["certificate"], "revoked": ", ".join(found["revoked"])}
    return found["modalities"], found["revoked"], found["certificate"]


@task
def reaudit(params: str, certificate: str, leakage: Artifact) -> None:
    """Tell the log what new attacks found; where the gate refused, the certificate is refuted and the run fails."""
    with settled(params) as (file, values), readable(values.shredding, leakage) as (folder,):
        given = ["--certificate", certificate, "--leakage", folder, "--store", values.store.url]
        mbd(file, "certificate", "reaudit", *given)


def notify(params: str, pipeline: str, state: str, message: str) -> None:
    """Tell Prometheus how a run of a pipeline has ended, as the step `pipeline-NAME`. Nothing here fails the run."""
    try:
        from mbd.steps.metrics_reporting import Report  # noqa: PLC0415 -- whatever is wrong with it, the run goes on

        say(f"{pipeline}: {state}{f': {message}' if message else ''}")
        with settled(params) as (_, values):
            report = Report(f"pipeline-{pipeline}", values)
            report.ended(f"pipeline-{pipeline}", None if state == "SUCCEEDED" else "failure")
            if values.monitoring.mode != "none":
                report.deliver()
    except Exception as error:
        say(f"warning: nobody was told how the run ended: {error}")


def overlaid(params: str, setting: str) -> str:
    """Return the parameters with a setting, as `a.b=value`, laid over them, and with ledgers of their own."""
    ledgers = f"deletion.ledgers={gettempdir()}/mbd-sweep-{canonical_digest([params, setting])[:16]}"
    with settled(params) as (file, _):
        return to_yaml(load_params(Path(file), [*setting.split(), ledgers]))


@contextmanager
def _on_features(
    params: str, dataset: Artifact, *read: tuple[str, Artifact]
) -> Iterator[tuple[str, ShreddingSettings, list[str]]]:
    """Within: what a command that reads the FeatureSet, and artifacts by these options, needs."""
    with (
        settled(params) as (file, values),
        _reading(values.shredding, *read) as given,
        feature_set(Path(dataset.path), values) as folder,
    ):
        yield file, values.shredding, ["--features", str(folder), *given]


@contextmanager
def _reading(settings: ShreddingSettings, *read: tuple[str, Artifact]) -> Iterator[list[str]]:
    """Within: the options that artifacts are read with, each with a folder that verifies."""
    with readable(settings, *(artifact for _, artifact in read)) as folders:
        yield [part for (option, _), folder in zip(read, folders, strict=True) for part in (option, folder)]


def _show(artifact: Artifact, page: Artifact) -> None:
    """Let Kubeflow show the report in an artifact."""
    shutil.copyfile(Path(artifact.path) / _REPORT, page.path)
