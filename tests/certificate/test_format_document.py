"""docs/certificate-format.md names everything that a certificate holds and everything that is checked."""

import re
from pathlib import Path

from mbd.certificate.verification import from_folder, verify_bundle
from mbd.formats import statement
from mbd.formats.files import CERTIFICATE, INDICES, MODEL, PROOF, REPORT
from mbd.formats.layout import certificate_name, latest_name, object_name, proof_name
from mbd.formats.leakage import LEAKAGE
from mbd.formats.predicate import Predicate
from mbd.formats.verdict import VERDICTS
from mbd.trust.trust_file import read_trust
from tests.golden.certificates.cases import HERE, assemble

DOCUMENT = (Path(__file__).parents[2] / "docs" / "certificate-format.md").read_text(encoding="utf-8")
FIELDS = DOCUMENT.partition("## 4. The statement")[2].partition("## 5.")[0]
CHECKS = DOCUMENT.partition("## 10. Checks")[2].partition("## 11.")[0]


def test_every_field_of_the_predicate_is_explained() -> None:
    for field in Predicate.model_fields:
        assert re.search(rf"^\| .*`{field}[`.]", FIELDS, re.MULTILINE), field


def test_every_check_is_explained(tmp_path: Path) -> None:
    case = assemble(HERE / "v1" / "certified", tmp_path)
    given = from_folder(tmp_path / "bundle", tmp_path / "model")
    for check in verify_bundle(given, read_trust(tmp_path / "trust.json"), at=case.at).checks:
        name = "digest of FILE" if check.name.startswith("digest of") else check.name
        assert re.search(rf"^\| (.*, )?{name}[, |]", CHECKS, re.MULTILINE), name


def test_every_kind_of_statement_file_and_place_is_named() -> None:
    kinds = [getattr(statement, name) for name in vars(statement) if name.endswith("_TYPE")]
    places = [object_name("HEX"), latest_name("MODEL", "MODALITY")]
    places += [certificate_name("NAME"), proof_name("NAME").replace("certificates/NAME", "…")]
    for name in [*kinds, CERTIFICATE, MODEL, INDICES, LEAKAGE, REPORT, PROOF, *places]:
        assert f"`{name}`" in DOCUMENT, name


def test_every_verdict_and_its_exit_code_is_documented() -> None:
    for verdict, rules in VERDICTS.items():
        assert f"`{verdict}`" in CHECKS or f"{rules.exit_code:d} {verdict}" in CHECKS, verdict
