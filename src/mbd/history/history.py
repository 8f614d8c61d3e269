"""What the log says: every statement in it, verified, in its order, and what follows from them.

The log is the database. Which release of a model is current, which modalities are revoked, whether a certificate was
revoked, superseded or audited again follows from the signed statements that the log lists, and from nothing else that
is in the store (:mod:`mbd.history.replay` reads them):

    history = read_history(store, trust)
    history.require()                              # VerificationError unless everything in the log could be read
    history.model("sentiment").current             # the last release that is not withdrawn and has nothing revoked
    history.model("sentiment").revoked             # modalities that no release of this name may take
    history.model("sentiment").references          # for each modality of it, the model that never saw it
    history.about(digest)                          # the statements about a certificate, in the log's order
    history.statement(digest)                      # a whole statement, out of the store

A modality, or a person, is revoked from the first certificate of it until `mbd models reinstate` says otherwise, and by
nothing else: where the certificate is withdrawn, no model is current that has seen what was revoked.

An entry that cannot be read could be a revocation of any certificate. So it *blocks* all answers about what is valid:
`require` refuses, and readers say that the state could not be checked. An entry that can be read but does not count
(its signers' keys are known, and too few of them were trusted for it) is a finding that blocks nothing.

Memory stays small: of each statement a few fields are kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from mbd.errors import VerificationError
from mbd.formats.layout import certificate_name
from mbd.formats.predicate import CHECKPOINT_AGE
from mbd.formats.statement import AnyStatement, DeletionStatement, RegistrationStatement
from mbd.history.facts import (
    CertificateFacts,
    Effect,
    EntryFinding,
    ReferenceFacts,
    RegistrationFacts,
    Release,
    StatementFacts,
)
from mbd.log.checkpoint import Checkpoint
from mbd.storage.store import Store
from mbd.trust.trust_file import CLOCKS_DIFFER_BY
from mbd.verifier.reader import parse_envelope

MAX_AGE = CHECKPOINT_AGE
"""how old the log's checkpoint may be by default"""
WITHDRAWN: frozenset[Effect] = frozenset({"revoked", "superseded", "refuted"})
"""effects after which a certificate is no longer in force"""
_DISOWNED: frozenset[Effect] = frozenset({"revoked", "refuted"})
"""effects after which what a certificate says of its model may be wrong"""


