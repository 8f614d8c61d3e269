"""Step `report`: pages of a bundle and of a store, the same bytes for the same content."""

import shutil
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from mbd.certificate.compose import compose_revocation
from mbd.errors import DataError, MbdError, UsageError, VerificationError
from mbd.files import file_digests
from mbd.formats.files import CERTIFICATE
from mbd.formats.layout import certificate_name, proof_name
from mbd.formats.predicate import COPIES
from mbd.history.history import History
from mbd.history.replay import read_history
from mbd.production.request_store import RequestStore
from mbd.production.store_pages import write_store_pages
from mbd.records import now
from mbd.report.page.content import NOT_ASKED, Page
from mbd.report.page.words import NOTHING_CLAIMED
from mbd.steps import report, verify
from mbd.storage.store import Store, update
from mbd.trust.trust_file import Trust
from mbd.verifier.bundle import Bundle
from mbd.verifier.verdict import fingerprint
from tests.monitoring.golden_store import purge_statement
from tests.refusals import refused
from tests.report.statements import SmallAuthority


@pytest.fixture
def authority(tmp_path: Path) -> SmallAuthority:
    return SmallAuthority.make(tmp_path / "authority")


def test_a_bundle_becomes_a_page_in_every_format(authority: SmallAuthority, tmp_path: Path) -> None:
    bundle = authority.publish("surgery")
    assert report.of_bundle(bundle, tmp_path / "pages") == tmp_path / "pages" / "report.html"
    names = {file.name for file in (tmp_path / "pages").iterdir()}
    assert names == {"report.html", "report.md", "report.json", "step.json"}
    page = Page.model_validate_json((tmp_path / "pages" / "report.json").read_bytes())
    assert page.title == 'Attacks found no audio in model "sentiment"'
    for ending in (".html", ".md", ".json"):
        file = tmp_path / f"one{ending}"
        assert report.of_bundle(bundle / CERTIFICATE, file) == file
        assert file.read_bytes() == (tmp_path / "pages" / f"report{ending}").read_bytes()


def test_the_same_bundle_gives_the_same_bytes(authority: SmallAuthority, tmp_path: Path) -> None:
    bundle = authority.publish("certified")
    shutil.copytree(bundle, tmp_path / "elsewhere")
    report.of_bundle(bundle, tmp_path / "first")
    report.of_bundle(tmp_path / "elsewhere", tmp_path / "second")
    assert file_digests(tmp_path / "first") == file_digests(tmp_path / "second")


def test_a_store_becomes_an_index_and_a_page_for_each_certificate(authority: SmallAuthority, tmp_path: Path) -> None:
    good, withdrawn, damaged = (authority.publish(kind).name for kind in ("exact", "surgery", "subjects"))
    authority.say(compose_revocation(withdrawn, "the data was wrong", now()))
    RequestStore(authority.private, authority.request_key).submit("sentiment", ["visual"], due_days=30)
    (authority.folder / "store" / certificate_name(damaged)).write_bytes(b"{}")
    done = write_store_pages(authority.params, authority.url, tmp_path / "site", trust=authority.trust_file)
    assert {row.digest: row.verdict for row in done.certificates} == {good: "not verified", withdrawn: "withdrawn"}
    assert [invalid.digest for invalid in done.invalid] == [damaged]
    pages = {file.name for file in (tmp_path / "site" / "certificates").iterdir()}
    assert pages == {f"{digest}{ending}" for digest in (good, withdrawn) for ending in (".html", ".md", ".json")}
    revoked = (tmp_path / "site" / "certificates" / f"{withdrawn}.md").read_text(encoding="utf-8")
    assert "WITHDRAWN. As of " in revoked
    assert f"mbd verify {authority.url}/certificates/{good}" in (
        tmp_path / "site" / "certificates" / f"{good}.html"
    ).read_text(encoding="utf-8")
    index = (tmp_path / "site" / "index.md").read_text(encoding="utf-8")
    assert "1 open request, 0 past the deadline." in index


def _stopped(at: datetime) -> Callable[[], datetime]:
    return lambda: at


