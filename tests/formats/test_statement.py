"""Statements: one canonical form, a schema that refuses what must not be said, and the published schema."""

import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import VerificationError
from mbd.formats.statement import (
    DeletionStatement,
    RevocationStatement,
    exact_integers,
    is_canonical,
    parse_payload,
    subjects_of,
    to_payload,
)
from tests.certificate.build import KINDS, ModelWorkspace

GOLDEN = Path(__file__).parents[1] / "golden" / "certificates" / "v1"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def revocation(reason: str = "a key was lost") -> RevocationStatement:
    """Return a small statement."""
    return RevocationStatement.model_validate(
        {
            "subject": [{"name": "certificate.json", "digest": {"sha256": "a" * 64}}],
            "predicate": {"reason": reason, "issued": "2026-11-16T12:00:00Z"},
        }
    )


def changed(payload: bytes, path: str, value: object) -> bytes:
    """Return a payload with another value at a path."""
    content: Any = json.loads(payload)
    *parents, last = path.split(".")
    place = content
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[int(last) if isinstance(place, list) else last] = value
    return rfc8785.dumps(content)


@given(st.text(st.characters(categories=("L", "M", "N", "P", "S")), min_size=1, max_size=200))
@settings(deadline=None, max_examples=50)
def test_a_statement_survives_its_payload_and_has_one_form(reason: str) -> None:
    statement = revocation(reason)
    payload = to_payload(statement)
    assert parse_payload(payload) == statement
    assert is_canonical(payload)
    assert to_payload(parse_payload(payload)) == payload


@given(JSON)
@settings(deadline=None, max_examples=100)
def test_any_json_has_a_canonical_form_once_large_integers_are_strings(value: object) -> None:
    assert is_canonical(rfc8785.dumps(exact_integers(value)))


@pytest.mark.parametrize(
    "payload",
    [
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b'{"a":1}\n',
        b'{"a":1.0}',
        b'{"a":1,"a":1}',
        b'{"a":9007199254740993}',
        b'{"a":NaN}',
        b"\xff",
        b"",
        b"[" * 100_000,
    ],
    ids=["order", "space", "newline", "float", "twice", "large", "nan", "utf-8", "empty", "deep"],
)
def test_what_is_not_canonical_is_noticed(payload: bytes) -> None:
    assert not is_canonical(payload)


@pytest.mark.parametrize(
    "payload", [b"[]", b"{}", b'"x"', b'{"predicateType":"urn:other"}', b'{"predicateType":[]}', b"{"]
)
def test_what_is_no_statement_is_refused(payload: bytes) -> None:
    with pytest.raises(VerificationError):
        parse_payload(payload)


@pytest.mark.parametrize("kind", KINDS)
def test_every_certificate_survives_its_payload(model_workspace: ModelWorkspace, tmp_path: Path, kind: str) -> None:
    statement = model_workspace.certify(kind, tmp_path / "bundle").statement
    payload = to_payload(statement)
    parsed = parse_payload(payload)
    assert isinstance(parsed, DeletionStatement)
    assert to_payload(parsed) == payload
    assert is_canonical(payload)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("surgery", "predicate.guarantee.epsilon", 1.0),
        ("surgery", "predicate.guarantee.kind", "exact"),
        ("surgery", "predicate.method.kind", "exact"),
        ("surgery", "predicate.evidence.leakage", None),
        ("surgery", "predicate.reaudit_by", "2020-11-16T12:00:00Z"),
        ("surgery", "predicate.issued", "2026-11-16T12:00:00.5Z"),
        ("surgery", "predicate.issued", "2026-11-16T13:00:00+01:00"),
        ("surgery", "predicate.issued", 1_800_000_000),
        ("surgery", "predicate.deleted.modalities", []),
        ("surgery", "predicate.deleted.revoked", []),
        ("surgery", "predicate.request", {"reference": "somebody@example.org"}),
        ("surgery", "predicate.request", {"name": "Somebody"}),
        ("surgery", "predicate.lineage.before", {"sha256": None, "commitment": None}),
        ("surgery", "predicate.lineage.before", {"sha256": "a" * 64, "commitment": "a" * 64}),
        ("surgery", "subject.0.name", "other.json"),
        ("surgery", "subject.0.digest.sha256", "A" * 64),
        ("surgery", "subject", []),
        ("surgery", "_type", "https://in-toto.io/Statement/v0.1"),
        ("certified", "predicate.budget", None),
        ("certified", "predicate.noise", None),
        ("certified", "predicate.guarantee.assumptions", []),
        ("certified", "predicate.budget.sigma", 0),
        ("certified", "predicate.budget.sigma", "7.4"),
        ("exact", "predicate.deleted.subjects", ["a" * 64]),
        ("subjects", "predicate.deleted.subjects", []),
        ("subjects", "predicate.deleted.subjects", ["speaker 7"]),
    ],
)
def test_the_schema_refuses_what_must_not_be_said(
    model_workspace: ModelWorkspace, tmp_path: Path, kind: str, path: str, value: object
) -> None:
    payload = to_payload(model_workspace.certify(kind, tmp_path / "bundle").statement)
    assert isinstance(parse_payload(payload), DeletionStatement)
    with pytest.raises(VerificationError):
        parse_payload(changed(payload, path, value))


def test_a_statement_about_a_certificate_has_exactly_that_subject() -> None:
    payload = to_payload(revocation())
    for name in ("model.json", "other"):
        with pytest.raises(VerificationError, match=r"certificate\.json"):
            parse_payload(changed(payload, "subject.0.name", name))


def test_subjects_are_listed_by_name() -> None:
    assert [subject.name for subject in subjects_of({"b": "b" * 64, "a": "a" * 64})] == ["a", "b"]