@dataclass(frozen=True)
class ModelHistory:
    """What the log says of one model name."""

    name: str
    certificates: tuple[CertificateFacts, ...]
    """in the log's order"""
    registrations: tuple[RegistrationFacts, ...]
    """in the log's order"""
    current: Release | None
    """the last release that no later statement revokes, supersedes or refutes, and that has nothing of what is revoked;
    of the registered ones, only those that were promoted count"""
    revoked: frozenset[str]
    """modalities that no release of this name may take: those of all its certificates, also of withdrawn ones, without
    those that were reinstated"""
    persons: tuple[CertificateFacts, ...]
    """certificates of persons' deletions that were not reinstated: what is trained later leaves their recordings out"""
    start: Release | None
    """what a deletion starts from: the last release that no later statement withdraws, also one that has what is
    revoked, because the certificate of its deletion was withdrawn"""
    base: RegistrationFacts | None
    """the registered model that the last release is, or was deleted from; None: none was registered"""
    ready: tuple[ReferenceFacts, ...]
    """references of the base that have seen no recordings which were deleted since"""
    unproven: Mapping[str, str] = field(default_factory=dict)
    """certificates, by digest, that have inherited a deletion from one that was revoked or refuted since, or passed one
    on to it, and which that is: what they say was deleted is in doubt"""
    lost: Mapping[str, str] = field(default_factory=dict)
    """certificates, by digest, with a deletion that a later release does not keep, and how; the newest one has none"""

    @property
    def references(self) -> dict[str, ReferenceFacts | None]:
        """For each modality that the last release takes, the registered model that never saw it, if there is one."""
        inputs = self.start.inputs if self.start else ()
        return {m: self.reference([other for other in inputs if other != m]) for m in inputs}

    def reference(self, inputs: Iterable[str]) -> ReferenceFacts | None:
        """Return the registered reference that takes, and has seen, these modalities alone; None: there is none."""
        wanted = set(inputs)
        return next((r for r in self.ready if set(r.inputs) == wanted), None)

    @property
    def respected(self) -> tuple[CertificateFacts, ...]:
        """The certificates of persons' deletions whose recordings the last release was made without."""
        if self.start is None:
            return ()
        trained, last = self.base.index if self.base else -1, self.start.index
        before = self.base.left_out if self.base else ()
        later = [c for c in self.certificates if c.scope == "subjects"]
        return tuple(c for c in later if c.digest in before or trained < c.index <= last)

    @cached_property
    def releases(self) -> tuple[Release, ...]:
        """All certificates and registrations, in the log's order."""
        releases: list[Release] = [*self.certificates, *self.registrations]
        return tuple(sorted(releases, key=lambda r: r.index))

    @cached_property
    def released(self) -> tuple[Release, ...]:
        """The releases that are or were in force: registrations only if they were promoted."""
        return tuple(r for r in self.releases if isinstance(r, CertificateFacts) or r.promoted)

    def audited(self, modality: str) -> CertificateFacts | None:
        """Return the certificate that an audit of a modality is about: that of the current release, if it goes without.

        A later deletion replaces the certificate of the modality's own, and covers what was deleted before.
        """
        current = self.current
        if isinstance(current, CertificateFacts) and modality in current.revoked:
            return current
        return next((c for c in reversed(self.certificates) if modality in c.modalities), None)

    def returned(self, inputs: Iterable[str]) -> tuple[str, ...]:
        """Return the revoked modalities among the inputs of a model of this name."""
        return tuple(sorted(self.revoked.intersection(inputs)))

    def problem(self, release: Release) -> str | None:
        """Say why a release of this name may not be used: it takes, or was trained on, what was revoked; None: it may.

        A registered model is asked for all that its training has seen. A certificate is made from the release that was
        current, so it respects the persons' deletions before it.
        """
        if disowned := self.unproven.get(release.digest):
            return (
                f"what certificate {disowned[:16]} of the same lineage says was deleted is in doubt: it was withdrawn"
            )
        if isinstance(release, RegistrationFacts):
            returned, how = self.returned(release.sees), "was trained on it"
        else:
            returned, how = self.returned(release.inputs), "takes it"
        if returned:
            return f"{', '.join(returned)} is revoked for {self.name}, and this model {how}"
        for deletion in self.persons:
            if deletion.weights != release.weights and not _respects(release, deletion):
                return trained_on_revoked(deletion)
        return None

    def respects(self, weights: str, person: CertificateFacts) -> bool:
        """Return whether weights are those of a release without the recordings that a person's deletion is about."""
        same = (r for r in self.releases if r.weights == weights)
        return weights == person.weights or any(_respects(r, person) for r in same)


def trained_on_revoked(person: CertificateFacts) -> str:
    """Say that a model has seen the recordings that a certificate of a person's deletion is about."""
    return f"the model was trained on recordings of a person that certificate {person.digest[:16]} has deleted"


def _respects(release: Release, person: CertificateFacts) -> bool:
    """Return whether a release was made without the recordings that a certificate of a person's deletion is about."""
    if isinstance(release, RegistrationFacts):
        return person.digest in release.left_out
    return person.index <= release.index


def _inherited(later: CertificateFacts, earlier: CertificateFacts) -> set[str]:
    """Return what a certificate lists as revoked and an earlier one, and not itself, has deleted."""
    if later.index < earlier.index or earlier.scope == "subjects":
        return set()
    return set(later.revoked).difference(later.modalities).intersection(earlier.modalities)