def test_a_page_says_when_the_store_was_asked_and_the_index_shows_what_is_overdue(
    authority: SmallAuthority, tmp_path: Path
) -> None:
    digest = authority.publish("exact", reaudit_by=now() + timedelta(days=90)).name
    certificate = authority.params.certificate.model_copy(update={"checkpoint_days": 100})
    patient = authority.params.model_copy(update={"certificate": certificate})
    for name, days, params in (("early", 1, patient), ("late", 91, patient), ("frozen", 8, authority.params)):
        clock = _stopped(now() + timedelta(days=days))
        write_store_pages(params, authority.url, tmp_path / name, trust=authority.trust_file, clock=clock)
    pages = [(tmp_path / name / "certificates" / f"{digest}.md").read_text() for name in ("early", "late", "frozen")]
    words = [page.partition(". As of 2")[0].rpartition(". ")[2] for page in pages]
    assert words == ["VERIFIED", "NOT VERIFIED", "NOT VERIFIED"]
    assert f"As of {now() + timedelta(days=1):%Y-%m-%d}" in pages[0]
    assert "1 verified" in (tmp_path / "early" / "index.md").read_text()
    assert "1 not verified" in (tmp_path / "late" / "index.md").read_text()
    assert "1 not verified" in (tmp_path / "frozen" / "index.md").read_text()


def test_a_certificate_lists_the_requests_it_answers(authority: SmallAuthority, tmp_path: Path) -> None:
    digest = authority.publish("exact").name
    request_store = RequestStore(authority.private, authority.request_key)
    request = request_store.submit("sentiment", ["audio"], due_days=30, requester="desk-7")
    request_store.change(request.id, lambda r: r.moved("certified", "worker", now(), certificate=digest))
    marked = request_store.submit("sentiment", ["visual"], due_days=30)
    request_store.change(marked.id, lambda r: r.moved("certified", "attacker", now(), certificate=digest))
    write_store_pages(authority.params, authority.url, tmp_path / "site", trust=authority.trust_file)
    page = (tmp_path / "site" / "certificates" / f"{digest}.html").read_text(encoding="utf-8")
    assert request.id in page
    assert marked.id not in page
    assert "1 open request" in (tmp_path / "site" / "index.md").read_text(encoding="utf-8")
    assert not any(b"desk-7" in file.read_bytes() for file in (tmp_path / "site").rglob("*") if file.is_file())


