"""The model that the next deletion of a name starts from, as the log has it.

It is the current release of the name, fetched by the digests in its signed certificate, with the deletion record that
the certificate commits to. Only where the log has no release of the name is it the model that the operator gives.
"""

from dataclasses import dataclass
from pathlib import Path

from mbd.certificate.history import History
from mbd.certificate.layout import object_name
from mbd.certificate.lineage import LineageKey, read_lineage_key, read_record, refuse_other_record
from mbd.certificate.replay import read_history
from mbd.certificate.trust import read_trust
from mbd.errors import DataError, UsageError
from mbd.files import sha256_file, write_file
from mbd.formats.deletion import DELETION, DeletionRecord, read_deletion
from mbd.formats.statement import MODEL, WEIGHTS, DeletionStatement
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
    certificate: str | None
    """SHA-256 of the certificate of the current release; None: the log has none, and `given` is the base"""

    @property
    def statement(self) -> DeletionStatement | None:
        """The certificate of the current release."""
        return self.history.certificate(self.certificate) if self.certificate else None

    def returned(self, inputs: dict[str, int]) -> tuple[str, ...]:
        """Return the inputs of a model that are revoked for its name."""
        return self.history.model(self.params.certificate.model).returned(inputs)

    def fetch(self, folder: Path) -> Path:
        """Return a folder with the model: the given one, or the current release, written to `folder`.

        Raises:
            DataError: A file is missing or is not what the certificate says.
        """
        if self.certificate is None or (statement := self.statement) is None:
            if self.given is None:
                raise UsageError(
                    "the log has no release of this model yet",
                    key="--model",
                    value=self.params.certificate.model,
                    hint="give the folder of the trained model",
                )
            return self.given
        folder.mkdir(parents=True, exist_ok=True)
        store = open_store(self.url, self.params.store)
        for name in (WEIGHTS, MODEL):
            digest = statement.digests[name]
            store.fetch(object_name(digest), folder / name, sha256=digest)
        private = open_private(self.url, self.params.store)
        write_file(folder / DELETION, read_record(private, self.certificate, statement, self.key))
        return folder

    def refuse_stale(self, statement: DeletionStatement, deleted: Path) -> None:
        """Refuse a certificate of a model, in `deleted`, that was not made from the base.

        Raises:
            DataError: It was made from another model, or its deletion record is not the one it commits to.
        """
        file = deleted / DELETION
        content = file.read_bytes() if file.is_file() else b""
        refuse_other_record(content, statement, self.key, file)
        before = DeletionRecord.from_bytes(content, "deletion record", file=file).before
        if (current := self.statement) is not None:
            expected = current.digests[WEIGHTS]
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
    current = history.model(params.certificate.model).current
    base = BaseModel(params, url, history, key, given, current.digest if current else None)
    if given is not None and (statement := base.statement):
        _refuse_other_lineage(given, statement, key)
    return base


def _refuse_other_lineage(given: Path, statement: DeletionStatement, key: LineageKey) -> None:
    weights, deletion = sha256_file(given / WEIGHTS), read_deletion(given)
    first = deletion.lineage[0] if deletion else weights
    if weights != statement.digests[WEIGHTS] and key.lineage(first) != statement.predicate.lineage.id:
        raise UsageError(
            f"the log has another model as the current release of {statement.predicate.model}",
            file=given / WEIGHTS,
            key="--model",
            value=f"sha256 {weights}",
            hint="leave --model out to delete from the current release, or publish under another certificate.model",
        )
