"""The index page: every certificate with the verdict on it, what cannot be verified, and open requests."""

from datetime import timedelta

from mbd.formats.verdict import Decision
from mbd.history.entries import InvalidCertificate
from mbd.report.index import IndexRow, RequestRow, index_page
from mbd.report.page.html import to_html
from mbd.report.page.markdown import to_markdown
from tests.report.html import Seen
from tests.report.statements import ISSUED

VERDICTS: tuple[tuple[str, int, Decision], ...] = (
    ("a", 0, "withdrawn"),
    ("b", 2, "verified"),
    ("c", 1, "not verified"),
)
ROWS = [
    IndexRow(
        digest=letter * 64,
        model="sentiment",
        deleted="audio",
        method="exact",
        guarantee="exact",
        issued=ISSUED + timedelta(days=days),
        reaudit_by=ISSUED + timedelta(days=90),
        verdict=verdict,
        reason=f"the reason of {letter}",
    )
    for letter, days, verdict in VERDICTS
]
REQUESTS = [
    RequestRow("0" * 16, "sentiment", ("audio",), "certified", False, ISSUED),
    RequestRow("1" * 16, "sentiment", ("audio", "visual"), "received", True, ISSUED - timedelta(days=3)),
    RequestRow("2" * 16, "sentiment", ("visual",), "failed", True, ISSUED + timedelta(days=3)),
]


def test_the_newest_certificate_comes_first_and_each_has_its_page() -> None:
    page = index_page("file://store", ROWS, [], [], ISSUED)
    seen = Seen.of(to_html(page))
    links = [e.attributes["href"] for e in seen.all("a") if str(e.attributes["href"]).endswith(".html")]
    assert links == [f"certificates/{letter * 64}.html" for letter in "bca"]
    assert page.summary[0] == "3 certificates in this store: 1 verified, 1 not verified, 1 withdrawn."
    assert "the reason of a" in seen.text
    assert "the reason of b" not in seen.text
    assert not seen.all("script")
    assert "| [bbbbbbbbbbbb](certificates/" + "b" * 64 + ".html) | VERIFIED |" in to_markdown(page)


def test_what_cannot_be_verified_is_listed_and_has_no_page() -> None:
    page = index_page(
        "file://store", ROWS[:1], [InvalidCertificate("d" * 64, "the log's signature is wrong")], [], ISSUED
    )
    assert "1 object cannot be verified and should not be relied on." in page.summary
    seen = Seen.of(to_html(page))
    assert f"{'d' * 64}: the log's signature is wrong" in seen.text
    assert not any("dddd" in str(e.attributes.get("href")) for e in seen.elements)


def test_requests_are_counted_and_open_ones_are_listed_by_deadline() -> None:
    page = index_page("file://store", [], [], REQUESTS, ISSUED)
    assert page.summary[-1] == "2 open requests, 1 past the deadline."
    text = to_markdown(page)
    assert "No certificate has been published here." in text
    assert "| 1111111111111111 | sentiment | audio, visual | received | 2026-02-27, 3 days late |" in text
    assert "2026-03-05, 3 days left" in text
    assert text.index("1111111111111111") < text.index("2222222222222222")
    assert "0000000000000000" not in text
