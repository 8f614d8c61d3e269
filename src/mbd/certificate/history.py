"""What the log says: every statement in it, verified, in its order, and what follows from them.

The log is the database. Which release of a model is current, which modalities are revoked, whether a certificate was
revoked, superseded or audited again follows from the signed statements that the log lists, and from nothing else that
is in the store (:mod:`mbd.certificate.replay` reads them):

    history = read_history(store, trust)
    history.require()                              # VerificationError unless everything in the log could be read
    history.model("sentiment").current             # the last release that no later statement withdraws
    history.model("sentiment").revoked             # modalities that no release of this name may take
    history.about(digest)                          # the statements about a certificate, in the log's order
    history.statement(digest)                      # a whole statement, out of the store

An entry that cannot be read could be a revocation of any certificate. So it *blocks* all answers about what is valid:
`require` refuses, and readers say that the state could not be checked. An entry that can be read but does not count
(its signers' keys are known, and too few of them were trusted for it) is a finding that blocks nothing.

Memory stays small: of each statement a few fields are kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from mbd.certificate.facts import CertificateFacts, Effect, EntryFinding, StatementFacts
from mbd.certificate.layout import certificate_name
from mbd.certificate.log.checkpoint import Checkpoint
from mbd.certificate.reader import parse_envelope
from mbd.certificate.trust import CLOCKS_DIFFER_BY
from mbd.errors import VerificationError
from mbd.formats.statement import AnyStatement, DeletionStatement
from mbd.params.certificate import CertificateSettings
from mbd.storage.store import Store

MAX_AGE = CertificateSettings().checkpoint_age
"""how old the log's checkpoint may be by default"""
WITHDRAWN: frozenset[Effect] = frozenset({"revoked", "superseded", "refuted"})
"""effects after which a certificate is no longer in force"""


@dataclass(frozen=True)
class ModelHistory:
    """What the log says of one model name."""

    name: str
    certificates: tuple[CertificateFacts, ...]
    """in the log's order"""
    current: CertificateFacts | None
    """the last release that no later statement revokes, supersedes or refutes"""
    revoked: frozenset[str]
    """modalities that no release of this name may take: those of all its certificates that are not revoked"""

    def latest(self, modality: str) -> CertificateFacts | None:
        """Return the certificate of a modality's deletion that was logged last."""
        return next((one for one in reversed(self.certificates) if modality in one.modalities), None)

    def returned(self, inputs: Iterable[str]) -> tuple[str, ...]:
        """Return the revoked modalities among the inputs of a model of this name."""
        return tuple(sorted(self.revoked.intersection(inputs)))


@dataclass(frozen=True)
class History:
    """The statements of a log up to one verified checkpoint."""

    store: Store = field(compare=False)
    head: Checkpoint | None
    """None: nothing has been logged yet"""
    certificates: Mapping[str, CertificateFacts]
    """by digest, in the log's order"""
    statements: tuple[StatementFacts, ...]
    findings: tuple[EntryFinding, ...] = ()
    read: int = field(default=0, compare=False)
    """number of entries that had to be read from the store"""
    _models: dict[str, ModelHistory] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def size(self) -> int:
        """The number of entries of the log."""
        return self.head.size if self.head else 0

    def about(self, digest: str) -> tuple[StatementFacts, ...]:
        """Return the statements about a certificate, in the log's order."""
        return tuple(self._about.get(digest, ()))

    def model(self, name: str) -> ModelHistory:
        """Return what is known of a model name; nothing is certified or revoked for a name that the log lacks."""
        if name not in self._models:
            self._models[name] = self._model(name)
        return self._models[name]

    def _model(self, name: str) -> ModelHistory:
        certificates = self._by_name.get(name, [])
        standing = [one for one in certificates if "revoked" not in self.effects(one.digest)]
        released = [one for one in certificates if not self.effects(one.digest) & WITHDRAWN]
        return ModelHistory(
            name=name,
            certificates=tuple(certificates),
            current=released[-1] if released else None,
            revoked=frozenset(modality for one in standing for modality in one.revoked),
        )

    def effects(self, digest: str) -> set[Effect]:
        """Return what the statements about a certificate do to it."""
        return {one.effect for one in self._about.get(digest, ())}

    def shows(self, digest: str | None, model: str, modalities: Iterable[str]) -> bool:
        """Return whether a certificate in the log states that these modalities of a model were deleted."""
        found = self.certificates.get(digest or "")
        return found is not None and found.model == model and set(modalities) <= set(found.revoked)

    def statement(self, digest: str) -> AnyStatement:
        """Return a statement of the log as it was signed, out of the store.

        Raises:
            DataError: The store does not have it.
            VerificationError: It is not an entry that counts, or the object has other content.

        """
        if digest not in self.indices:
            raise VerificationError("the log has no such statement that counts", value=digest)
        name = certificate_name(digest)
        return parse_envelope(self.store.read(name, sha256=digest)).require(name)

    def certificate(self, digest: str) -> DeletionStatement:
        """Return a certificate of the log as it was signed; VerificationError if it is another kind of statement."""
        statement = self.statement(digest)
        if not isinstance(statement, DeletionStatement):
            raise VerificationError("this is not a certificate, but a statement about one", value=digest)
        return statement

    @property
    def digests(self) -> frozenset[str]:
        """Digests of all entries of the log."""
        return frozenset((*self.indices, *(one.digest for one in self.findings)))

    @cached_property
    def indices(self) -> Mapping[str, int]:
        """The index in the log of every statement that counts, by digest."""
        certificates = {digest: one.index for digest, one in self.certificates.items()}
        return certificates | {one.digest: one.index for one in self.statements}

    @property
    def blocking(self) -> tuple[EntryFinding, ...]:
        """The entries because of which no state can be known."""
        return tuple(one for one in self.findings if one.blocks)

    def problem(self, at: datetime, max_age: timedelta | None = None) -> str | None:
        """Say why the state of a certificate cannot be known at a time; None: it can.

        Args:
            at: The time that counts as now.
            max_age: How old the log's checkpoint may be; an older one may hide later statements. None: any age.

        """
        if blocking := self.blocking:
            first = blocking[0]
            rest = f", and {len(blocking) - 1} more" if len(blocking) > 1 else ""
            return f"entry {first.index} of the log cannot be read ({first.reason}){rest}: it could be about this one"
        if max_age is None or self.head is None:
            return None
        time = f"{self.head.time:%Y-%m-%d %H:%M:%SZ}"
        if self.head.time > at + CLOCKS_DIFFER_BY:
            return f"the log's checkpoint is of a time in the future, {time}"
        if at - self.head.time > max_age:
            return f"the log's checkpoint is of {time}, older than {max_age.days} days: it may hide later statements"
        return None

    def require(self, at: datetime | None = None, max_age: timedelta | None = None) -> "History":
        """Return this history; VerificationError if the state of certificates cannot be known (:meth:`problem`)."""
        if problem := self.problem(at or datetime.max, max_age if at else None):
            raise VerificationError(
                f"the state of certificates cannot be known: {problem}",
                file=self.store.url,
                hint="`mbd log check` lists what is missing: restore it from a copy; `mbd log renew` signs a new head",
            )
        return self

    @cached_property
    def _about(self) -> Mapping[str, list[StatementFacts]]:
        about = defaultdict[str, list[StatementFacts]](list)
        for one in self.statements:
            about[one.about].append(one)
        return about

    @cached_property
    def _by_name(self) -> Mapping[str, list[CertificateFacts]]:
        models = defaultdict[str, list[CertificateFacts]](list)
        for one in self.certificates.values():
            models[one.model].append(one)
        return models