def _ready(base: RegistrationFacts, persons: Iterable[CertificateFacts]) -> tuple[ReferenceFacts, ...]:
    """Return the references of a registration that have seen none of the recordings which were deleted since."""
    gone = [c for c in persons if c.digest not in base.left_out and c.weights != base.weights]
    deleted = {modality for c in gone for modality in c.modalities}
    return tuple(r for r in base.references if not deleted.intersection(r.inputs))


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
    registrations: Mapping[str, RegistrationFacts] = field(default_factory=dict)
    """by digest, in the log's order"""
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

    @property
    def models(self) -> tuple[str, ...]:
        """The names under which models were registered or certified."""
        return tuple(sorted({*self._by_name, *(r.model for r in self.registrations.values())}))

    def _model(self, name: str) -> ModelHistory:
        certificates = self._by_name.get(name, [])
        registrations = [r for r in self.registrations.values() if r.model == name]
        of_persons = [c for c in certificates if c.scope == "subjects"]
        persons = tuple(c for c in of_persons if not self.reinstated(c).issuperset(c.modalities))
        released: list[Release] = [*certificates, *(r for r in registrations if r.promoted)]
        unproven = self._unproven(certificates)
        in_force = [r for r in released if not self.effects(r.digest) & WITHDRAWN and r.digest not in unproven]
        in_force.sort(key=lambda r: r.index)
        start = in_force[-1] if in_force else None
        before = [r for r in registrations if r.promoted and start and r.index <= start.index]
        base = before[-1] if before else None
        model = ModelHistory(
            name=name,
            certificates=tuple(certificates),
            registrations=tuple(registrations),
            current=None,
            revoked=self._revoked(certificates),
            persons=persons,
            start=start,
            base=base,
            ready=_ready(base, persons) if base else (),
            unproven=unproven,
        )
        current = next((r for r in reversed(in_force) if not model.problem(r)), None)
        doubted = dict.fromkeys(unproven, "it is not known whether it has a deletion that its lineage has lost")
        return replace(model, current=current, lost=self._lost_deletions(model) | doubted)

    def _lost_deletions(self, model: ModelHistory) -> dict[str, str]:
        """Return the certificates of a name with a deletion that no later release keeps, and which and how.

        Along the chain from a certificate to the newest release, each release that was not revoked or refuted has to
        keep its deletions: it takes no modality that the certificate revokes, a registered one has not even seen it,
        and persons' recordings were left out. What was reinstated since need not be kept. The releases are read once,
        from the newest to the oldest, so that a long history costs no more than its length.
        """
        lost: dict[str, str] = {}
        taken: dict[str, Release] = {}
        registered: list[RegistrationFacts] = []
        for release in reversed(model.released):
            if release is model.released[-1]:
                lost[release.digest] = f"the log has no later release of {model.name}"
            if isinstance(release, CertificateFacts):
                reinstated = self.reinstated(release)
                again = model.revoked.intersection(release.revoked) - reinstated
                for modality in sorted(again.intersection(taken)):
                    lost[release.digest] = f"a later release, {taken[modality].digest[:16]}, takes {modality} again"
                if release.scope == "subjects" and not reinstated.issuperset(release.modalities):
                    for later in registered:
                        if later.weights != release.weights and release.digest not in later.left_out:
                            lost[release.digest] = (
                                f"a later release, {later.digest[:16]}, has seen the deleted recordings"
                            )
            if self.effects(release.digest) & _DISOWNED:
                continue
            if isinstance(release, RegistrationFacts):
                registered.append(release)
            taken |= dict.fromkeys(release.sees if isinstance(release, RegistrationFacts) else release.inputs, release)
        return lost

    def _unproven(self, certificates: Iterable[CertificateFacts]) -> dict[str, str]:
        """Return the certificates that have inherited a deletion from one that was disowned, or passed one on to it.

        Attacks on a release are after what it has deleted itself, so a deletion that it inherits is as good as the
        certificate of that; and of a release that an audit refutes, any of its deletions may be the one that leaks. An
        exact release has never seen what its lineage deleted. What is issued after a certificate was disowned starts
        from another release if there is one that has deleted the same.
        """
        effects = {c: [s.index for s in self.about(c.digest) if s.effect in _DISOWNED] for c in certificates}
        disowned = {c: indices[0] for c, indices in effects.items() if indices}
        unproven, proven = dict[str, str](), set[str]()
        for c in effects:
            for other, index in disowned.items() if c.kind != "exact" else ():
                if _inherited(other, c) or _inherited(c, other) - (proven if c.index > index else set()):
                    unproven[c.digest] = other.digest
            if c not in disowned and (c.kind == "exact" or c.scope == "modalities"):
                proven.update(c.revoked if c.kind == "exact" else c.modalities)
        return unproven

    def reinstated(self, certificate: CertificateFacts) -> set[str]:
        """Return the modalities that may be taken again, by statements that list the certificate."""
        return {m for s in self._about.get(certificate.digest, ()) for m in s.modalities}

    def _revoked(self, certificates: Iterable[CertificateFacts]) -> frozenset[str]:
        """Return what certificates revoke for their name.

        Each revokes what it has deleted, until a reinstatement lists it. Of what its lineage had revoked before, it
        revokes nothing that was reinstated before it: the certificates that did are the ones that count. That one was
        withdrawn says that its model is not what it said. It gives no data back.
        """
        first, revoked = dict[str, int](), set[str]()
        for statement in (about for certificate in certificates for about in self.about(certificate.digest)):
            first |= {m: min(statement.index, first.get(m, statement.index)) for m in statement.modalities}
        for c in certificates:
            own = c.modalities if c.scope == "modalities" else ()
            inherited = (m for m in c.revoked if first.get(m, self.size) >= c.index)
            revoked |= {*own, *inherited} - self.reinstated(c)
        return frozenset(revoked)

    def effects(self, digest: str) -> set[Effect]:
        """Return what the statements about a certificate do to it."""
        return {s.effect for s in self._about.get(digest, ())}

    def shows(self, digest: str | None, model: str, modalities: Iterable[str], *, person: bool = False) -> bool:
        """Return whether a statement in the log answers a request: these modalities of a model were deleted.

        That of a person is also answered by a deletion of persons in them, or by the statement that nothing was held.
        A certificate that was revoked or refuted answers nothing, nor does one that is in doubt with it: their requests
        are open again.
        """
        certificate, wanted = self.certificates.get(digest or ""), set(modalities)
        if self.effects(digest or "") & _DISOWNED:
            return False
        if certificate is None:
            return person and any(s.digest == digest and s.kind == "nothing-held" for s in self.statements)
        if certificate.digest in self.model(certificate.model).unproven:
            return False
        of_persons = person and certificate.scope == "subjects" and wanted <= set(certificate.modalities)
        return certificate.model == model and (of_persons or wanted <= set(certificate.revoked))

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

    def registration(self, digest: str) -> RegistrationStatement:
        """Return a registration of the log as it was signed; VerificationError if it is another kind of statement."""
        statement = self.statement(digest)
        if not isinstance(statement, RegistrationStatement):
            raise VerificationError("this is not a registration", value=digest)
        return statement

    @property
    def digests(self) -> frozenset[str]:
        """Digests of all entries of the log."""
        return frozenset((*self.indices, *(f.digest for f in self.findings)))

    @cached_property
    def indices(self) -> Mapping[str, int]:
        """The index in the log of every statement that counts, by digest."""
        releases: tuple[Release, ...] = (*self.certificates.values(), *self.registrations.values())
        return {e.digest: e.index for e in releases} | {e.digest: e.index for e in self.statements}

    @cached_property
    def blocking(self) -> tuple[EntryFinding, ...]:
        """The entries because of which no state can be known."""
        return tuple(f for f in self.findings if f.blocks)

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
        if self.head.time > at + CLOCKS_DIFFER_BY:
            return f"the log's checkpoint is of a time in the future, {self.head.time:%Y-%m-%d %H:%M:%SZ}"
        if at - self.head.time > max_age:
            time = f"{self.head.time:%Y-%m-%d %H:%M:%SZ}"
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
        for statement in self.statements:
            about[statement.about].append(statement)
        return about

    @cached_property
    def _by_name(self) -> Mapping[str, list[CertificateFacts]]:
        models = defaultdict[str, list[CertificateFacts]](list)
        for certificate in self.certificates.values():
            models[certificate.model].append(certificate)
        return models
