"""Certificates of every released format version: the good ones verify forever, the bad ones never do.

Nothing here is ever made again (tests/golden/certificates/make.py makes those of a new version).
"""

from pathlib import Path

import pytest

from mbd.certificate.verification import Verdict, from_folder, verify_bundle
from mbd.formats.statement import is_canonical, parse_payload
from mbd.trust.envelope import Envelope
from mbd.trust.trust_file import read_trust
from mbd.verifier.bundle import Bundle
from tests.golden.certificates.cases import HERE, all_cases, assemble, read_case

CASES = all_cases()
GOOD = [folder for folder in CASES if read_case(folder).base is None]
BAD = [folder for folder in CASES if read_case(folder).base is not None]


def identify(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


def verdict_of(folder: Path, out: Path) -> Verdict:
    """Put a case together and verify it at its time."""
    case = assemble(folder, out)
    return verify_bundle(from_folder(out / "bundle", out / "model"), read_trust(out / "trust.json"), at=case.at)


def test_the_first_version_has_a_certificate_of_every_kind_and_many_bad_ones() -> None:
    names = {folder.name for folder in CASES if folder.parent == HERE / "v1"}
    assert names >= {"surgery", "certified", "exact", "subjects"}
    assert len(names) >= 30


@pytest.mark.parametrize("folder", GOOD, ids=identify)
def test_a_good_certificate_is_genuine(folder: Path, tmp_path: Path) -> None:
    verdict = verdict_of(folder, tmp_path)
    assert verdict.genuine, verdict.problems
    assert verdict.decision == read_case(folder).decision == "not verified"


@pytest.mark.parametrize("folder", GOOD, ids=identify)
def test_its_statement_is_still_understood(folder: Path) -> None:
    payload = Envelope.parse(Bundle(folder / "bundle").envelope).content
    assert is_canonical(payload)
    assert parse_payload(payload) == Bundle(folder / "bundle").statement


@pytest.mark.parametrize("folder", BAD, ids=identify)
def test_a_bad_certificate_fails_for_its_own_reason(folder: Path, tmp_path: Path) -> None:
    case, verdict = read_case(folder), verdict_of(folder, tmp_path)
    assert (verdict.decision, verdict.genuine) == (case.decision, False)
    assert case.problem in {check.name for check in verdict.problems}


@pytest.mark.parametrize("folder", GOOD, ids=identify)
def test_a_certificate_repeats_little_of_the_files_beside_it(folder: Path) -> None:
    assert (folder / "bundle" / "certificate.json").stat().st_size <= 16_000