def test_a_request_that_is_certified_meanwhile_is_not_shown_as_unproven(
    authority: SmallAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = RequestStore(authority.private, authority.request_key)
    request = requests.submit("sentiment", ["audio"], due_days=30)

    def read_then_certify(store: Store, trust: Trust) -> History:
        history = read_history(store, trust)
        digest = authority.publish("exact").name
        requests.change(request.id, lambda r: r.moved("certified", "worker", now(), certificate=digest))
        return history

    monkeypatch.setattr("mbd.production.store_pages.read_history", read_then_certify)
    write_store_pages(authority.params, authority.url, tmp_path / "site", trust=authority.trust_file)
    assert "received" in (tmp_path / "site" / "index.md").read_text(encoding="utf-8")


def test_a_planted_proof_is_neither_shown_nor_stops_a_report(authority: SmallAuthority, tmp_path: Path) -> None:
    digest = authority.publish("exact").name
    clock = _stopped(now())
    for name, planted in (("before", None), ("junk", b"{}"), ("none", b"")):
        if planted is not None:
            update(authority.store, proof_name(digest), lambda _, planted=planted: planted)  # type: ignore[misc]
        write_store_pages(authority.params, authority.url, tmp_path / name, trust=authority.trust_file, clock=clock)
    page = f"certificates/{digest}.html"
    assert len({file_digests(tmp_path / name)[page] for name in ("before", "junk", "none")}) == 1


def test_a_folder_that_is_no_bundle_is_an_error(authority: SmallAuthority, tmp_path: Path) -> None:
    bundle = authority.publish("exact")
    with refused(UsageError, key="--out", value=tmp_path / "page.doc"):
        report.of_bundle(bundle, tmp_path / "page.doc")
    with pytest.raises(DataError, match="no certificate in this folder"):
        report.of_bundle(tmp_path, tmp_path / "page.html")
    (bundle / "proof.json").write_text("{}")
    with refused(DataError, key="index"):
        report.of_bundle(bundle, tmp_path / "page.html")
    (bundle / CERTIFICATE).write_text("{}")
    with pytest.raises(VerificationError):
        report.of_bundle(bundle, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_page_of_a_bundle_begins_with_what_a_store_says_now(authority: SmallAuthority, tmp_path: Path) -> None:
    bundle, place = authority.publish("exact"), tmp_path / "page.html"
    report.of_bundle(bundle, place)
    assert NOT_ASKED in place.read_text(encoding="utf-8")
    verdict = verify.run(authority.params, str(bundle), trust=authority.trust_file, store=authority.url)
    report.of_bundle(bundle, place, verdict)
    html, number = place.read_text(encoding="utf-8"), fingerprint(bundle.name)
    assert f"<title>{verdict.decision.upper()}: " in html
    assert f'<p id="standing" data-severity="{verdict.rules.severity}"><strong>{verdict.decision.upper()}<' in html
    assert f"Certificate <strong>{number}</strong><span>{authority.url}/certificates/{bundle.name}</span>" in html
    assert f'@bottom-left {{ content: "Modality Deletion Certificate {number}" }}' in html
    assert 'aria-label="QR code of the certificate"><svg' in html


def test_the_page_of_a_bundle_has_what_was_purged_since(authority: SmallAuthority, tmp_path: Path) -> None:
    bundle = authority.publish("exact")
    authority.say(purge_statement(authority.private, bundle.name, ["a" * 64]))
    verdict = verify.run(authority.params, str(bundle), trust=authority.trust_file, store=authority.url)
    assert verdict.claims["erasure"]["claim"] == "complete"
    page = report.bundle_page(Bundle(bundle), verdict)
    assert f"Copies of the old weights were {COPIES['complete']}." in page.summary
    assert NOTHING_CLAIMED in report.bundle_page(Bundle(bundle)).summary


def test_a_card_says_in_markdown_what_was_deleted_and_how_to_verify_it(
    authority: SmallAuthority, tmp_path: Path
) -> None:
    bundle = authority.publish("exact")
    report.card_of_bundle(bundle, tmp_path / "card.md")
    card, number = (tmp_path / "card.md").read_text(encoding="utf-8"), fingerprint(bundle.name)
    assert card.startswith('## Modality Deletion Certificate\n\n**Model "sentiment" is byte for byte a model that')
    assert f"\nCertificate {number}. {NOT_ASKED}\n" in card
    assert "- guarantee: exact (byte for byte)\n" in card
    assert "mbd verify BUNDLE --store URL --model DIR --trust FILE" in card
    authority.say(compose_revocation(bundle.name, "the data was wrong", now()))
    verdict = verify.run(authority.params, str(bundle), trust=authority.trust_file, store=authority.url)
    report.card_of_bundle(bundle, tmp_path / "card.md", verdict)
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert '**Claimed: Model "sentiment" is byte for byte' in card
    assert f"\nCertificate {number}. {verdict.decision.upper()}. As of " in card
    assert f"mbd verify {authority.url}/certificates/{bundle.name} --model DIR --trust FILE" in card


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_a_page_is_printed_as_pdf_where_a_browser_is(authority: SmallAuthority, tmp_path: Path) -> None:
    bundle = authority.publish("exact")
    assert report.of_bundle(bundle, tmp_path / "page.html", pdf="letter") == tmp_path / "page.html"
    assert b"/MediaBox [0 0 612 792]" in (tmp_path / "page.pdf").read_bytes()
    report.of_bundle(bundle, tmp_path / "pages", pdf="A4")
    assert {file.suffix for file in (tmp_path / "pages").iterdir()} == {".html", ".md", ".json", ".pdf"}
    assert b"/MediaBox [0 0 594.95996 841.91998]" in (tmp_path / "pages" / "report.pdf").read_bytes()


def test_without_a_program_that_prints_the_error_says_what_to_install(
    authority: SmallAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with refused(MbdError, hint="Chromium or WeasyPrint"):
        report.of_bundle(authority.publish("exact"), tmp_path / "page.pdf", pdf="A4")
    assert not (tmp_path / "page.pdf").exists()
