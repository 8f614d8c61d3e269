"""One function for each Kubeflow component: it runs the step's command and looks after the artifacts.

The parameters travel as one text, the whole of `params.yaml`. What comes in is checked against the digests of its
`step.json`, and so is what goes out: a step has succeeded when its output verifies, not when its process ended well.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from mbd.errors import GateRefusedError
from mbd.files import canonical_digest, read_json, to_json, write_file
from mbd.kubeflow.common import Artifact, checked, each, environment, mbd, numbers, say, settled, task, verify
from mbd.kubeflow.reference import feature_set, keep_shared, make_reference, read_reference
from mbd.params import load_params, to_yaml

NOT_ATTACKED = "Single subjects were forgotten; attacks are about whole modalities, so nothing was attacked.\n"
_LEAKAGE, _REPORT = "leakage.json", "report.md"


@task
def features(params: str, dataset: Artifact, metrics: Artifact) -> None:
    """Make or fetch the FeatureSet; hand on a reference to it."""
    with settled(params) as (_, values), TemporaryDirectory(prefix="mbd-features-") as work:
        folder = Path(work) / "features"
        reference, summary = make_reference(values, folder)
        dataset.metadata |= {"name": reference.name, "digest": reference.digest, "commit": reference.commit or ""}
        metrics.metadata |= numbers(summary["ridge"])
        write_file(Path(dataset.path), to_json(reference.model_dump(mode="json")))
        keep_shared(folder, reference)


@task
def train(
    params: str, dataset: Artifact, model: Artifact, metrics: Artifact, without: Sequence[str] = (), seed: int = -1
) -> None:
    """Train, as if there were no modalities `without`; a seed from 0 on overrides that of the parameters."""
    chosen = ["--set", f"training.seed={seed}"] if seed >= 0 else []
    _on_features(params, dataset, model, "train", *each("--without", without), *chosen)
    model.metadata["sha256"] = read_json(Path(model.path) / "model.json")["sha256"]
    metrics.metadata |= numbers(read_json(Path(model.path) / "metrics.json"))


@task
def evaluate(
    params: str, dataset: Artifact, models: Sequence[Artifact], evaluation: Artifact, metrics: Artifact, page: Artifact
) -> None:
    """Evaluate models side by side."""
    folders = [checked(model) for model in models]
    _on_features(params, dataset, evaluation, "evaluate", *each("--model", folders))
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
    given = ["--model", checked(model), *([] if subjects else ["--reference", checked(reference)])]
    asked = [*each("--modality", modalities), *each("--subject", subjects)]
    _on_features(params, dataset, deleted, "delete", *given, *asked)
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
    given = ["--after", checked(after), "--reference", checked(reference), *each("--modality", modalities)]
    given += ["--before", checked(before)] if before else []
    try:
        _on_features(params, dataset, leakage, "attack", *given)
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
    given = ["--deletion", checked(deleted), "--evaluation", checked(evaluation)]
    given += ["--leakage", checked(leakage)] if leakage.metadata.get("decision") != "not attacked" else []
    origin = {"MBD_DVC_REVISION": read_reference(Path(dataset.path)).commit or "", "MBD_RUN_ID": run}
    with settled(params) as (file, _), TemporaryDirectory(prefix="mbd-request-") as work, environment(origin):
        if request:
            write_file(Path(work) / "request.json", request)
            given += ["--request", str(Path(work) / "request.json")]
        mbd(file, "certify", *given, "--out", certificate.path)
    verify(Path(certificate.path))


@task
def publish(params: str, certificate: Artifact, deleted: Artifact, published: Artifact, page: Artifact) -> None:
    """Publish the certificate and the deleted model to the store of the parameters."""
    with settled(params) as (file, values):
        given = ["--certificate", checked(certificate), "--model", checked(deleted), "--store", values.store.url]
        mbd(file, "publish", *given, "--out", published.path)
    verify(Path(published.path))
    published.metadata["certificate"] = read_json(Path(published.path) / "receipt.json")["certificate"]
    _show(published, page)


@task
def purge(params: str, published: Artifact, deleted: Artifact, proof: Artifact) -> None:
    """Remove every copy of the old weights; fails if one is left, or a place could not be searched."""
    with settled(params) as (file, values):
        receipt = str(Path(checked(published)) / "receipt.json")
        given = ["--receipt", receipt, "--deletion", checked(deleted), "--store", values.store.url, "--yes"]
        mbd(file, "purge", *given, "--out", proof.path)
    verify(Path(proof.path))
    proof.metadata["claim"] = read_json(Path(proof.path) / "purge.json")["erasure"]["claim"]


@task
def published(params: str, modality: str, model: Artifact) -> tuple[list[str], list[str], str]:
    """Fetch the model that was published last without a modality.

    Return what its certificate deleted, all that was ever revoked, and the certificate's digest.
    """
    with settled(params) as (file, values):
        given = ["--modality", modality, "--store", values.store.url, "--out", model.path]
        mbd(file, "certificate", "fetch", *given)
    verify(Path(model.path))
    found = read_json(Path(model.path) / "published.json")
    model.metadata |= {"certificate": found["certificate"], "revoked": ", ".join(found["revoked"])}
    return found["modalities"], found["revoked"], found["certificate"]


@task
def reaudit(params: str, certificate: str, leakage: Artifact) -> None:
    """Tell the log what new attacks found; where the gate refused, the certificate is refuted and the run fails."""
    with settled(params) as (file, values):
        given = ["--certificate", certificate, "--leakage", checked(leakage), "--store", values.store.url]
        mbd(file, "certificate", "reaudit", *given)


def notify(params: str, pipeline: str, state: str, message: str) -> None:
    """Tell Prometheus how a run of a pipeline has ended, as the step `pipeline-NAME`. Nothing here fails the run."""
    try:
        from mbd.steps.reporting import Report  # noqa: PLC0415 -- whatever is wrong with it, the run goes on

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


def _on_features(params: str, dataset: Artifact, out: Artifact, command: str, *arguments: str) -> None:
    """Run a command that reads the FeatureSet, and verify what it wrote."""
    with settled(params) as (file, values), feature_set(Path(dataset.path), values) as folder:
        mbd(file, command, "--features", str(folder), *arguments, "--out", out.path)
    verify(Path(out.path))


def _show(artifact: Artifact, page: Artifact) -> None:
    """Let Kubeflow show the report in an artifact."""
    shutil.copyfile(Path(artifact.path) / _REPORT, page.path)
