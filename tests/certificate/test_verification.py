"""Verification of bundles and stores: every check by name, and `verified` only if no check fails."""

import base64
import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from mbd.certificate.compose import compose_reaudit, compose_revocation, compose_supersession
from mbd.certificate.publish import announce
from mbd.certificate.verification import Verdict, from_folder, verify_bundle
from mbd.errors import DataError, VerificationError
from mbd.files import sha256_file, to_json
from mbd.formats.files import CERTIFICATE, INDICES, MODEL, PROOF, REPORT, WEIGHTS
from mbd.formats.layout import certificate_name
from mbd.formats.leakage import LEAKAGE, MeasureSummary
from mbd.formats.statement import AboutCertificate, DeletionStatement, parse_payload, to_payload
from mbd.records import now
from mbd.trust.commitments import Commitments
from mbd.trust.envelope import PAYLOAD_TYPE, Envelope, sign
from mbd.trust.keys import load_signer
from mbd.verifier.arithmetic import BUDGET
from mbd.verifier.checks import AGREEMENT, REAUDIT, digest_name
from mbd.verifier.gate import GATE, STRENGTH
from mbd.verifier.reader import CANONICAL, CHECKPOINT, INCLUSION, SCHEMA, VALIDITY
from mbd.verifier.structure import POSITIONS, PRECISION, REMOVED, SHAPES, TENSORS
from mbd.verifier.verdict import REPLACEMENT, SIGNATURES, STANDING, WITHDRAWAL
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import KINDS, ModelWorkspace
from tests.refusals import refused

EVERY_CHECK = {
    *(SCHEMA, CANONICAL, SIGNATURES, VALIDITY, INCLUSION, CHECKPOINT, *STANDING),
    *map(digest_name, (WEIGHTS, MODEL, INDICES, LEAKAGE, REPORT)),
    *(TENSORS, REMOVED, SHAPES, POSITIONS, BUDGET, GATE, STRENGTH, AGREEMENT, REAUDIT),
}
OFFLINE = set(STANDING)


