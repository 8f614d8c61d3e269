"""A certificate in plain words, as Markdown: the report in its bundle, and what `mbd certificate show` prints."""

from mbd.formats.predicate import Predicate
from mbd.report.page.certificate import unsigned_page
from mbd.report.page.markdown import to_markdown


def certificate_report(predicate: Predicate, weights: str) -> str:
    """Return the whole report; `weights` is the SHA-256 of the released weights."""
    return to_markdown(unsigned_page(predicate, weights))
