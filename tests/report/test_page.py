"""The page of a certificate: plain words first, the same in every format, never more than was signed."""

import json
from datetime import timedelta

import pytest

from mbd.certificate.log.inclusion import Inclusion
from mbd.formats.statement import (
    CERTIFICATE,
    WEIGHTS,
    PurgeStatement,
    Revocation,
    RevocationStatement,
    Supersession,
    SupersessionStatement,
    subjects_of,
)
from mbd.report.page.certificate import PageContext, certificate_page, unsigned_page
from mbd.report.page.content import Page, Plot
from mbd.report.page.html import to_html
from mbd.report.page.markdown import to_markdown
from tests.report.html import Seen
from tests.report.statements import ISSUED, KINDS, A, B, Kind, statement_of

DIGEST = "d" * 64


def page_of(kind: Kind, known: PageContext | None = None) -> Page:
    return certificate_page(statement_of(kind), known or PageContext(DIGEST))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("surgery", "rests on tests and not on a proof"),
        ("certified", "the limit is ε = 1, δ = 1e-05"),
        ("exact", "bit for bit"),
        ("subjects", "forget the recordings of 1 subject in audio"),
    ],
)
def test_the_first_sentences_say_what_was_deleted_and_what_that_is_worth(kind: Kind, says: str) -> None:
    page = page_of(kind)
    text = " ".join(page.summary)
    assert 3 <= len(page.summary) <= 4
    assert "The model sentiment has been made to forget" in text
    assert says in text
    assert "copies of the old model or of the deleted data: they may still exist" in text
    assert "attacked again by 2036-02-28" in text


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_says_the_same(kind: Kind) -> None:
    page, statement = page_of(kind), statement_of(kind)
    shown = {"html": Seen.of(to_html(page)).text, "markdown": to_markdown(page)}
    stored = page.to_json()
    assert Page.model_validate_json(stored) == page
    predicate = statement.predicate
    sentences = [
        *page.summary,
        *predicate.guarantee.assumptions,
        *predicate.disclosures,
        predicate.erasure.note,
        "84.3",
        "0.712",
        "2026-03-23, kept",
        statement.digests[WEIGHTS],
        "mbd verify BUNDLE --model DIR --trust FILE",
    ]
    for form, text in {**shown, "json": json.dumps(json.loads(stored), ensure_ascii=False)}.items():
        missing = [sentence for sentence in sentences if sentence not in text]
        assert not missing, (form, missing)


def test_nothing_on_the_page_says_that_it_was_verified() -> None:
    for kind in KINDS:
        page = page_of(kind)
        seen = Seen.of(to_html(page))
        assert "Nothing has been checked yet." in seen.text
        assert "erified" not in seen.text
        assert "erified" not in to_markdown(page)


def test_the_budget_is_told_where_there_is_one() -> None:
    for kind in KINDS:
        text = to_markdown(page_of(kind))
        assert ("The whole lineage has spent 25 % of its limit" in text) == (kind == "certified")


def test_every_attack_is_drawn_beside_the_reference_and_what_decides_nothing_apart() -> None:
    plots = [b for s in page_of("surgery").sections for b in s.blocks if isinstance(b, Plot)]
    (plot,) = plots
    assert [measure.label for measure in plot.measures] == ["whitebox: balanced accuracy", "relearn: R²"]
    assert [row[0] for row in plot.table.rows] == ["whitebox on audio: balanced accuracy", "relearn on audio: R²"]
    html = to_html(page_of("surgery"))
    assert "The same on models that were rounded to INT8" in html
    assert "diff on audio" in html
    # far below the scale: drawn at its edge, told as it is
    assert "released model -2.000 [-2.500, -1.500]" in html
    assert '<svg x="0.00%" y="20" overflow="visible"><circle' in html


def test_the_place_in_the_log_is_told() -> None:
    inclusion = Inclusion(index=7, tree_size=9, hashes=(A,), checkpoint="log.example/x\n9\n…")
    text = to_markdown(page_of("exact", PageContext(DIGEST, inclusion)))
    assert "entry 7 of 9 in log.example/x" in text
    assert DIGEST in text


def test_what_the_store_says_against_it_comes_first() -> None:
    about = subjects_of({CERTIFICATE: DIGEST})
    revoked = RevocationStatement(subject=about, predicate=Revocation(reason="the key was lost", issued=ISSUED))
    page = page_of("exact", PageContext(DIGEST, about=(revoked,)))
    assert page.summary[0] == "Do not rely on this certificate any more: revoked 2026-03-02: the key was lost."
    assert "2026-03-02: revoked. the key was lost" in to_markdown(page)
    replaced = SupersessionStatement(
        subject=about, predicate=Supersession(by=B, reason="a better one", issued=ISSUED + timedelta(days=1))
    )
    page = page_of("exact", PageContext(DIGEST, about=(replaced,)))
    assert page.summary[0].startswith("Do not rely on this certificate any more: replaced 2026-03-03")
    assert page_of("exact", PageContext(DIGEST, about=())).glance[-1].value == "the store holds nothing against it"
    assert page_of("exact").glance[-1].value == "no store was asked"


def test_the_last_purge_says_what_is_left_of_the_old_weights() -> None:
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
                "issued": ISSUED,
            },
        }
    )
    page = page_of("exact", PageContext(DIGEST, about=(purge,)))
    assert any("some are left" in sentence for sentence in page.summary)
    assert "| DVC cache | 3 | 2 | 1 | no | it is locked |" in to_markdown(page)


def test_the_requests_that_it_answers_and_a_missed_deadline_are_told() -> None:
    late = {"reference": None, "received": None, "due": ISSUED - timedelta(days=1)}
    page = certificate_page(statement_of("exact", request=late), PageContext(DIGEST, answered=("0123", "4567")))
    text = to_markdown(page)
    assert "- due: 2026-03-01, missed" in text
    assert "0123, 4567" in text


def test_the_report_in_a_bundle_has_the_same_words() -> None:
    statement = statement_of("certified")
    whole, unsigned = page_of("certified"), unsigned_page(statement.predicate, statement.digests[WEIGHTS])
    known = {section.id: section for section in whole.sections}
    assert unsigned.summary == whole.summary
    for section in unsigned.sections:
        if section.id != "check":
            assert known[section.id] == section