@pytest.fixture(scope="module")
def authority(model_workspace: ModelWorkspace, tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    authority = CertificateAuthority.make(model_workspace, tmp_path_factory.mktemp("authority"))
    for kind in KINDS:
        authority.publish(kind, model="people" if kind == "subjects" else "sentiment")  # it still takes audio
    return authority


def copied(authority: CertificateAuthority, kind: str, to: Path) -> Path:
    return Path(shutil.copytree(authority.folder / f"published-{kind}", to))


def rounded(kind: str) -> set[str]:
    """Return the check that only a surgery has: an exact release has the bytes of training, a certified one noise."""
    return {PRECISION} if kind == "surgery" else set()


def outcomes(verdict: Verdict, outcome: str) -> set[str]:
    return {check.name for check in verdict.checks if check.outcome == outcome}


@pytest.mark.parametrize("kind", ["surgery", "certified", "exact"])
def test_offline_a_bundle_is_genuine_and_not_known_to_be_in_force(authority: CertificateAuthority, kind: str) -> None:
    verdict = authority.verify(kind, authority.folder / f"published-{kind}")
    assert (verdict.decision, verdict.genuine) == ("not verified", True), verdict.problems
    assert outcomes(verdict, "passed") == EVERY_CHECK - OFFLINE | rounded(kind)
    assert outcomes(verdict, "not checkable") == OFFLINE


@pytest.mark.parametrize("kind", ["surgery", "certified", "exact"])
def test_from_its_store_everything_can_be_checked(authority: CertificateAuthority, kind: str, tmp_path: Path) -> None:
    digest = sha256_file(authority.folder / f"published-{kind}" / CERTIFICATE)
    verdict = authority.verify_in_store(digest, tmp_path)
    assert verdict.verified, verdict.problems
    assert outcomes(verdict, "passed") == EVERY_CHECK | rounded(kind)


def test_forgotten_subjects_are_not_attacked_and_stay_unnamed(authority: CertificateAuthority) -> None:
    verdict = authority.verify("subjects", authority.folder / "published-subjects")
    assert verdict.genuine, verdict.problems
    assert outcomes(verdict, "not checkable") == OFFLINE | {REMOVED, GATE, STRENGTH}
    assert authority.model_workspace.subject() not in verdict.model_dump_json()


def test_without_a_model_nothing_is_said_about_weights(authority: CertificateAuthority) -> None:
    verdict = verify_bundle(from_folder(authority.folder / "published-exact"), authority.trust)
    assert verdict.genuine
    assert verdict.model is None
    assert verdict.summary.endswith("; no model was given")
    assert outcomes(verdict, "not checkable") == OFFLINE | {digest_name(WEIGHTS), TENSORS, REMOVED, SHAPES, POSITIONS}


def test_without_trust_nothing_is_verified(authority: CertificateAuthority) -> None:
    verdict = authority.verify("exact", authority.folder / "published-exact", trust=None)
    assert (verdict.decision, verdict.genuine) == ("not verified", False)
    assert {check.name for check in verdict.problems} == {SIGNATURES, VALIDITY, INCLUSION, CHECKPOINT, *STANDING}
    assert verdict.trust is None


def test_what_is_not_published_is_not_verified_unless_it_is_about_to_be(authority: CertificateAuthority) -> None:
    bundle = authority.bundle("exact")
    assert not authority.verify("exact", bundle).genuine
    assert authority.verify("exact", bundle, unpublished=True).genuine


def test_a_proof_that_was_taken_away_is_missed(authority: CertificateAuthority, tmp_path: Path) -> None:
    bundle = copied(authority, "exact", tmp_path / "bundle")
    (bundle / PROOF).unlink()
    verdict = authority.verify("exact", bundle)
    assert verdict.decision == "not verified"
    assert {check.name for check in verdict.problems} == {INCLUSION, CHECKPOINT, *STANDING}


def test_a_proof_with_an_added_signature_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    bundle = copied(authority, "exact", tmp_path / "bundle")
    proof = json.loads((bundle / PROOF).read_bytes())
    proof["checkpoint"] += "— somebody " + base64.b64encode(bytes(68)).decode() + "\n"
    (bundle / PROOF).write_text(to_json(proof))
    assert outcomes(authority.verify("exact", bundle), "failed") == {INCLUSION}


@pytest.mark.parametrize("name", [MODEL, INDICES, LEAKAGE, REPORT])
def test_a_missing_and_a_changed_file_are_named(authority: CertificateAuthority, name: str, tmp_path: Path) -> None:
    bundle = copied(authority, "certified", tmp_path / "bundle")
    with (bundle / name).open("ab") as stream:
        stream.write(b"\n")
    verdict = authority.verify("certified", bundle)
    assert (verdict.decision, outcomes(verdict, "failed")) == ("forged or damaged", {digest_name(name)})
    assert f"{name} was changed after signing" in verdict.check(digest_name(name)).reason
    (bundle / name).unlink()
    verdict = authority.verify("certified", bundle)
    assert (verdict.decision, outcomes(verdict, "failed")) == ("not verified", {digest_name(name)})
    assert verdict.check(digest_name(name)).reason == f"{name} is missing from the bundle"


def test_the_certificate_of_another_model_is_refused(authority: CertificateAuthority) -> None:
    verdict = verify_bundle(
        from_folder(authority.folder / "published-surgery", authority.model_workspace.deletion("certified")),
        authority.trust,
    )
    assert {digest_name(WEIGHTS), digest_name(MODEL)} <= outcomes(verdict, "failed")


def test_a_model_folder_without_weights_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    verdict = verify_bundle(from_folder(authority.folder / "published-surgery", tmp_path), authority.trust)
    assert {digest_name(WEIGHTS), digest_name(MODEL)} <= outcomes(verdict, "failed")


def test_a_certificate_signed_and_logged_with_unknown_keys_is_refused(
    authority: CertificateAuthority, model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    stranger = CertificateAuthority.make(model_workspace, tmp_path)
    published = stranger.publish("exact")
    assert stranger.verify("exact", published).genuine
    verdict = authority.verify("exact", published)
    assert {SIGNATURES, CHECKPOINT} <= outcomes(verdict, "failed")
    assert verdict.decision == "not verified"  # it may be the trust file that is wrong
    assert "not signed by anyone in your trust file" in verdict.check(SIGNATURES).reason


def test_an_envelope_in_another_form_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    bundle = copied(authority, "exact", tmp_path / "bundle")
    envelope = json.loads((bundle / CERTIFICATE).read_bytes())
    (bundle / CERTIFICATE).write_text(json.dumps(envelope, indent=1))
    assert {CANONICAL, INCLUSION} <= outcomes(authority.verify("exact", bundle), "failed")
    (bundle / CERTIFICATE).write_text("{}")
    verdict = authority.verify("exact", bundle)
    assert outcomes(verdict, "failed") == {SCHEMA}
    assert verdict.certificate is None


def test_two_of_three_must_sign(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    authority = CertificateAuthority.make(model_workspace, tmp_path, "alice", "bob", "carol")
    strict = authority.trust.model_copy(update={"threshold": 2})
    bundle = tmp_path / "bundle"
    for signers, verified in ((["alice"], False), (["alice", "bob"], True)):
        keys = [f"file:{tmp_path}/keys/{name}.pem" for name in signers]
        model_workspace.certify("exact", bundle, *authority.settings, f"certificate.signers={keys}", clock=now)
        verdict = authority.verify("exact", bundle, trust=strict, unpublished=True)
        assert verdict.genuine is verified
        assert (SIGNATURES in outcomes(verdict, "failed")) is not verified


@pytest.mark.parametrize(("first", "last"), [(-2, -1), (1, 2)], ids=["expired", "not yet"])
def test_a_key_counts_only_while_it_is_valid(authority: CertificateAuthority, first: int, last: int) -> None:
    (key,) = authority.trust.keys_for("certificate")
    window = {"valid_from": now() + timedelta(days=first), "valid_until": now() + timedelta(days=last)}
    trust = authority.trust.with_key(key.model_copy(update=window))
    verdict = authority.verify("exact", authority.folder / "published-exact", trust=trust)
    assert verdict.check(SIGNATURES).outcome == "passed"
    assert outcomes(verdict, "failed") == {VALIDITY}


def test_a_date_in_the_future_is_refused(authority: CertificateAuthority) -> None:
    verdict = authority.verify("exact", authority.folder / "published-exact", at=now() - timedelta(days=1))
    assert VALIDITY in outcomes(verdict, "failed")


def test_an_overdue_audit_is_a_problem(authority: CertificateAuthority) -> None:
    verdict = authority.verify("exact", authority.folder / "published-exact", at=now() + timedelta(days=1000))
    assert outcomes(verdict, "failed") == {REAUDIT}


def forged(authority: CertificateAuthority, bundle: Path, **changes: object) -> None:
    """Sign a certificate again after changes to its predicate: what a dishonest holder of the key could do."""
    statement = statement_in(bundle)
    predicate = statement.predicate.model_copy(update=changes)
    signer = load_signer(f"file:{authority.folder}/keys/signer.pem")
    envelope = sign(to_payload(statement.model_copy(update={"predicate": predicate})), PAYLOAD_TYPE, [signer])
    (bundle / CERTIFICATE).write_bytes(envelope.to_bytes())


def statement_in(bundle: Path) -> DeletionStatement:
    statement = parse_payload(Envelope.parse((bundle / CERTIFICATE).read_bytes()).content)
    assert isinstance(statement, DeletionStatement)
    return statement


def test_a_holder_of_the_key_cannot_claim_what_the_numbers_do_not_show(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(authority.bundle("certified"), tmp_path / "bundle"))
    predicate = statement_in(bundle).predicate
    assert predicate.budget
    assert predicate.evidence.audit
    stronger = predicate.guarantee.model_copy(update={"epsilon": 0.5})
    leaky = {"audio": {"whitebox.accuracy_fed": {"as released": MeasureSummary(decision="passed", low=0.2, high=0.3)}}}
    audit = predicate.evidence.audit.model_copy(update={"measures": leaky})
    for changes, failing in (
        ({"guarantee": stronger, "budget": predicate.budget.model_copy(update={"epsilon": 0.5})}, BUDGET),
        ({"guarantee": stronger}, AGREEMENT),
        ({"evidence": predicate.evidence.model_copy(update={"audit": audit})}, GATE),
        ({"edit": predicate.edit.model_copy(update={"kind": "zero"})}, POSITIONS),
    ):
        forged(authority, bundle, **changes)
        verdict = authority.verify("certified", bundle, unpublished=True)
        assert verdict.check(SIGNATURES).outcome == "passed"
        assert failing in outcomes(verdict, "failed"), failing
        shutil.copy(authority.bundle("certified") / CERTIFICATE, bundle / CERTIFICATE)
    assert authority.verify("certified", bundle, unpublished=True).genuine


def test_a_holder_of_the_key_cannot_open_the_gate_by_a_parameter(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    """The decision of a weak audit follows from its numbers; its strength is a separate check."""
    bundle = Path(shutil.copytree(authority.bundle("surgery"), tmp_path / "bundle"))
    predicate = statement_in(bundle).predicate
    record = predicate.evidence.audit
    assert record
    rows, parameters = record.suite.rows["audio"], record.suite.parameters
    weak: dict[str, dict[str, object]] = {
        "attacks.tolerance": {"parameters": parameters | {"tolerance": 1.0}},
        "attacks.confidence": {"parameters": parameters | {"confidence": 0.999999999}},
        "suite.rows.audio.scored": {"rows": {"audio": rows.model_copy(update={"scored": 8})}},
        "attacks.splits": {"rows": {"audio": rows.model_copy(update={"splits": ("train",)})}},
    }
    for key, change in weak.items():
        audit = record.model_copy(update={"suite": record.suite.model_copy(update=change)})
        forged(authority, bundle, evidence=predicate.evidence.model_copy(update={"audit": audit}))
        verdict = authority.verify("surgery", bundle, unpublished=True)
        assert verdict.check(GATE).outcome == ("failed" if key == "attacks.tolerance" else "passed")  # by leakage.json
        assert key in verdict.check(STRENGTH).reason
        assert verdict.decision == "forged or damaged"
    forged(authority, bundle, reaudit_by=predicate.issued + timedelta(days=367))
    assert "more than 366 days" in authority.verify("surgery", bundle, unpublished=True).check(STRENGTH).reason


@pytest.mark.parametrize(
    ("how", "decision"), [("revoked", "withdrawn"), ("replaced", "not verified")], ids=["revoked", "by nothing"]
)
def test_a_certificate_that_was_revoked_or_replaced(
    model_workspace: ModelWorkspace, tmp_path: Path, how: str, decision: str
) -> None:
    authority = CertificateAuthority.make(model_workspace, tmp_path / "authority")
    digest = sha256_file(authority.publish("exact") / CERTIFICATE)
    assert authority.verify_in_store(digest, tmp_path / "before").verified
    said: AboutCertificate = (
        compose_revocation(digest, "the request was withdrawn", now())
        if how == "revoked"
        else compose_supersession(digest, "f" * 64, "a better one", now())
    )
    announce(said, authority.params().certificate, authority.publisher())
    verdict = authority.verify_in_store(digest, tmp_path / "after")
    check = WITHDRAWAL if how == "revoked" else REPLACEMENT
    assert (verdict.decision, outcomes(verdict, "failed")) == (decision, {check})
    assert how in verdict.check(check).reason


def test_a_passed_audit_extends_the_date_and_a_refused_one_refutes(
    model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    authority = CertificateAuthority.make(model_workspace, tmp_path / "authority")
    published = authority.publish("surgery")
    digest, statement = sha256_file(published / CERTIFICATE), statement_in(published)
    leakage = model_workspace.leakage("surgery")
    assert leakage
    again, _ = compose_reaudit(digest, statement, leakage, now(), 300, Commitments())
    announce(again, authority.params().certificate, authority.publisher())
    verdict = authority.verify_in_store(digest, tmp_path / "extended")
    assert verdict.verified, verdict.problems
    assert f"{again.predicate.reaudit_by:%Y-%m-%d}" in verdict.check(REAUDIT).reason
    refusing = model_workspace.leakage("surgery", tmp_path / "refused", decision="refused", reasons=("it leaks",))
    assert refusing
    announce(
        compose_reaudit(digest, statement, refusing, now(), 400, Commitments())[0],
        authority.params().certificate,
        authority.publisher(),
    )
    verdict = authority.verify_in_store(digest, tmp_path / "refuted")
    assert "it leaks" in verdict.check(WITHDRAWAL).reason
    assert verdict.decision == "withdrawn"


def test_a_certificate_that_takes_the_place_of_another(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    authority = CertificateAuthority.make(model_workspace, tmp_path / "authority")
    first = sha256_file(authority.publish("exact", "first") / CERTIFICATE)
    second = sha256_file(authority.publish("exact", "second", supersedes=first) / CERTIFICATE)
    assert authority.verify_in_store(second, tmp_path / "second").verified
    verdict = authority.verify_in_store(first, tmp_path / "first")
    assert (verdict.decision, verdict.genuine) == ("replaced", True)
    assert verdict.successor
    assert (verdict.successor.digest, verdict.successor.current, verdict.successor.releases) == (second, True, 1)


def test_what_is_not_in_the_log_says_nothing_about_a_certificate(
    model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    authority, stranger = (
        CertificateAuthority.make(model_workspace, tmp_path / "authority"),
        CertificateAuthority.make(model_workspace, tmp_path / "stranger"),
    )
    digest = sha256_file(authority.publish("exact") / CERTIFICATE)
    stranger.publish("exact")
    said = announce(compose_revocation(digest, "mischief", now()), stranger.params().certificate, stranger.publisher())
    for name in (certificate_name(said), certificate_name(said).replace(CERTIFICATE, PROOF)):
        authority.store.create(name, stranger.store.read(name))
    assert authority.verify_in_store(digest, tmp_path / "there").verified


def test_a_statement_about_a_certificate_is_not_a_certificate(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    authority = CertificateAuthority.make(model_workspace, tmp_path / "authority")
    digest = sha256_file(authority.publish("exact") / CERTIFICATE)
    said = announce(
        compose_revocation(digest, "no reason", now()), authority.params().certificate, authority.publisher()
    )
    verdict = authority.verify_in_store(said, tmp_path / "there")
    assert outcomes(verdict, "failed") == {SCHEMA}


def test_a_missing_certificate_is_an_error(authority: CertificateAuthority, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no certificate in this folder"):
        from_folder(tmp_path)
    with refused(DataError, file=f"{authority.url}/certificates/{'0' * 64}/{CERTIFICATE}"):
        authority.verify_in_store("0" * 64, tmp_path)


def test_a_store_without_weights_says_nothing_about_any(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    authority = CertificateAuthority.make(model_workspace, tmp_path / "authority")
    published = authority.publish("exact")
    digests = statement_in(published).digests
    objects = tmp_path / "authority" / "store" / "objects" / "sha256"
    (objects / digests[WEIGHTS]).unlink()
    verdict = authority.verify_in_store(sha256_file(published / CERTIFICATE), tmp_path / "there")
    assert (verdict.decision, verdict.model) == ("verified", None)
    assert digest_name(WEIGHTS) in outcomes(verdict, "not checkable")
    (objects / digests[MODEL]).unlink()
    verdict = authority.verify_in_store(sha256_file(published / CERTIFICATE), tmp_path / "again")
    assert outcomes(verdict, "failed") == {digest_name(MODEL)}


def test_an_object_that_was_exchanged_in_the_store_is_named(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    authority = CertificateAuthority.make(model_workspace, tmp_path / "authority")
    published = authority.publish("exact")
    digest = sha256_file(published / CERTIFICATE)
    weights = statement_in(published).digests[WEIGHTS]
    (tmp_path / "authority" / "store" / "objects" / "sha256" / weights).write_bytes(b"other")
    verdict = authority.verify_in_store(digest, tmp_path / "there")
    assert outcomes(verdict, "failed") == {digest_name(WEIGHTS)}
    (tmp_path / "authority" / "store" / certificate_name(digest)).write_bytes(b"{}")
    with refused(VerificationError, key=certificate_name(digest)):
        authority.verify_in_store(digest, tmp_path / "elsewhere")
