"""Step `register`: a trained model and its references go into production under a name.

The model is promoted, that is, becomes the current release of the name, if there is none yet or if it is not worse than
the current one: both are given the valid split and the modalities that both take, and the new one's metric
(`registration.metric`) may be lower by `registration.margin` at most. Without data to compare on, registering is the
operator's decision, and promotes. A model that was not promoted is registered all the same.

A model that takes, or was trained on, what is revoked for the name is refused. Run again, nothing changes.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mbd.certificate.register import Registrar, refuse_revoked
from mbd.errors import DataError, UsageError
from mbd.evaluation.metrics import ACCURACIES, LOWER_IS_BETTER
from mbd.files import STEP_FILE, canonical_digest, read_json, sha256_file
from mbd.formats.deletion import DELETION
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.layout import object_name
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import DigestOrCommitment
from mbd.formats.registration import RegisteredData, RegisteredEvaluation, RegisteredReference, Registration
from mbd.formats.statement import RegistrationStatement, subjects_of
from mbd.history.facts import RegistrationFacts, registration_facts
from mbd.history.history import WITHDRAWN, History
from mbd.model.checkpoint import load_model
from mbd.model.compatible import open_for
from mbd.model.predictor import Model, load
from mbd.params import Params
from mbd.records import HINT, now, problem_with
from mbd.steps.certify import issuer_of, provenance
from mbd.steps.publish import open_publisher
from mbd.steps.step import reads
from mbd.steps.train import split_metrics
from mbd.storage import open_private
from mbd.trust.commitments import LineageKey, read_lineage_key


@dataclass(frozen=True)
class RegisterResult:
    """A model that was registered."""

    registration: str
    """SHA-256 of the statement's envelope"""
    model: str
    weights: str
    promoted: bool
    reason: str
    references: dict[str, str]
    """modalities that each reference never saw → SHA-256 of its weights"""


def open_registrar(params: Params, url: str) -> Registrar:
    """Return what registers in the store at `url`, with the keys of the parameters."""
    return Registrar(open_publisher(params, url), open_private(url, params.store), params.certificate)


@reads("model", "references", data="features")
def run(
    params: Params, model: Path, references: Sequence[Path], name: str, store: str, features: Path | None = None
) -> RegisterResult:
    """Register a model and its references under a name.

    References are folders of models that were trained like it, but without some of its modalities, or folders of such.
    With `features` it is compared with the current release on their valid split.

    Raises:
        VerificationError: The model takes, or was trained on, what is revoked for the name.
        UsageError: The name is not valid, or the model was deleted from.
        DataError: A reference is of another model.
    """
    if problem := problem_with(name):
        raise UsageError(f"this is not a name of a model: {problem}", key="--as", value=name, hint=HINT)
    registrar, key = open_registrar(params, store), read_lineage_key(params.certificate)
    history, references = registrar.history(), list(_each(references))
    record = _read(model)
    registered = [_reference(folder, record, model) for folder in references]
    draft = _statement(params, name, model, record, registered, history, key)
    wanted = registration_facts(history.size, "", draft)
    refuse_revoked(history, wanted)
    if known := _known(history, wanted):
        statement, digest = history.registration(known.digest), known.digest
    else:
        statement = _decided(params, draft, model, features, history)
        digests_of = [{WEIGHTS: reference.weights, MODEL: reference.record} for reference in registered]
        folders = [(model, statement.digests), *zip(references, digests_of, strict=True)]
        files = {digests[file]: folder / file for folder, digests in folders for file in (WEIGHTS, MODEL)}
        digest = registrar.register(statement, files)
    predicate = statement.predicate
    return RegisterResult(
        registration=digest,
        model=name,
        weights=statement.digests[WEIGHTS],
        promoted=predicate.promoted,
        reason=predicate.reason,
        references={"+".join(r.without): r.weights for r in predicate.references},
    )


def _each(references: Iterable[Path]) -> Iterator[Path]:
    """Yield the folders of references; a folder without a model stands for those in it."""
    for folder in references:
        inside = sorted(file.parent for file in folder.glob(f"*/{MODEL}"))
        yield from inside if inside and not (folder / MODEL).exists() else [folder]


def _read(model: Path) -> ModelRecord:
    if (model / DELETION).exists():
        raise UsageError(
            "a model that was deleted from is released by its certificate",
            file=model / DELETION,
            hint="`mbd certify` and `mbd publish` release it",
        )
    return load_model(model)[0]


def _seen(record: ModelRecord) -> tuple[str, ...]:
    return tuple(sorted({*record.modalities, *(m for tensor in record.tensors.values() for m in tensor.sees)}))


def _reference(folder: Path, model: ModelRecord, model_folder: Path) -> RegisteredReference:
    """Return a reference as it is registered; DataError unless it was trained like the model."""
    record = load_model(folder)[0]
    without = tuple(m for m in model.inputs if m not in record.inputs)
    same = (record.backbone, record.seed, record.data.name) == (model.backbone, model.seed, model.data.name)
    data = set(record.data.files.items()) <= set(model.data.files.items())
    respects = _left_out(folder) == _left_out(model_folder)
    if not (same and data and respects and without and set(_seen(record)) < set(model.inputs)):
        raise DataError(
            "this is not a reference of the model: one is trained on the same data, with the same parameters and "
            "seed, and without some modalities",
            file=folder / MODEL,
            value=f"it has seen {', '.join(_seen(record))}; the model takes {', '.join(model.inputs)}",
            hint="`mbd train --without MODALITY` on the data of the model makes one",
        )
    return RegisteredReference(without=without, weights=record.sha256, record=sha256_file(folder / MODEL))


