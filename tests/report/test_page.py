"""The page of a certificate: a plain summary first, the same content in every format, never more than was signed."""

from datetime import timedelta

import pytest

from mbd.files import to_json
from mbd.formats.files import CERTIFICATE, WEIGHTS
from mbd.formats.statement import PurgeStatement, Revocation, RevocationStatement, subjects_of
from mbd.log.checkpoint import Inclusion
from mbd.report.page.certificate import PageContext, certificate_page, unsigned_page
from mbd.report.page.content import NOT_ASKED, Page, PageStatus, Plot
from mbd.report.page.html import to_html
from mbd.report.page.markdown import to_markdown
from mbd.report.text import to_text
from tests.report.html import Seen
from tests.report.statements import ISSUED, KINDS, A, Kind, leakage, page_context, statement_of

DIGEST = "d" * 64


def page_of(kind: Kind, context: PageContext | None = None) -> Page:
    return certificate_page(statement_of(kind), context or page_context(kind, DIGEST))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("surgery", "rests on tests, not on a proof"),
        ("certified", "the limit is ε = 1, δ = 1e-05"),
        ("exact", "byte for byte"),
        ("subjects", "audio of 1 person"),
    ],
)
def test_the_summary_states_what_was_deleted_and_how_strong_the_guarantee_is(kind: Kind, says: str) -> None:
    page = page_of(kind)
    text = " ".join(page.summary)
    assert 3 <= len(page.summary) <= 4
    assert 'Deleted from model "sentiment"' in text
    assert says in text
    assert "copies of the old model or of the deleted data: they may still exist" in text
    attacked = kind != "subjects"
    assert ("audited again by 2036-02-28" in text) == attacked
    assert ("holds until 2036-02-28; no attack was part of it" in text) != attacked


def test_the_issuer_is_named_with_a_contact() -> None:
    page = to_markdown(page_of("exact"))
    assert "Example Ltd" in page
    assert "privacy@example.org" in page


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("surgery", 'Attacks found no audio in model "sentiment"'),
        ("certified", 'Model "sentiment" is (1, 1e-05)-indistinguishable from a model that never saw audio'),
        ("exact", 'Model "sentiment" is byte for byte a model that never saw audio'),
        ("subjects", 'Model "sentiment" is byte for byte a model that never saw audio of 1 person'),
    ],
)
def test_the_headline_claims_what_the_guarantee_claims(kind: Kind, title: str) -> None:
    assert page_of(kind).title == title


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_says_the_same(kind: Kind) -> None:
    page, statement = page_of(kind), statement_of(kind)
    shown = {
        "html": Seen.of(to_html(page)).text,
        "markdown": to_markdown(page),
        "terminal": " ".join(to_text(page, 100).split()),
    }
    stored = to_json(page.model_dump(mode="json"))
    assert Page.model_validate_json(stored) == page
    predicate = statement.predicate
    sentences = [
        *page.summary,
        *predicate.guarantee.assumptions,
        *predicate.disclosures,
        predicate.erasure.note,
        "84.3",
        "0.712",
        "2026-03-23, met",
        statement.digests[WEIGHTS],
        "mbd verify BUNDLE --model DIR --trust FILE --store URL",
    ]
    for form, text in {**shown, "json": stored.replace('\\"', '"')}.items():
        missing = [sentence for sentence in sentences if sentence not in text]
        assert not missing, (form, missing)


def test_nothing_on_the_page_says_that_it_was_verified() -> None:
    for kind in KINDS:
        page = page_of(kind)
        seen = Seen.of(to_html(page))
        assert "Nothing has been checked yet." in seen.text
        assert "erified" not in seen.text
        assert "erified" not in to_markdown(page) + to_text(page)


def test_only_a_certified_deletion_shows_a_budget() -> None:
    for kind in KINDS:
        text = to_markdown(page_of(kind))
        assert ("The lineage has spent 25 % of its limit" in text) == (kind == "certified")


def test_every_judged_attack_is_drawn_beside_the_reference_and_informational_ones_are_listed_apart() -> None:
    plot, changed = (b for s in page_of("surgery").sections for b in s.blocks if isinstance(b, Plot))
    assert [measure.label for measure in plot.measures] == [
        "whitebox: balanced accuracy",
        "relearn: R² of audio's own part from 8 rows",
    ]
    assert [row[0] for row in changed.table.rows] == ["whitebox: balanced accuracy (INT8)"]
    html = to_html(page_of("surgery"))
    assert "After INT8 rounding or pruning, 1 of 1 measures of audio passed" in html
    assert "diff: blackbox: accuracy, audio fed, old weights put back" in html
    # far below the scale: drawn at its edge, described as it is
    assert "released model -2.000 [-2.500, -1.500]" in html
    assert '<svg x="0.00%" y="20" overflow="visible"><circle' in html


def test_the_log_entry_is_named() -> None:
    inclusion = Inclusion(index=7, tree_size=9, hashes=(A,), checkpoint="log.example/x\n9\n…")
    text = to_markdown(page_of("exact", PageContext(DIGEST, inclusion)))
    assert "entry 7 of 9 in log.example/x" in text
    assert DIGEST in text


def test_a_withdrawn_certificate_says_so_first() -> None:
    about = subjects_of({CERTIFICATE: DIGEST})
    revoked = RevocationStatement(subject=about, predicate=Revocation(reason="the key was lost", issued=ISSUED))
    standing = PageStatus(verdict="withdrawn", reason="it was revoked 2026-03-02: the key was lost", asked=ISSUED)
    text = to_markdown(page_of("exact", PageContext(DIGEST, about=(revoked,), standing=standing)))
    assert f"WITHDRAWN. As of {ISSUED:%Y-%m-%d %H:%M} UTC: The certificate was withdrawn" in text
    assert "It was revoked 2026-03-02: the key was lost." in text
    assert "2026-03-02: revoked. the key was lost" in text
    assert NOT_ASKED in to_markdown(page_of("exact"))


def test_the_last_purge_states_which_copies_remain() -> None:
    place = {"kind": "DVC cache", "found": 3, "removed": 2, "left": 1, "gone": False, "reasons": ["it is locked"]}
    purge = PurgeStatement.model_validate(
        {
            "subject": [{"name": CERTIFICATE, "digest": {"sha256": DIGEST}}],
            "predicate": {
                "erasure": {"claim": "partial", "note": "One copy is left."},
                "targets": {"weights": 1},
                "modalities": [],
                "excepted": 0,
                "places": [place],
                "proof": A,
                "tombstones": A,
                "issued": ISSUED,
            },
        }
    )
    page = page_of("exact", PageContext(DIGEST, about=(purge,)))
    assert any("some remain" in sentence for sentence in page.summary)
    assert "| DVC cache | 3 | 2 | 1 | no | it is locked |" in to_markdown(page)


def test_the_requests_that_it_answers_and_a_missed_deadline_are_shown() -> None:
    late = {"reference": None, "received": None, "due": ISSUED - timedelta(days=1)}
    page = certificate_page(statement_of("exact", request=late), PageContext(DIGEST, answered=("0123", "4567")))
    text = to_markdown(page)
    assert "- due: 2026-03-01, missed" in text
    assert "0123, 4567" in text


def test_the_report_in_a_bundle_has_the_same_sections() -> None:
    statement = statement_of("certified")
    whole = page_of("certified")
    unsigned = unsigned_page(statement.predicate, statement.digests[WEIGHTS], leakage())
    known = {section.id: section for section in whole.sections}
    assert unsigned.summary == whole.summary
    for section in unsigned.sections:
        if section.id != "check":
            assert known[section.id] == section
