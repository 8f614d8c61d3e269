"""What a deletion starts from: the current release of a name, the data that it was made from, and its reference.

`mbd request run` and the pipeline `delete` start here. The release is that of the log, registered or certified, fetched
by the digests in its signed statement; of a certified one also the deletion record that its certificate commits to.
Only where the log has no release of the name is it the model that the operator gives. Its data are those of the
registered revision, without the recordings that persons have revoked; the reference is the registered one. Only where
none is registered is a reference trained, and the log of the step says so.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mbd.deletion.cut import requested
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.files import sha256_file, write_file
from mbd.formats.deletion import DELETION, DeletionRecord, read_deletion
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.layout import object_name
from mbd.formats.model import ModelRecord
from mbd.formats.statement import DeletionStatement, RegistrationStatement
from mbd.history.facts import RegistrationFacts, Release
from mbd.history.history import History
from mbd.history.lineage import read_record, refuse_other_record
from mbd.model.checkpoint import load_model
from mbd.outputs import StepRun, step_run
from mbd.params import Params
from mbd.steps import features, train
from mbd.steps.revoked import Revoked, read_log, respected_by_current
from mbd.storage import open_private
from mbd.trust.commitments import LineageKey, read_lineage_key

NAME = "fetch-current"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeletionBase:
    """Where the next deletion of a model name starts from."""

    params: Params
    url: str
    """of the store"""
    history: History
    given: Path | None
    """model that the operator has given"""
    release: Release | None
    """the current release; None: the log has none, and `given` is the base"""

    @cached_property
    def key(self) -> LineageKey:
        """The key under which certificates name their lineage, and persons and deletion records are encrypted."""
        return read_lineage_key(self.params.certificate)

    @property
    def statement(self) -> DeletionStatement | RegistrationStatement | None:
        """The certificate or the registration of the current release."""
        if self.release is None:
            return None
        if isinstance(self.release, RegistrationFacts):
            return self.history.registration(self.release.digest)
        return self.history.certificate(self.release.digest)

    def returned(self, inputs: dict[str, int]) -> tuple[str, ...]:
        """Return the inputs of a model that are revoked for its name."""
        return self.history.model(self.params.certificate.model).returned(inputs)

    def fetch(self, folder: Path) -> Path:
        """Return a folder with the model: the given one, or the current release, written to `folder`.

        Raises:
            DataError: A file is missing or is not what the statement says.
        """
        if self.release is None or (statement := self.statement) is None:
            if self.given is None:
                raise UsageError(
                    "the log has no release of this model yet",
                    key="--model",
                    value=self.params.certificate.model,
                    hint="register the trained model (`mbd register`), or give its folder",
                )
            return self.given
        with step_run(NAME, folder, {"store": self.params.store}) as step:
            fetch_model(self.history, self.release.digest, statement.digests, step)
            if isinstance(statement, DeletionStatement):
                private = open_private(self.url, self.params.store)
                write_file(step.folder / DELETION, read_record(private, self.release.digest, statement, self.key))
        return folder

    @property
    def revision(self) -> str | None:
        """The DVC revision of the data, as it was registered; None: it was not."""
        base = self.history.model(self.params.certificate.model).base
        return base.dvc_revision if base else None

    def fetch_reference(self, inputs: Iterable[str], folder: Path) -> bool:
        """Fetch the registered model that has seen these modalities alone to `folder`; return whether there is one."""
        model = self.history.model(self.params.certificate.model)
        reference = model.reference(inputs)
        if reference is None or model.base is None:
            return False
        with step_run(NAME, folder, {"store": self.params.store}) as step:
            fetch_model(self.history, model.base.digest, {WEIGHTS: reference.weights, MODEL: reference.record}, step)
        return True

    def refuse_stale(self, statement: DeletionStatement, digest: str, deleted: Path) -> None:
        """Refuse a certificate, of this digest, of a model, in `deleted`, that was not made from the base.

        One that is in the log already changes nothing, and is not refused.

        Raises:
            DataError: It was made from another model, or its deletion record is not the one it commits to.
        """
        if digest in self.history.certificates:
            return
        file = deleted / DELETION
        content = file.read_bytes() if file.is_file() else b""
        refuse_other_record(content, statement, self.key, file)
        before = DeletionRecord.from_bytes(content, "deletion record", file=file).before
        if self.release is not None:
            expected = self.release.weights
        else:
            expected = sha256_file(self.given / WEIGHTS) if self.given else before
        if before != expected:
            raise DataError("the certificate is about a deletion from another model than the current one", file=file)


def find_base(params: Params, url: str, given: Path | None) -> DeletionBase:
    """Find the base of the next deletion of the model `certificate.model`.

    Raises:
        VerificationError: The state of the log cannot be known.
        UsageError: The given model is not of the lineage of the current release.
    """
    history = read_log(params, url)
    base = DeletionBase(params, url, history, given, history.model(params.certificate.model).start)
    if given is not None and (statement := base.statement):
        _refuse_other_lineage(given, statement, base)
    return base


def fetch_model(history: History, release: str, digests: Mapping[str, str], step: StepRun) -> None:
    """Fetch the two files of a model by their digests, which the statement `release` has, into the folder of a step."""
    step.inputs["release"] = {"path": f"{history.store.url}/certificates/{release}", "digest": release}
    for name in (WEIGHTS, MODEL):
        history.store.fetch(object_name(digests[name]), step.folder / name, sha256=digests[name])
    step.look_at = MODEL


def _refuse_other_lineage(
    given: Path, statement: DeletionStatement | RegistrationStatement, base: DeletionBase
) -> None:
    """Refuse a given model that is not the registered one, or not of the lineage of the certified one."""
    weights, deletion = sha256_file(given / WEIGHTS), read_deletion(given)
    if weights == statement.digests[WEIGHTS]:
        return
    first = deletion.lineage[0] if deletion else weights
    if not (isinstance(statement, DeletionStatement) and base.key.lineage(first) == statement.predicate.lineage.id):
        raise UsageError(
            f"the log has another model as the current release of {statement.predicate.model}",
            file=given / WEIGHTS,
            key="--model",
            value=f"sha256 {weights}",
            hint="leave --model out to delete from the current release, or publish under another certificate.model",
        )


@dataclass(frozen=True)
class Start:
    """Where a deletion starts: the current release, its record and its data, and a private folder to work in."""

    base: DeletionBase
    model: Path
    record: ModelRecord
    data: Path
    work: Path


@dataclass(frozen=True)
class FetchedRelease:
    """The current release in a folder, and what is deleted from it."""

    base: DeletionBase
    record: ModelRecord
    modalities: tuple[str, ...]
    """what was asked for, and what is revoked for the name and this release takes all the same"""

    @property
    def respected(self) -> Revoked:
        """The persons without whose recordings the release was made."""
        return respected_by_current(self.base.history, self.base.params)


def fetch_release(params: Params, url: str, out: Path, modalities: Sequence[str], *, person: bool) -> FetchedRelease:
    """Fetch the current release of `certificate.model` to `out`, to delete modalities from it, or those of persons.

    Raises:
        UsageError: The log has no release of the name, or these modalities cannot be deleted from it.
    """
    base = find_base(params, url, None)
    record = load_model(base.fetch(out))[0]
    if gone := [m for m in modalities if m in record.revoked]:
        raise UsageError(
            f"{', '.join(gone)} was deleted from {params.certificate.model} before",
            key="modalities",
            value=", ".join(modalities),
            hint=f"`mbd models show {params.certificate.model}` names the certificate",
        )
    return FetchedRelease(base, record, tuple(modalities) if person else modalities_to_delete(base, record, modalities))


def modalities_to_delete(base: DeletionBase, record: ModelRecord, modalities: Sequence[str]) -> tuple[str, ...]:
    """Return what is deleted on a request: its modalities, and what is revoked and the release takes all the same."""
    return requested(record, [*base.returned(record.inputs), *modalities])


@contextmanager
def open_data(base: DeletionBase, record: ModelRecord, given: Path | None, work: Path) -> Iterator[Path]:
    """Within: the data that a release was made from, `given` or brought into `work`, without what persons revoked."""
    folder = given
    if folder is None:
        folder = work / "features"
        features.bring(base.params, folder, base.revision, _LOG.warning)
    with respected_by_current(base.history, base.params).left_out(folder, not_taken(record, folder)) as data:
        yield data


def not_taken(record: ModelRecord, features_folder: Path) -> tuple[str, ...]:
    """Return the modalities of a FeatureSet that a model does not take: of these no file is read."""
    return tuple(m for m in FeatureSet.open(features_folder).modalities if m not in record.inputs)


def obtain_reference(
    base: DeletionBase,
    record: ModelRecord,
    modalities: Sequence[str],
    data: AbstractContextManager[Path],
    out: Path,
) -> bool:
    """Write the model that never saw these modalities to `out`: the registered one, or one that is trained now.

    `data` gives the data of the release, and is entered only to train. Returns whether that had to be done.
    """
    if base.fetch_reference([m for m in record.inputs if m not in modalities], out):
        _LOG.info("the registered reference without %s is used; nothing is trained", ", ".join(modalities))
        return False
    _LOG.warning("no reference without %s is registered, so one is trained", ", ".join(modalities))
    with data as folder:
        gone = (m for m in FeatureSet.open(folder).modalities if m in record.revoked)
        train.run(base.params, folder, out, without=(*gone, *modalities))
    return True
