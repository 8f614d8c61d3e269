"""Step `report`: from a bundle, or from all certificates of a store, to pages that people look at.

    mbd report BUNDLE --out FILE.html|.md|.json      one page in one format
    mbd report BUNDLE --out DIR                      report.html, report.md, report.json
    mbd report --store URL --out DIR                 index.* and certificates/SHA256.*, in all three formats

A bundle is shown as it is: nothing is verified, and the page says so until its reader checks it. From a store only what
verifies gets a page, together with what has been said about it since; the rest is listed as invalid. Pages are no part
of a certificate. The same bundle, or the same content of a store, gives the same bytes; the index is of a day.
"""

from collections.abc import Callable
from pathlib import Path

from mbd.errors import DataError, UsageError
from mbd.files import write_file
from mbd.formats.files import CERTIFICATE, PROOF
from mbd.formats.layout import CERTIFICATES
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.formats.statement import DeletionStatement
from mbd.history.evidence import read_leakage
from mbd.history.state import CertificateEntry
from mbd.log.checkpoint import Inclusion
from mbd.log.reader import Log
from mbd.report.page.certificate import PageContext, certificate_page
from mbd.report.page.content import Link, Page
from mbd.report.page.html import to_html
from mbd.report.page.markdown import to_markdown
from mbd.steps.step import step_run
from mbd.verifier.bundle import Bundle

NAME = "report"
FORMATS: dict[str, Callable[[Page], str]] = {
    ".html": to_html,
    ".md": to_markdown,
    ".json": lambda page: page.to_json(),
}


def of_bundle(bundle: Path, out: Path) -> Path:
    """Write the page of a bundle to a file, or in all formats to a folder; return what to open."""
    if bundle.name == CERTIFICATE:
        bundle = bundle.parent
    page = bundle_page(Bundle(bundle))
    if out.suffix in FORMATS and not out.is_dir():
        write_file(out, FORMATS[out.suffix](page))
        return out
    if out.suffix and not out.is_dir():
        raise UsageError("unknown format of a page", key="--out", value=out, hint="end it with .html, .md or .json")
    with step_run(NAME, out, {}, bundle=bundle) as step:
        write_page(step.folder / "report", page)
        step.look_at = "report.html"
    return out / "report.html"


def bundle_page(bundle: Bundle) -> Page:
    """Return the page of a bundle; nothing is verified."""
    statement = bundle.statement
    if not isinstance(statement, DeletionStatement):
        raise DataError("this is not a certificate, but a statement about one", file=bundle.file(CERTIFICATE))
    file = bundle.file(PROOF)
    inclusion = _inclusion(file.read_bytes(), str(file)) if file.is_file() else None
    leakage = bundle.file(LEAKAGE)
    known = LeakageRecord.read(leakage, "leakage record") if leakage.is_file() else None
    return certificate_page(statement, PageContext(bundle.digest, inclusion, known))


def store_page(
    log: Log, url: str, entry: CertificateEntry, answered: tuple[str, ...] = (), *, back: str = "../index.html"
) -> Page:
    """Return the page of a verified certificate.

    Args:
        log: The log that it was read from; its proof of inclusion is made from it, not taken from the store.
        url: The store's URL, as readers of the page know it.
        entry: The certificate.
        answered: Ids of the requests that it answers.
        back: Address of the list of certificates.

    Raises:
        VerificationError: The log no longer has what the proof of inclusion needs.

    """
    known = PageContext(
        digest=entry.digest,
        inclusion=log.inclusion(entry.facts.index, bytes.fromhex(entry.digest)),
        leakage=read_leakage(log.store, entry.statement),
        about=entry.about,
        status=entry.undated,
        answered=answered,
        url=f"{url}/{CERTIFICATES}/{entry.digest}",
        back=Link(text="All certificates", href=back),
    )
    return certificate_page(entry.statement, known)


def _inclusion(proof: bytes, name: str) -> Inclusion:
    hint = "get the bundle again from where it was published"
    return Inclusion.from_bytes(proof, "proof of inclusion", file=name, hint=hint)


def write_page(place: Path, page: Page) -> None:
    """Write a page in all formats; `place` lacks the ending."""
    for ending, show in FORMATS.items():
        write_file(place.with_name(place.name + ending), show(page))
