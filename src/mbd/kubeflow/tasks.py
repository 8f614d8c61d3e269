"""One function for each Kubeflow component: it runs the step's command and looks after the artifacts.

The parameters travel as one text, the whole of `params.yaml`. What comes in is checked against the digests of its
`step.json`, and so is what goes out: a step has succeeded when its output verifies, not when its process ended well.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Protocol, TypeVar, cast

from mbd.cli import group
from mbd.errors import DataError, GateRefusedError, MbdError
from mbd.files import STEP_FILE, canonical_digest, file_digests, read_json, to_json, write_file
from mbd.kubeflow.reference import feature_set, keep_shared, make_reference
from mbd.params import Params, load_params, to_yaml

Task = TypeVar("Task", bound=Callable[..., None])


class Artifact(Protocol):
    """What a task sees of a Kubeflow artifact."""

    path: str
    metadata: dict[str, Any]


def _task(function: Task) -> Task:
    """Let an error that a user can act on end the task with its exit code, without a traceback."""

    @wraps(function)
    def task(*arguments: Any, **named: Any) -> None:  # noqa: ANN401 -- any task
        try:
            function(*arguments, **named)
        except MbdError as error:
            print(f"error: {error}", file=sys.stderr)  # noqa: T201 -- the log of a task is its output
            sys.exit(error.exit_code)

    return cast(Task, task)


@_task
def features(params: str, dataset: Artifact, metrics: Artifact) -> None:
    """Make or fetch the FeatureSet; hand on a reference to it."""
    with _settled(params) as (_, values), TemporaryDirectory(prefix="mbd-features-") as work:
        folder = Path(work) / "features"
        reference, summary = make_reference(values, folder)
        dataset.metadata |= {"name": reference.name, "digest": reference.digest, "commit": reference.commit or ""}
        metrics.metadata |= _numbers(summary["ridge"])
        write_file(Path(dataset.path), to_json(reference.model_dump(mode="json")))
        keep_shared(folder, reference)


@_task
def train(
    params: str, dataset: Artifact, model: Artifact, metrics: Artifact, without: Sequence[str] = (), seed: int = -1
) -> None:
    """Train, as if there were no modalities `without`; a seed from 0 on overrides that of the parameters."""
    chosen = ["--set", f"training.seed={seed}"] if seed >= 0 else []
    _on_features(params, dataset, model, "train", *_each("--without", without), *chosen)
    model.metadata["sha256"] = read_json(Path(model.path) / "model.json")["sha256"]
    metrics.metadata |= _numbers(read_json(Path(model.path) / "metrics.json"))


@_task
def evaluate(
    params: str, dataset: Artifact, models: Sequence[Artifact], evaluation: Artifact, metrics: Artifact, page: Artifact
) -> None:
    """Evaluate models side by side."""
    folders = [_checked(model) for model in models]
    _on_features(params, dataset, evaluation, "evaluate", *_each("--model", folders))
    metrics.metadata |= _numbers(read_json(Path(evaluation.path) / "metrics.json"))
    shutil.copyfile(Path(evaluation.path) / "report.md", page.path)


@_task
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
    given = ["--model", _checked(model), *([] if subjects else ["--reference", _checked(reference)])]
    asked = [*_each("--modality", modalities), *_each("--subject", subjects)]
    _on_features(params, dataset, deleted, "delete", *given, *asked)
    record = read_json(Path(deleted.path) / "deletion.json")
    deleted.metadata |= {"sha256": record["after"], "guarantee": record["guarantee"]["kind"]}


@_task
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
) -> None:
    """Attack the deleted model. A refusal is on record, and `certify` is where it stops the run."""
    given = ["--after", _checked(after), "--reference", _checked(reference), *_each("--modality", modalities)]
    given += ["--before", _checked(before)] if before else []
    try:
        _on_features(params, dataset, leakage, "attack", *given)
    except GateRefusedError as refusal:
        print(f"refused: {refusal}", file=sys.stderr)  # noqa: T201
        _verify(Path(leakage.path))
    leakage.metadata["decision"] = read_json(Path(leakage.path) / "leakage.json")["decision"]
    metrics.metadata |= _numbers(read_json(Path(leakage.path) / "metrics.json"))
    shutil.copyfile(Path(leakage.path) / "report.md", page.path)


@_task
def certify(
    params: str, deleted: Artifact, leakage: Artifact, evaluation: Artifact, request: str, certificate: Artifact
) -> None:
    """Certify what was shown, or refuse."""
    given = ["--deletion", _checked(deleted), "--leakage", _checked(leakage), "--evaluation", _checked(evaluation)]
    with _settled(params) as (file, _), TemporaryDirectory(prefix="mbd-request-") as work:
        if request:
            write_file(Path(work) / "request.json", request)
            given += ["--request", str(Path(work) / "request.json")]
        _mbd(file, "certify", *given, "--out", certificate.path)
    _verify(Path(certificate.path))


@_task
def publish(params: str, certificate: Artifact, deleted: Artifact, published: Artifact, page: Artifact) -> None:
    """Publish the certificate and the deleted model to the store of the parameters."""
    with _settled(params) as (file, values):
        given = ["--certificate", _checked(certificate), "--model", _checked(deleted), "--store", values.store.url]
        _mbd(file, "publish", *given, "--out", published.path)
    _verify(Path(published.path))
    published.metadata["certificate"] = read_json(Path(published.path) / "receipt.json")["certificate"]
    shutil.copyfile(Path(published.path) / "report.md", page.path)


def overlaid(params: str, setting: str) -> str:
    """Return the parameters with a setting, as `a.b=value`, laid over them, and with ledgers of their own."""
    with TemporaryDirectory(prefix="mbd-params-") as folder:
        file = Path(folder) / "params.yaml"
        write_file(file, params)
        ledgers = f"deletion.ledgers={gettempdir()}/mbd-sweep-{canonical_digest([params, setting])[:16]}"
        return to_yaml(load_params(file, [*setting.split(), ledgers]))


def _on_features(params: str, dataset: Artifact, out: Artifact, command: str, *arguments: str) -> None:
    """Run a command that reads the FeatureSet, and verify what it wrote."""
    with _settled(params) as (file, values), feature_set(Path(dataset.path), values) as folder:
        _mbd(file, command, "--features", str(folder), *arguments, "--out", out.path)
    _verify(Path(out.path))


@contextmanager
def _settled(params: str) -> Iterator[tuple[str, Params]]:
    """Give the parameters as a file and as values."""
    with TemporaryDirectory(prefix="mbd-params-") as folder:
        file = Path(folder) / "params.yaml"
        write_file(file, params)
        yield str(file), load_params(file)


def _mbd(params: str, command: str, *arguments: str) -> None:
    group.main([command, "--params", params, *arguments], prog_name="mbd", standalone_mode=False)


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def _checked(artifact: Artifact) -> str:
    _verify(Path(artifact.path))
    return artifact.path


def _verify(folder: Path) -> None:
    """Compare a step's folder with what its `step.json` lists."""
    try:
        listed = read_json(folder / STEP_FILE)["outputs"]["files"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            "the artifact is not the output of a step", file=folder, way_out="run the step again"
        ) from error
    found = file_digests(folder)
    if different := sorted(name for name in {*listed, *found} if listed.get(name) != found.get(name)):
        raise DataError(
            "the artifact is not what the step wrote",
            file=folder / different[0],
            value=f"sha256 {found.get(different[0], 'missing')}, written {listed.get(different[0], 'not')}",
            way_out="run the step again",
        )


def _numbers(tree: object, prefix: str = "") -> dict[str, float]:
    """Return all numbers of nested JSON by dotted name, as Kubeflow shows metrics."""
    if isinstance(tree, dict):
        return {k: v for name, part in tree.items() for k, v in _numbers(part, f"{prefix}{name}.").items()}
    if isinstance(tree, bool) or not isinstance(tree, int | float):
        return {}
    return {prefix.removesuffix("."): float(tree)}