def _left_out(model: Path) -> tuple[str, ...]:
    """Return the certificates of persons' deletions whose recordings training has left out, as its record says."""
    return tuple(sorted(_training(model).get("left_out", ())))


def _training(model: Path) -> dict[str, Any]:
    """Return what the record of the step `train` says of the data; nothing for a model that was made elsewhere."""
    file = model / STEP_FILE
    source: dict[str, Any] = read_json(file)["inputs"].get("features", {}) if file.is_file() else {}
    return source


def _statement(
    params: Params,
    name: str,
    model: Path,
    record: ModelRecord,
    references: Sequence[RegisteredReference],
    history: History,
    key: LineageKey,
) -> RegistrationStatement:
    """Return the registration of a model, not yet decided whether it is promoted."""
    origin, releases = provenance(os.environ), history.model(name).releases
    content = DigestOrCommitment(commitment=key.data(canonical_digest(record.data.files)))
    revision = origin["dvc_revision"] or _training(model).get("revision")
    return RegistrationStatement(
        subject=subjects_of({WEIGHTS: record.sha256, MODEL: sha256_file(model / MODEL)}),
        predicate=Registration(
            model=name,
            issuer=issuer_of(params),
            backbone=record.backbone,
            inputs=record.inputs,
            sees=_seen(record),
            data=RegisteredData(name=record.data.name, content=content, dvc_revision=revision),
            left_out=_left_out(model),
            references=tuple(sorted(references, key=lambda r: r.without)),
            evaluation=None,
            promoted=True,
            reason="",
            previous=releases[-1].digest if releases else None,
            git_commit=origin["git_commit"],
            image_digest=origin["image_digest"],
            run_id=origin["run_id"],
            issued=now(),
        ),
    )


def _known(history: History, wanted: RegistrationFacts) -> RegistrationFacts | None:
    """Return the registration of the same files that is current, or that was not promoted; None: there is none."""
    model = history.model(wanted.model)
    for registration in reversed(model.registrations):
        same = all(
            getattr(registration, part) == getattr(wanted, part) for part in ("weights", "record", "data", "references")
        )
        decided = registration is model.current or not registration.promoted
        if same and decided and not history.effects(registration.digest) & WITHDRAWN:
            return registration
    return None


def _decided(
    params: Params, draft: RegistrationStatement, model: Path, features: Path | None, history: History
) -> RegistrationStatement:
    """Return the registration with its evaluation, and whether the model is promoted."""
    decision: dict[str, object] = {"reason": "registered by its operator, without a comparison"}
    if features is not None:
        with TemporaryDirectory(prefix="mbd-current-") as work:
            current = _fetch_current(history, draft.predicate.model, Path(work))
            decision = _compared(params, load(model), load(current) if current else None, features)
    return draft.model_copy(update={"predicate": draft.predicate.model_copy(update=decision)})


def _fetch_current(history: History, name: str, folder: Path) -> Path | None:
    """Fetch the current release to compare with; None: there is none that may still be used."""
    model = history.model(name)
    if model.current is None or model.problem(model.current):
        return None
    digests = history.statement(model.current.digest).digests
    for file in (WEIGHTS, MODEL):
        history.store.fetch(object_name(digests[file]), folder / file, sha256=digests[file])
    return folder


def _compared(params: Params, new: Model, current: Model | None, features: Path) -> dict[str, object]:
    """Return evaluation, whether the new model is promoted, and why."""
    metric = params.registration.metric or ACCURACIES[new.record.task][0]
    shared = [m for m in new.modalities if current is None or m in current.modalities]
    split = open_for(new.record, features).split("valid")
    if not shared:
        return {"reason": "it takes no modality that the current release takes, so there is nothing to compare"}
    metrics, rows = split_metrics(new, split, shared)
    if metric not in metrics:
        raise UsageError(
            "there is no such metric", key="registration.metric", value=metric, hint=f"there is {', '.join(metrics)}"
        )
    evaluation = RegisteredEvaluation(modalities=tuple(shared), rows=rows, metrics=metrics)
    if current is None:
        return {"evaluation": evaluation, "reason": "there is no current release to compare with"}
    other, _ = split_metrics(current, split, shared)
    sign = -1 if metric in LOWER_IS_BETTER else 1
    promoted = sign * (metrics[metric] - other[metric]) >= -params.registration.margin
    words = f"{metric} {metrics[metric]:.2f} on the valid split, the current release has {other[metric]:.2f}"
    fitted = [name for name, model in {"new": new, "current": current}.items() if "valid" in model.record.fitted_to]
    words += f" (fitted to rows of this split: {' and '.join(fitted)})" if fitted else ""
    return {"evaluation": evaluation, "promoted": promoted, "reason": words}
