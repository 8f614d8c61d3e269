"""Steps `models list|show|fetch|push|reinstate`: the models of a store, as its log has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from mbd.errors import DataError, UsageError, VerificationError
from mbd.files import write_file
from mbd.formats.files import MODEL, WEIGHTS
from mbd.history.entries import find_digest
from mbd.history.facts import ReferenceFacts, RegistrationFacts, Release
from mbd.history.history import WITHDRAWN, History, ModelHistory
from mbd.history.tombstones import lift
from mbd.outputs import step_run
from mbd.params import Params
from mbd.production.register import open_registrar
from mbd.production.releases import fetch_model
from mbd.records import Digest, Record, now
from mbd.storage.mlflow import RELEASE, MlflowRegistry

NAME = "models-fetch"
CURRENT = "current.json"


class ReleaseSummary(Record):
    """A release of a model."""

    release: Digest
    """SHA-256 of the envelope of its registration or certificate"""
    kind: Literal["registered", "certified"]
    index: int
    """of its entry in the log"""
    issued: datetime
    inputs: tuple[str, ...]
    weights: Digest
    state: str
    """current, not promoted, withdrawn, outdated (it takes, or has seen, what is revoked), or earlier"""


class ModelSummary(Record):
    """What the log says of a model's name."""

    model: str
    current: ReleaseSummary | None
    problem: str | None
    """why the current release may not be used; null: it may"""
    revoked: tuple[str, ...]
    persons: int
    """certificates of persons' deletions that later training has to respect"""
    references: dict[str, Digest | None]
    """for each modality of the current release, the weights that never saw it; null: there are none"""
    releases: tuple[ReleaseSummary, ...]


def summaries(history: History) -> list[ModelSummary]:
    """Return what the log says of every model; VerificationError if that cannot be known."""
    return [summary(history, name) for name in history.require().models]


def summary(history: History, name: str) -> ModelSummary:
    """Return what the log says of a model.

    Raises:
        DataError: The log has no model of this name.
        VerificationError: The log cannot be read completely.
    """
    model = known_model(history, name)
    return ModelSummary(
        model=name,
        current=_summary(history, model, model.current) if model.current else None,
        problem=model.problem(model.current) if model.current else None,
        revoked=tuple(sorted(model.revoked)),
        persons=len(model.persons),
        references={m: r.weights if r else None for m, r in model.references.items()},
        releases=tuple(_summary(history, model, r) for r in model.releases),
    )


def known_model(history: History, name: str) -> ModelHistory:
    """Return what the log says of a name; DataError if it has no such model."""
    if name not in history.require().models:
        raise DataError(
            "the log has no model of this name",
            file=history.store.url,
            value=name,
            hint=f"it has {', '.join(history.models) or 'none'}; `mbd register` registers one",
        )
    return history.model(name)


def _summary(history: History, model: ModelHistory, release: Release) -> ReleaseSummary:
    effects = history.effects(release.digest) & WITHDRAWN
    if release is model.current:
        state = "current"
    elif effects:
        state = ", ".join(sorted(effects))
    elif model.problem(release):
        state = "outdated"
    else:
        state = "not promoted" if isinstance(release, RegistrationFacts) and not release.promoted else "earlier"
    return ReleaseSummary(
        release=release.digest,
        kind="registered" if isinstance(release, RegistrationFacts) else "certified",
        index=release.index,
        issued=release.issued,
        inputs=release.inputs,
        weights=release.weights,
        state=state,
    )


