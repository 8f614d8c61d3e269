"""The model that the next deletion of a name starts from, as the log has it.

It is the current release of the name, registered or certified, fetched by the digests in its signed statement; of a
certified one also the deletion record that its certificate commits to. Only where the log has no release of the name is
it the model that the operator gives.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mbd.certificate.facts import RegistrationFacts, Release
from mbd.certificate.history import History
from mbd.certificate.layout import object_name
from mbd.certificate.lineage import LineageKey, read_lineage_key, read_record, refuse_other_record
from mbd.certificate.replay import read_history
from mbd.certificate.trust import read_trust
from mbd.errors import DataError, UsageError
from mbd.files import sha256_file, write_file
from mbd.formats.deletion import DELETION, DeletionRecord, read_deletion
from mbd.formats.statement import MODEL, WEIGHTS, DeletionStatement, RegistrationStatement
from mbd.params import Params
from mbd.storage import open_private, open_store


@dataclass(frozen=True)
class BaseModel:
    """Where the next deletion of a model name starts from."""

    params: Params
    url: str
    """of the store"""
    history: History
    key: LineageKey
    given: Path | None
    """model that the operator has given"""
    release: Release | None
    """the current release; None: the log has none, and `given` is the base"""

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
        folder.mkdir(parents=True, exist_ok=True)
        store = open_store(self.url, self.params.store)
        for name in (WEIGHTS, MODEL):
            digest = statement.digests[name]
            store.fetch(object_name(digest), folder / name, sha256=digest)
        if isinstance(statement, DeletionStatement):
            private = open_private(self.url, self.params.store)
            write_file(folder / DELETION, read_record(private, self.release.digest, statement, self.key))
        return folder

    @property
    def revision(self) -> str | None:
        """The DVC revision of the data, as it was registered; None: it was not."""
        base = self.history.model(self.params.certificate.model).base
        return base.dvc_revision if base else None

    def fetch_reference(self, inputs: Iterable[str], folder: Path) -> bool:
        """Fetch the registered model that has seen these modalities alone to `folder`; return whether there is one."""
        found = self.history.model(self.params.certificate.model).reference(inputs)
        if found is None:
            return False
        folder.mkdir(parents=True, exist_ok=True)
        store = open_store(self.url, self.params.store)
        for name, digest in ((WEIGHTS, found.weights), (MODEL, found.record)):
            store.fetch(object_name(digest), folder / name, sha256=digest)
        return True

    def refuse_stale(self, statement: DeletionStatement, deleted: Path) -> None:
        """Refuse a certificate of a model, in `deleted`, that was not made from the base.

        Raises:
            DataError: It was made from another model, or its deletion record is not the one it commits to.
        """
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


def find_base(params: Params, url: str, given: Path | None) -> BaseModel:
    """Find the base of the next deletion of the model `certificate.model`.

    Raises:
        VerificationError: The state of the log cannot be known.
        UsageError: The given model is not of the lineage of the current release.
    """
    trust, key = read_trust(Path(params.certificate.trust)), read_lineage_key(params.certificate)
    history = read_history(open_store(url, params.store), trust).require()
    base = BaseModel(params, url, history, key, given, history.model(params.certificate.model).current)
    if given is not None and (statement := base.statement):
        _refuse_other_lineage(given, statement, key)
    return base


def _refuse_other_lineage(given: Path, statement: DeletionStatement | RegistrationStatement, key: LineageKey) -> None:
    """Refuse a given model that is not the registered one, or not of the lineage of the certified one."""
    weights, deletion = sha256_file(given / WEIGHTS), read_deletion(given)
    first = deletion.lineage[0] if deletion else weights
    certified = isinstance(statement, DeletionStatement) and key.lineage(first) == statement.predicate.lineage.id
    if weights != statement.digests[WEIGHTS] and not certified:
        raise UsageError(
            f"the log has another model as the current release of {statement.predicate.model}",
            file=given / WEIGHTS,
            key="--model",
            value=f"sha256 {weights}",
            hint="leave --model out to delete from the current release, or publish under another certificate.model",
        )
