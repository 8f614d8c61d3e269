"""A section of a model card: Markdown that people paste into the README of their model."""

from collections.abc import Iterator

from mbd.formats.statement import DeletionStatement
from mbd.markdown import code, escape
from mbd.report.page.certificate import PageContext
from mbd.report.page.origin import day
from mbd.report.page.words import COPIES, deadline, forgotten
from mbd.verifier.verdict import fingerprint


def to_card(statement: DeletionStatement, context: PageContext) -> str:
    """Return the section about a certificate."""
    predicate, guarantee = statement.predicate, statement.predicate.guarantee
    sentence = guarantee.say(guarantee.rules.headline, forgotten(predicate), predicate.model)
    facts = "\n".join(f"- **{name}**: {value}" for name, value in _facts(statement, context))
    verify = f"mbd verify {context.url or 'BUNDLE --store URL'} --model DIR --trust FILE"
    return (
        f"## Deleted from this model: {escape(forgotten(predicate))}\n\n{escape(sentence)}.\n\n"
        f"{facts}\n\nDo not rely on this section. Verify the certificate:\n\n    {verify}\n"
    )


def _facts(statement: DeletionStatement, context: PageContext) -> Iterator[tuple[str, str]]:
    predicate, guarantee = statement.predicate, statement.predicate.guarantee
    short = guarantee.say(guarantee.rules.short, forgotten(predicate))
    yield "Guarantee", escape(f"{guarantee.kind} ({short})")
    yield "Certificate", code(context.digest)
    if context.url:
        yield "Published at", escape(context.url)
    issuer, keys = predicate.issuer.name or "not stated", ", ".join(map(fingerprint, context.keys))
    yield "Issuer", escape(f"{issuer}; signed by key {keys}" if keys else issuer)
    yield "Issued", f"{day(predicate.issued)}, {deadline(predicate)} {day(predicate.reaudit_by)}"
    if context.standing:
        yield "Status", escape(f"{context.standing.word}, asked {context.standing.when}")
    yield "Inputs", escape(", ".join(predicate.structure.inputs))
    yield "Never give it", escape(", ".join(predicate.structure.absent.reads) or "–")
    yield "Old copies", escape(COPIES[predicate.erasure.claim])
