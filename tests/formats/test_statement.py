"""Statements: one canonical form, a schema that refuses what must not be said, and the published schema."""

import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.certificate.envelope import Envelope
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


@given(st.text(min_size=1))
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


NUMBERS = st.sampled_from(
    [
        *("0", "-0", "1", "-1", "0.5", "-0.5", "1.0", "1.50", "00", "01", "1e5", "1E5", "1e-5", "1e-7", "1e-07"),
        *("0.00001", "0.000001", "1e21", "1e+21", "1e22", "100000000000000000000", "999999999999999"),
        *("1000000000000000", "9007199254740991", "9007199254740992", "9007199254740993", "4503599627370497.5"),
        *("0.000001", "0.0000015", "0.00000150", "-0.000009999999999999999", "1e-6", "1.5e-6", "1.5e-06", "1.5e-60"),
        *(
            "1.5e-61",
            "0.1",
            "0.30000000000000004",
            "0.1000000000000000055",
            "5e-324",
            "1e400",
            "-1e400",
            "NaN",
            "Infinity",
        ),
    ]
)
TEXTS = st.sampled_from([":1.5e-6,", "0.0000015", "1e-6", "1.0"]) | st.text(
    alphabet=st.sampled_from('aAzé/\\"\b\t\n\x0b\x0c\x1f\x7f\u2028\ud7ff\ue000\uffff\U0001f600')
)
ESCAPES = st.sampled_from(
    [r'"\u0041"', r'"\/"', r'"\u000a"', r'"\n"', r'"\u000B"', r'"\u000b"', r'"\ud83d\ude00"', r'"\ud800"']
)


@st.composite
def nearly_canonical(draw: st.DrawFn) -> bytes:
    """JSON, or nearly, whose tokens and order of keys may or may not be canonical."""
    text = TEXTS.map(lambda value: json.dumps(value, ensure_ascii=False))
    token = NUMBERS | text | ESCAPES | st.floats().map(repr) | st.integers().map(str)
    token |= st.floats(1e-7, 1e-4).map(rfc8785.dumps).map(bytes.decode)
    token |= st.lists(token, max_size=2).map(lambda tokens: f"[{','.join(tokens)}]")
    token |= st.lists(text, max_size=2).map(lambda keys: "{" + ",".join(f"{key}:0" for key in keys) + "}")
    keys = draw(st.lists(text | ESCAPES, max_size=4))
    if draw(st.booleans()):
        keys = sorted(keys)
    space = draw(st.sampled_from(["", "", "", " "]))
    members = [f"{key}:{space}{draw(token)}" for key in keys]
    return f"{{{','.join(members)}}}".encode("utf-8", "surrogatepass")


def by_the_standard(payload: bytes) -> bool:
    """Whether bytes are what RFC 8785 makes of them; integers beyond 2⁵³ are floats."""
    try:
        read = json.loads(payload.decode(), parse_int=lambda n: int(n) if abs(int(n)) < 2**53 else float(n))
        return rfc8785.dumps(read) == payload
    except (ValueError, RecursionError):
        return False


@settings(deadline=None, max_examples=2000)
@given(nearly_canonical() | JSON.map(lambda value: json.dumps(value, separators=(",", ":")).encode()))
def test_the_fast_look_at_the_canonical_form_finds_what_the_standard_finds(payload: bytes) -> None:
    assert is_canonical(payload) == by_the_standard(payload)


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_is_seen_to_be_canonical_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = Envelope.parse((GOLDEN / kind / "bundle" / "certificate.json").read_bytes()).content

    def slow(_: object) -> bytes:
        raise AssertionError("compared with the slow form")

    monkeypatch.setattr(rfc8785, "dumps", slow)
    assert is_canonical(payload)


@settings(deadline=None)
@given(JSON)
def test_a_changed_bit_of_a_canonical_form_is_judged_as_by_the_standard(value: Any) -> None:
    payload = rfc8785.dumps(exact_integers(value))
    for place in range(len(payload)):
        changed = payload[:place] + bytes([payload[place] ^ 1]) + payload[place + 1 :]
        assert is_canonical(changed) == by_the_standard(changed)
