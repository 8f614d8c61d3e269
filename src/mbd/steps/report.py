"""Step `report`: from a bundle, or from all certificates of a store, to pages that people look at.

    mbd report BUNDLE --out FILE.html|.md|.json      one page in one format
    mbd report BUNDLE --out DIR                      report.html, report.md, report.json
    mbd report BUNDLE --store URL --out …            the same with its status: what `mbd verify` finds now
    mbd report BUNDLE --pdf --out …                  as PDF, too, or FILE.pdf alone
    mbd report BUNDLE --format card --out FILE.md    a section for the README of the model
    mbd report --store URL --out DIR                 index.* and certificates/SHA256.*, in all three formats

Without a store nothing is verified, and the page says so until its reader checks it. From a store only what verifies
gets a page, together with what has been said about it since; the rest is listed as invalid. Pages are no part of a
certificate. The same bundle without a store gives the same bytes; a status is of the time that it names.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from mbd.errors import DataError, UsageError
from mbd.files import write_file
from mbd.formats.files import CERTIFICATE, PROOF
from mbd.formats.layout import CERTIFICATES, certificate_name
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.formats.predicate import Erasure
from mbd.formats.statement import DeletionStatement
from mbd.history.entries import CertificateEntry, read_leakage
from mbd.log.checkpoint import Inclusion
from mbd.log.reader import Log
from mbd.outputs import step_run
from mbd.records import now
from mbd.report.page.certificate import PageContext, certificate_page
from mbd.report.page.content import Link, Page, PageStatus
from mbd.report.page.html import Paper, print_pdf, to_html
from mbd.report.page.markdown import to_card, to_markdown
from mbd.trust.envelope import Envelope
from mbd.verifier.bundle import Bundle
from mbd.verifier.verdict import Verdict

NAME = "report"
Renderer = Callable[[Page], str | bytes]
FORMATS: dict[str, Renderer] = {
    ".html": to_html,
    ".md": to_markdown,
    ".json": lambda page: page.to_json(),
}


def of_bundle(bundle: Path, out: Path, verdict: Verdict | None = None, *, pdf: Paper | None = None) -> Path:
    """Write the page of a bundle to a file, whose ending is the format, or in all formats to a folder; return it.

    `verdict` is what `mbd verify` found of the bundle just now, for the status. With `pdf` it is written as PDF, too,
    for this paper: beside a file of another format under the same name.
    """
    page = bundle_page(_opened(bundle), verdict)
    formats = FORMATS if pdf is None else {**FORMATS, ".pdf": lambda shown: print_pdf(to_html(shown, pdf))}
    if out.suffix in formats and not out.is_dir():
        for ending in dict.fromkeys((out.suffix, ".pdf" if pdf else out.suffix)):
            write_file(out.with_suffix(ending), formats[ending](page))
        return out
    if out.suffix and not out.is_dir():
        raise UsageError("unknown format of a page", key="--out", value=out, hint=f"end it with {', '.join(formats)}")
    with step_run(NAME, out, {}, bundle=_opened(bundle).folder) as step:
        write_page(step.folder / "report", page, formats)
        step.look_at = "report.html"
    return out / "report.html"


def card_of_bundle(bundle: Path, out: Path, verdict: Verdict | None = None) -> Path:
    """Write the section of a model card about a bundle; return the file."""
    write_file(out, to_card(bundle_page(_opened(bundle), verdict)))
    return out


def _opened(bundle: Path) -> Bundle:
    return Bundle(bundle.parent if bundle.name == CERTIFICATE else bundle)


def bundle_page(bundle: Bundle, verdict: Verdict | None = None) -> Page:
    """Return the page of a bundle, which verifies nothing; `verdict`: what `mbd verify` found of it just now."""
    statement = bundle.statement
    if not isinstance(statement, DeletionStatement):
        raise DataError("this is not a certificate, but a statement about one", file=bundle.file(CERTIFICATE))
    return certificate_page(statement, _context(bundle, verdict))


def _context(bundle: Bundle, verdict: Verdict | None) -> PageContext:
    """Return what the files of a bundle and a verdict on it add to its statement."""
    file = bundle.file(PROOF)
    hint = "get the bundle again from where it was published"
    inclusion = Inclusion.read(file, "proof of inclusion", hint) if file.is_file() else None
    leakage = bundle.file(LEAKAGE)
    known = LeakageRecord.read(leakage, "leakage record") if leakage.is_file() else None
    context = PageContext(digest=bundle.digest, inclusion=inclusion, leakage=known, keys=_keys(bundle.envelope))
    if verdict is None or verdict.store is None:
        return context
    reason = verdict.problems[0].reason if verdict.problems else ""
    return replace(
        context,
        reaudit_by=datetime.fromisoformat(verdict.claims["reaudit_by"]) if verdict.claims else None,
        erasure=Erasure.model_validate(verdict.claims["erasure"]) if verdict.claims else None,
        standing=PageStatus(verdict=verdict.decision, reason=reason, asked=now(), successor=verdict.successor),
        url=f"{verdict.store}/{CERTIFICATES}/{bundle.digest}",
    )


def _keys(envelope: bytes) -> tuple[str, ...]:
    return tuple(signature.keyid for signature in Envelope.parse(envelope).signatures)


def store_page(
    log: Log,
    url: str,
    entry: CertificateEntry,
    at: datetime,
    answered: tuple[str, ...] = (),
    *,
    back: str = "../index.html",
) -> Page:
    """Return the page of a verified certificate.

    Args:
        log: The log that it was read from; its proof of inclusion is made from it, not taken from the store.
        url: The store's URL, as readers of the page know it.
        entry: The certificate.
        at: When the log was read.
        answered: Ids of the requests that it answers.
        back: Address of the list of certificates.

    Raises:
        VerificationError: The log no longer has what the proof of inclusion needs.

    """
    successor = entry.status.successor
    if successor:
        successor = successor.model_copy(update={"address": f"{url}/{CERTIFICATES}/{successor.digest}"})
    known = PageContext(
        digest=entry.digest,
        inclusion=log.inclusion(entry.facts.index, bytes.fromhex(entry.digest)),
        leakage=read_leakage(log.store, entry.statement),
        about=entry.about,
        reaudit_by=entry.status.reaudit_by,
        keys=_keys(log.store.read(certificate_name(entry.digest), sha256=entry.digest)),
        standing=PageStatus(
            verdict=entry.status.decision,
            reason="" if entry.status.decision == "verified" else entry.status.reason,
            asked=at,
            successor=successor,
        ),
        answered=answered,
        url=f"{url}/{CERTIFICATES}/{entry.digest}",
        back=Link(text="All certificates", href=back),
    )
    return certificate_page(entry.statement, known)


def write_page(place: Path, page: Page, formats: Mapping[str, Renderer] | None = None) -> None:
    """Write a page in all formats; `place` lacks the ending."""
    for ending, show in (formats or FORMATS).items():
        write_file(place.with_name(place.name + ending), show(page))
