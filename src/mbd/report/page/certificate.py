"""The page of one certificate: the content of its signed statement, and its context.

The page comes from the statement alone, except for `PageContext`: the certificate's digest, its entry in the log, its
`leakage.json`, and, if a store was asked, whether it is in force and what was stated about it later. No clock is read:
the same context gives the same page.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from mbd.formats.files import CERTIFICATE, PROOF, WEIGHTS
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.formats.predicate import Erasure, Predicate
from mbd.formats.statement import (
    SUBJECTS,
    AnyStatement,
    DeletionStatement,
    NothingHeldStatement,
    PurgeReport,
    PurgeStatement,
    ReauditStatement,
    ReinstatementStatement,
    RevocationStatement,
    SupersessionStatement,
)
from mbd.log.checkpoint import Inclusion
from mbd.report.page.audit import evidence, utility
from mbd.report.page.content import (
    ABSENT,
    Block,
    Fact,
    Facts,
    Items,
    Link,
    Page,
    PageSection,
    PageStatus,
    PageTable,
    Verification,
)
from mbd.report.page.origin import budget, copies, day, origin, request, weights
from mbd.report.page.words import commands, deadline, guaranteed, limits, summary
from mbd.verifier.verdict import fingerprint

KIND = "Modality Deletion Certificate"
_CAUTION = (
    "This page is not evidence: anyone could have written it. Choose the files that you received, and a trust file "
    "obtained independently of the certificate. They stay on this computer; the page cannot send anything."
)
_BEYOND = (
    "At most, this page finds a certificate genuine. Not checked here, but by the command below: whether the "
    "certificate is still in force, whether the "
    "weights have the structure that it states, and whether the privacy budget and the gate were computed correctly."
)


@dataclass(frozen=True)
class PageContext:
    """What is known of a certificate beyond its statement."""

    digest: str
    """SHA-256 of its envelope"""
    inclusion: Inclusion | None = None
    """its entry in the log, according to its proof"""
    leakage: LeakageRecord | None = None
    """its `leakage.json`; None: it has none, or it is not at hand"""
    about: tuple[AnyStatement, ...] = ()
    """verified statements about it"""
    reaudit_by: datetime | None = None
    """by when to audit again, as set by the last audit that passed"""
    erasure: Erasure | None = None
    """what the last purge claims; None: as the statements about it say"""
    keys: tuple[str, ...] = ()
    """SHA-256 of the keys that signed it"""
    standing: PageStatus | None = None
    """whether it was in force when a store was asked; None: none was"""
    answered: tuple[str, ...] = ()
    """ids of the requests that it answers"""
    url: str | None = None
    """its URL in the store"""
    back: Link | None = None
    """the page that lists it"""


def certificate_page(statement: DeletionStatement, context: PageContext) -> Page:
    """Return the whole page of a certificate."""
    predicate = statement.predicate
    ended = context.standing is not None and context.standing.rules.ended
    purge, due = _last_purge(context.about), None if ended else context.reaudit_by or predicate.reaudit_by
    erasure = purge.erasure if purge else context.erasure or predicate.erasure
    return Page(
        kind=KIND,
        title=_title(predicate) if _holds(context.standing) else f"Claimed: {_title(predicate)}",
        number=fingerprint(context.digest),
        address=context.url,
        standing=context.standing,
        back=context.back,
        summary=summary(predicate, erasure, due),
        glance=tuple(_glance(predicate, due, context.keys)),
        sections=(
            guaranteed(predicate),
            limits(predicate),
            _check(predicate, context),
            *_evidence(predicate, context.leakage, context.answered),
            copies(erasure, purge),
            *_since(context),
            origin(predicate),
            _files(statement, context),
        ),
    )


def unsigned_page(predicate: Predicate, released: str, leakage: LeakageRecord | None) -> Page:
    """Return the page before anything is signed; `released`: SHA-256 of the released weights."""
    return Page(
        kind=KIND,
        title=_title(predicate),
        summary=summary(predicate, predicate.erasure, predicate.reaudit_by),
        glance=(
            *_glance(predicate, predicate.reaudit_by),
            Fact(name="released weights (SHA-256)", value=released, code=True),
        ),
        sections=(
            guaranteed(predicate),
            limits(predicate),
            *_evidence(predicate, leakage),
            origin(predicate),
            PageSection(id="check", title="How to verify it", blocks=tuple(commands(predicate))),
        ),
    )


def _evidence(
    predicate: Predicate, leakage: LeakageRecord | None, answered: tuple[str, ...] = ()
) -> Iterator[PageSection]:
    yield evidence(predicate.evidence, leakage)
    yield utility(predicate.evidence, leakage)
    yield weights(predicate)
    yield from budget(predicate)
    yield request(predicate, answered)


def _holds(standing: PageStatus | None) -> bool:
    """Return whether what the certificate says may be the headline; without a store nothing stands against it."""
    return standing is None or standing.verdict in ("verified", "replaced")


def _title(predicate: Predicate) -> str:
    guarantee = predicate.guarantee
    return guarantee.say(guarantee.rules.headline, predicate.deleted.words, predicate.model)


def _glance(predicate: Predicate, due: datetime | None, keys: tuple[str, ...] = ()) -> Iterator[Fact]:
    method = predicate.method
    yield Fact(name="guarantee", value=predicate.guarantee.words)
    yield Fact(name="method", value=method.name + (f", {method.variant}" if method.variant else ""))
    yield Fact(name="issuer", value=predicate.issuer.name or "not stated")
    if predicate.issuer.contact:
        yield Fact(name="contact", value=predicate.issuer.contact)
    if keys:
        yield Fact(name="signed by key", value=", ".join(map(fingerprint, keys)), code=True)
    yield Fact(name="issued", value=day(predicate.issued))
    if due:
        yield Fact(name=deadline(predicate), value=day(due))
    if predicate.request.reference:
        yield Fact(name="request", value=predicate.request.reference)


def _last_purge(about: tuple[AnyStatement, ...]) -> PurgeReport | None:
    purges = [statement.predicate for statement in about if isinstance(statement, PurgeStatement)]
    return max(purges, key=lambda purge: purge.issued, default=None)


def _check(predicate: Predicate, context: PageContext) -> PageSection:
    names = [name for name in SUBJECTS if name != LEAKAGE or predicate.evidence.audit]
    blocks: tuple[Block, ...] = (
        Verification(
            caution=_CAUTION,
            beyond=_BEYOND,
            certificate=context.digest,
            files=(CERTIFICATE, PROOF, "trust.json", *names),
        ),
        *commands(predicate, context.url),
    )
    return PageSection(id="check", title="Verify it yourself", blocks=blocks)


def _since(context: PageContext) -> Iterator[PageSection]:
    """Yield the later statements about the certificate, if there are any."""
    if context.about:
        statements = sorted((statement.predicate.issued, _statement(statement)) for statement in context.about)
        items = tuple(f"{day(at)}: {text}" for at, text in statements)
        yield PageSection(id="since", title="Later statements about it", blocks=(Items(items=items),))


def _statement(statement: AnyStatement) -> str:
    match statement:
        case RevocationStatement():
            return f"revoked. {statement.predicate.reason}"
        case SupersessionStatement():
            return f"replaced by certificate {statement.predicate.by}. {statement.predicate.reason}"
        case ReauditStatement():
            again = statement.predicate
            reasons = "; ".join(again.audit.reasons)
            return f"audited again: {again.audit.decision}. {reasons or f'Next by {day(again.reaudit_by)}'}"
        case PurgeStatement():
            return f"copies of the old weights: {statement.predicate.erasure.words}."
        case ReinstatementStatement() | NothingHeldStatement():
            return _about_persons(statement)
    return "replaced by a later certificate."


def _about_persons(statement: ReinstatementStatement | NothingHeldStatement) -> str:
    names = ", ".join(statement.predicate.modalities)
    if isinstance(statement, NothingHeldStatement):
        return f"a person asked, and its data has no {names} of them."
    return f"overruled: {names} may be taken again. {statement.predicate.reason}"


def _files(statement: DeletionStatement, context: PageContext) -> PageSection:
    proof = context.inclusion
    origin_line = proof.checkpoint.partition("\n")[0] if proof else ""
    entry = f"entry {proof.index} of {proof.tree_size} in {origin_line}" if proof else ABSENT
    digests = statement.digests
    ordered = (WEIGHTS, *(name for name in digests if name != WEIGHTS))
    return PageSection(
        id="digests",
        title="Files and digests",
        blocks=(
            Facts(
                facts=(
                    Fact(name="certificate (SHA-256 of its envelope)", value=context.digest, code=True),
                    Fact(name="transparency log, according to the proof", value=entry),
                )
            ),
            PageTable(
                caption="The files that the certificate is about",
                header=("file", "SHA-256"),
                rows=tuple((name, digests[name]) for name in ordered),
            ),
        ),
    )