def fetch(params: Params, history: History, name: str, out: Path, *, without: Sequence[str] = ()) -> ReleaseSummary:
    """Fetch the current release of a model to `out`, or with `without` its reference that never saw this modality.

    Raises:
        UsageError: There is no such release or reference.
        VerificationError: The current release takes, or was trained on, what is revoked.
    """
    model = known_model(history, name)
    if model.current is None:
        raise UsageError("no release of this model is current", value=name, hint=f"`mbd models show {name}`")
    if problem := model.problem(model.current):
        raise VerificationError(problem, value=model.current.digest, hint="`mbd request run` deletes it again")
    fetched, digests = _summary(history, model, model.current), history.statement(model.current.digest).digests
    if without:
        reference = _reference(model, without)
        digests = {WEIGHTS: reference.weights, MODEL: reference.record}
        fetched = fetched.model_copy(
            update={"weights": reference.weights, "inputs": reference.inputs, "state": "reference"}
        )
    with step_run(NAME, out, {"store": params.store}) as step:
        fetch_model(history, fetched.release, digests, step)
        write_file(step.folder / CURRENT, fetched.to_json())
        step.look_at = CURRENT
    return fetched


def _reference(model: ModelHistory, without: Sequence[str]) -> ReferenceFacts:
    ready = {m: r for m, r in model.references.items() if r}
    if len(without) != 1 or without[0] not in ready:
        raise UsageError(
            "there is no registered reference without it",
            key="--reference",
            value=", ".join(without),
            hint=f"there is one without {', or without '.join(ready) or 'nothing'}; `mbd register --reference DIR`",
        )
    return ready[without[0]]


class PushResult(Record):
    """A release that was written back to an MLflow registry."""

    release: Digest
    """SHA-256 of the envelope of its registration or certificate"""
    version: str
    """models:/NAME/VERSION"""
    alias: str
    tags: dict[str, str]


def push(params: Params, history: History, name: str) -> PushResult:
    """Write the current release of a model to the registered model `mlflow.model`, and move the alias to it.

    Run again, it finds the version that is there. The tags say which certificate, of what kind, at which entry of the
    log; they are for readers of the registry, and what counts is the log.
    """
    registry = MlflowRegistry(params.mlflow)
    with TemporaryDirectory(prefix="mbd-push-") as work:
        release = fetch(params, history, name, Path(work) / "fetched")
        files = Path(work) / "files"
        files.mkdir()
        for file in (WEIGHTS, MODEL):
            (Path(work) / "fetched" / file).rename(files / file)
        tags = _tags(history, release)
        version = registry.push(files, tags)
    return PushResult(release=release.release, version=str(version), alias=params.mlflow.alias, tags=tags)


def _tags(history: History, release: ReleaseSummary) -> dict[str, str]:
    certificate = history.certificates.get(release.release)
    tags = {
        RELEASE: release.release,
        "mbd.kind": certificate.kind if certificate else release.kind,
        "mbd.log_entry": str(release.index),
        "mbd.weights": release.weights,
        "mbd.takes": ", ".join(release.inputs),
    }
    if certificate is None:
        return tags
    return tags | {"mbd.certificate": certificate.digest, "mbd.revoked": ", ".join(certificate.revoked)}


@dataclass(frozen=True)
class ReinstateResult:
    """Modalities that may be taken again."""

    reinstatement: str
    """SHA-256 of the statement's envelope"""
    model: str
    modalities: tuple[str, ...]
    overruled: tuple[str, ...]
    """SHA-256 of the certificates that it overrules"""


def reinstate(
    params: Params, name: str, modalities: Sequence[str], reason: str, store: str, *, person: str | None = None
) -> ReinstateResult:
    """State, signed and logged, that releases of a name may take modalities again, or those of a person.

    `person` is the certificate of the person's deletion, or the start of its digest.

    Raises:
        UsageError: A modality is not revoked for the name, or there is no reason.
    """
    if not reason.strip():
        raise UsageError("the reason for the reinstatement is missing", key="--reason")
    registrar = open_registrar(params, store)
    certificate = find_digest(registrar.history(), person) if person else None
    digest, overruled = registrar.reinstate(name, modalities, reason, certificate)
    lift(params, store)
    return ReinstateResult(digest, name, tuple(sorted(set(modalities))), overruled)


def age_days(release: ReleaseSummary) -> int:
    """Return how many whole days ago a release was issued."""
    return (now() - release.issued).days
