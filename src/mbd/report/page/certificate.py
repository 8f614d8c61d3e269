"""The page of one certificate: what its signed statement says, and what else is known of it.

What is on the page comes from the statement alone, except for what `Known` holds: the certificate's name, its place in
the log, and, where a store was asked, what has been said about the certificate since. No clock is read, so the same
things known give the same page; whether a date has passed is for the reader's clock to say.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from mbd.certificate.log.inclusion import Inclusion
from mbd.certificate.state import Status, status_of
from mbd.formats.leakage import LEAKAGE
from mbd.formats.predicate import Predicate
from mbd.formats.purge import PurgeReport
from mbd.formats.statement import (
    CERTIFICATE,
    PROOF,
    SUBJECTS,
    WEIGHTS,
    AnyStatement,
    DeletionStatement,
    PurgeStatement,
    ReauditStatement,
    RevocationStatement,
    SupersessionStatement,
)
from mbd.report.page.content import ABSENT, Block, Fact, Facts, Items, Link, Page, PageSection, PageTable, Verification
from mbd.report.page.evidence import evidence, utility
from mbd.report.page.origin import budget, copies, day, origin, request, weights
from mbd.report.page.words import commands, forgotten, guaranteed, limits, summary

KIND = "Modality Deletion Certificate"
_NOT_ASKED = "no store was asked"
_CAUTION = (
    "Nothing on this page vouches for itself: whoever made the page could have written anything. Choose the files that "
    "you were given, and the trust file that you got by a way of your own. They stay on this computer; the page "
    "cannot send anything."
)
_BEYOND = (
    "Whether the certificate was revoked or replaced later, whether the weights are built as the certificate says, and "
    "whether the privacy budget and the gate were computed rightly is not checked here but by the command below."
)


@dataclass(frozen=True)
class PageContext:
    """What is known of a certificate besides what it states."""

    digest: str
    """SHA-256 of its envelope"""
    inclusion: Inclusion | None = None
    """its place in the log, as its proof says"""
    about: tuple[AnyStatement, ...] | None = None
    """statements about it, verified; None: no store was asked"""
    answered: tuple[str, ...] = ()
    """ids of the requests that it answers"""
    place: str | None = None
    """its URL in the store"""
    back: Link | None = None
    """the page that lists it"""


def certificate_page(statement: DeletionStatement, known: PageContext) -> Page:
    """Return the whole page of a certificate."""
    predicate = statement.predicate
    purge = _last_purge(known.about or ())
    erasure = purge.erasure if purge else predicate.erasure
    stands = status_of(statement, known.about or (), predicate.issued)  # no clock: whether it is overdue is not asked
    return Page(
        kind=KIND,
        title=_title(predicate),
        back=known.back,
        summary=(*_warning(stands), *summary(predicate, erasure, stands.reaudit_by)),
        glance=(*_glance(predicate, stands.reaudit_by), Fact(name="where it stands", value=_standing(stands, known))),
        sections=(
            guaranteed(predicate),
            limits(predicate),
            _check(predicate, known),
            evidence(predicate.evidence),
            utility(predicate.evidence),
            weights(predicate),
            *budget(predicate),
            request(predicate, known.answered),
            copies(erasure, purge),
            *_since(known),
            origin(predicate),
            _files(statement, known),
        ),
    )


def unsigned_page(predicate: Predicate, released: str) -> Page:
    """Return what can be said before anything is signed; `released`: SHA-256 of the released weights."""
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
            evidence(predicate.evidence),
            utility(predicate.evidence),
            weights(predicate),
            *budget(predicate),
            request(predicate),
            origin(predicate),
            PageSection(id="check", title="How to check it", blocks=tuple(commands(predicate))),
        ),
    )


def _title(predicate: Predicate) -> str:
    return f"{predicate.model} has forgotten {forgotten(predicate)}"


def _glance(predicate: Predicate, due: datetime) -> Iterator[Fact]:
    method = predicate.method
    yield Fact(name="guarantee", value=predicate.guarantee.kind)
    yield Fact(name="method", value=method.name + (f", {method.variant}" if method.variant else ""))
    yield Fact(name="issued", value=day(predicate.issued))
    yield Fact(name="attack again by", value=day(due))


def _warning(stands: Status) -> Iterator[str]:
    if stands.state != "valid":
        yield f"Do not rely on this certificate any more: {stands.reason}."


def _standing(stands: Status, known: PageContext) -> str:
    if known.about is None:
        return _NOT_ASKED
    return "the store holds nothing against it" if stands.state == "valid" else stands.reason


def _last_purge(about: tuple[AnyStatement, ...]) -> PurgeReport | None:
    purges = [said.predicate for said in about if isinstance(said, PurgeStatement)]
    return max(purges, key=lambda purge: purge.issued, default=None)


def _check(predicate: Predicate, known: PageContext) -> PageSection:
    names = [name for name in SUBJECTS if name != LEAKAGE or predicate.evidence.leakage]
    blocks: tuple[Block, ...] = (
        Verification(
            caution=_CAUTION,
            beyond=_BEYOND,
            certificate=known.digest,
            files=(CERTIFICATE, PROOF, "trust.json", *names),
        ),
        *commands(predicate, known.place),
    )
    return PageSection(id="check", title="Check it yourself", blocks=blocks)


def _since(known: PageContext) -> Iterator[PageSection]:
    """Yield what has been said about the certificate since it was published, if somebody asked and something was."""
    if known.about:
        said = sorted((statement.predicate.issued, _said(statement)) for statement in known.about)
        items = tuple(f"{day(at)}: {what}" for at, what in said)
        yield PageSection(id="since", title="What has been said about it since", blocks=(Items(items=items),))


def _said(statement: AnyStatement) -> str:
    if isinstance(statement, RevocationStatement):
        return f"revoked. {statement.predicate.reason}"
    if isinstance(statement, SupersessionStatement):
        return f"replaced by certificate {statement.predicate.by}. {statement.predicate.reason}"
    if isinstance(statement, ReauditStatement):
        audit = statement.predicate
        reasons = "; ".join(audit.leakage.reasons)
        return f"attacked again: {audit.leakage.decision}. {reasons or f'Next by {day(audit.reaudit_by)}'}"
    if isinstance(statement, PurgeStatement):
        return f"copies of the old weights searched for: {statement.predicate.erasure.claim}."
    return "replaced by a later certificate."


def _files(statement: DeletionStatement, known: PageContext) -> PageSection:
    place = known.inclusion
    origin_line = place.checkpoint.partition("\n")[0] if place else ""
    entry = f"entry {place.index} of {place.tree_size} in {origin_line}" if place else ABSENT
    digests = statement.digests
    ordered = (WEIGHTS, *(name for name in digests if name != WEIGHTS))
    return PageSection(
        id="digests",
        title="Files and digests",
        blocks=(
            Facts(
                facts=(
                    Fact(name="certificate (SHA-256 of its envelope)", value=known.digest, code=True),
                    Fact(name="transparency log, as the proof says", value=entry),
                )
            ),
            PageTable(
                caption="The files that the certificate is about",
                header=("file", "SHA-256"),
                rows=tuple((name, digests[name]) for name in ordered),
            ),
        ),
    )
