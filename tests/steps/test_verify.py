"""Verifying from wherever a certificate is, with whichever trust, and by training again."""

import shutil
from functools import partial
from pathlib import Path

import pytest

import mbd
from mbd.certificate.compose import compose_revocation
from mbd.certificate.publish import announce
from mbd.errors import DataError, UsageError
from mbd.files import sha256_file
from mbd.formats.files import CERTIFICATE
from mbd.formats.layout import LatestPointer, latest_name
from mbd.records import now
from mbd.steps import verify
from mbd.storage.store import NotThereError, update
from mbd.verifier.verdict import CONSISTENCY, REPRODUCTION, SIGNATURES, WITHDRAWAL
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import make_home
from tests.features.build import synthetic_set
from tests.refusals import refused, refused_as_unreadable
from tests.storage.web_server import self_signed, serving


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    model_workspace = make_home(tmp_path_factory.mktemp("home"))
    authority = CertificateAuthority.make(model_workspace, tmp_path_factory.mktemp("authority"))
    for kind in ("subjects", "surgery", "exact"):
        # The model of the surgery has heard the subject: it cannot be released under the same name.
        authority.publish(kind, model="people" if kind == "subjects" else "sentiment")
    return authority


@pytest.fixture(autouse=True)
def _trusting(authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MBD_TRUST", str(authority.trust_file))


def test_every_way_to_name_a_certificate(authority: CertificateAuthority) -> None:
    published = authority.folder / "published-exact"
    digest = sha256_file(published / CERTIFICATE)
    for source in (
        str(published),
        str(published / CERTIFICATE),
        f"{authority.url}/certificates/{digest}",
        f"{authority.url}/certificates/{digest}/",
        f"{authority.url}/certificates/{digest}/certificate.json",
    ):
        verdict = verify.run(authority.params(), source, store=None if "://" in source else authority.url)
        assert verdict.verified, verdict.problems
        assert verdict.certificate == digest


@pytest.fixture
def another(authority: CertificateAuthority, tmp_path: Path) -> CertificateAuthority:
    """Another office on the same models, with nothing published yet."""
    return CertificateAuthority.make(authority.model_workspace, tmp_path / "authority")


def test_a_store_names_its_latest_certificate(another: CertificateAuthority) -> None:
    for name in ("first", "second"):
        digest = sha256_file(another.publish("exact", name) / CERTIFICATE)
        for source in (another.url, f"{another.url}/", f"{another.url}/{latest_name('sentiment', 'audio')}"):
            assert verify.run(another.params(), source, trust=another.trust_file).certificate == digest


def test_a_store_with_nothing_in_it(another: CertificateAuthority) -> None:
    with refused(UsageError, key="URL", value=another.url):
        verify.run(another.params(), another.url)
    (another.folder / "store").mkdir()
    assert verify.run(another.params(), another.url).decision == "not verified"
    with refused(DataError, file=f"{another.url}/certificates/{'0' * 64}/{CERTIFICATE}"):
        verify.run(another.params(), f"{another.url}/certificates/{'0' * 64}")


def test_a_store_with_several_says_so(another: CertificateAuthority) -> None:
    another.publish("exact")
    another.model_workspace.certify(
        "surgery", another.folder / "bundle-surgery", *another.settings, "certificate.model=other", clock=now
    )
    another.publish("surgery")
    with refused(UsageError, value=f"{latest_name('sentiment', 'audio')}, {latest_name('other', 'audio')}"):
        verify.run(another.params(), another.url, trust=another.trust_file)
    check_that_a_pointer_names_no_certificate(another)


def check_that_a_pointer_names_no_certificate(another: CertificateAuthority) -> None:
    """Let the pointer of one model name the certificate of another: the one that was asked for is verified."""
    exact, surgery = (sha256_file(another.folder / f"published-{kind}" / CERTIFICATE) for kind in ("exact", "surgery"))
    name = latest_name("sentiment", "audio")
    pointer = LatestPointer(certificate=surgery, index=1).to_bytes()
    update(another.store, name, lambda _: pointer)
    verdict = verify.run(another.params(), f"{another.url}/{name}", trust=another.trust_file)
    assert (verdict.certificate, verdict.claims["model"]) == (exact, "sentiment")
    with refused(NotThereError, value=latest_name("third", "audio"), file=another.url):
        verify.run(another.params(), f"{another.url}/{latest_name('third', 'audio')}", trust=another.trust_file)
    for planted in (b"junk", LatestPointer(certificate="c" * 64, index=10**6).to_bytes()):
        update(another.store, name, lambda _, planted=planted: planted)  # type: ignore[misc]
        another.publish("exact")
        assert another.store.read(name) == LatestPointer(certificate=exact, index=0).to_bytes()


def test_which_trust_file_counts(authority: CertificateAuthority, tmp_path: Path) -> None:
    source, params = str(authority.folder / "published-exact"), authority.params()
    stranger = CertificateAuthority.make(authority.model_workspace, tmp_path / "stranger")
    verdict = verify.run(params, source, trust=stranger.trust_file, offline=True)
    assert verdict.check(SIGNATURES).outcome == "failed"
    with refused_as_unreadable(tmp_path / "none.json"):
        verify.run(params, source, trust=tmp_path / "none.json", offline=True)


def test_the_trust_file_of_the_user_is_in_their_configuration_folder(
    authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MBD_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    place = tmp_path / "mbd" / "trust.json"
    place.parent.mkdir()
    shutil.copy(authority.trust_file, place)
    verdict = verify.run(authority.params(), str(authority.folder / "published-exact"), offline=True)
    assert verdict.genuine
    assert verdict.trust_file == str(place)
    assert verdict.trust == authority.trust.digest


def test_a_folder_that_brings_its_own_trust_file_and_parameters_does_not_verify_itself(
    authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tmp_path / "sent"
    shutil.copytree(authority.folder / "published-exact", sent / "published")
    for place in (sent / "trust.json", sent / "mbd" / "trust.json", sent / "build" / "keys" / "trust.json"):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(authority.trust_file, place)
    (sent / "params.yaml").write_text("certificate: {trust: trust.json}\n")
    monkeypatch.chdir(sent)
    monkeypatch.delenv("MBD_TRUST")
    for configuration in (str(tmp_path / "none"), ".", "build/.."):  # a relative folder is one of the sender's, too
        monkeypatch.setenv("XDG_CONFIG_HOME", configuration)
        verdict = mbd.verify("published", offline=True)
        assert (verdict.decision, verdict.genuine) == ("not verified", False)
        assert (verdict.trust, verdict.trust_file) == (None, None)
        with refused(UsageError, key="trust"):
            mbd.guard(authority.model_workspace.deletion("exact"), authority.url)


def test_a_folder_needs_a_store_to_ask_or_the_word_offline(authority: CertificateAuthority) -> None:
    source, params = str(authority.folder / "published-exact"), authority.params()
    with refused(UsageError, match="does not show whether it was revoked", hint="--store URL"):
        verify.run(params, source)
    for place, store, problem in ((source, authority.url, "exclude each other"), (authority.url, None, "a URL names")):
        with refused(UsageError, match=problem):
            verify.run(params, place, store=store, offline=True)
    with refused(UsageError, key="--store", value="file:///nowhere/at/all"):
        verify.run(params, source, store="file:///nowhere/at/all")


def test_a_revoked_certificate_is_withdrawn_with_the_store_and_not_verified_without(
    another: CertificateAuthority,
) -> None:
    published = another.publish("exact")
    digest = sha256_file(published / CERTIFICATE)
    announce(compose_revocation(digest, "withdrawn", now()), another.params().certificate, another.publisher())
    ask = partial(
        verify.run, another.params(), trust=another.trust_file, model=another.model_workspace.deletion("exact")
    )
    verdict = ask(str(published), store=another.url)
    assert verdict.decision == "withdrawn"
    assert [check.name for check in verdict.problems] == [WITHDRAWAL]
    verdict = ask(str(published), offline=True)
    assert (verdict.decision, verdict.genuine) == ("not verified", True)
    assert verdict.summary == f"NOT VERIFIED: certificate {digest}"


def test_a_certificate_that_the_named_store_does_not_have_is_not_in_force(
    authority: CertificateAuthority, another: CertificateAuthority
) -> None:
    another.publish("surgery")
    verdict = verify.run(authority.params(), str(authority.folder / "published-exact"), store=another.url)
    assert verdict.decision == "not verified"
    assert CONSISTENCY in {check.name for check in verdict.problems}


def test_a_store_that_does_not_answer_leaves_open_whether_a_certificate_is_in_force(
    authority: CertificateAuthority,
) -> None:
    ask = partial(verify.run, authority.params("store.retries=0"), trust=authority.trust_file)
    verdict = ask(str(authority.folder / "published-exact"), store="http://127.0.0.1:9")
    assert (verdict.decision, verdict.genuine) == ("not verified", True)
    assert "the store did not answer" in verdict.problems[0].reason
    verdict = ask("http://127.0.0.1:9")
    assert (verdict.decision, verdict.certificate) == ("not verified", None)


def test_the_address_that_a_browser_shows_is_verified(another: CertificateAuthority, tmp_path: Path) -> None:
    digest = sha256_file(another.publish("exact") / CERTIFICATE)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "store").symlink_to(another.folder / "store")
    with serving(tmp_path / "site", None) as (url, _):
        for shown in (
            f"/certificates/{digest}/page",
            f"/console/certificates/{digest}",
            f"/certificates/{digest}/page#limits",
        ):
            verdict = verify.run(another.params(), url + shown, trust=another.trust_file)
            assert (verdict.verified, verdict.store) == (True, f"{url}/store"), verdict.problems
        for shown in ("/console/", "/console/certificates", "/console/models/own"):
            with pytest.raises(UsageError, match="not the location of a certificate"):
                verify.run(another.params(), url + shown, trust=another.trust_file)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_store_is_verified_over_https_without_listing_it(
    another: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    published = another.publish("exact")
    digest = sha256_file(published / CERTIFICATE)
    certificate = self_signed(tmp_path / "server.pem") if scheme == "https" else None
    if certificate:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(another.folder / "store", certificate) as (url, _):
        ask = partial(verify.run, another.params("store.retries=0"), trust=another.trust_file)
        for source in (url, f"{url}/certificates/{digest}", f"{url}/{latest_name('sentiment', 'audio')}"):
            verdict = ask(source)
            assert verdict.verified, verdict.problems
            assert verdict.store == url
        assert ask(str(published), store=url).verified
        announce(compose_revocation(digest, "withdrawn", now()), another.params().certificate, another.publisher())
        assert [check.name for check in ask(f"{url}/certificates/{digest}").problems] == [WITHDRAWAL]


def test_training_again_gives_the_same_bits_even_without_the_deleted_files(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(authority.model_workspace.folder / "data", tmp_path / "data"))
    for file in data.rglob("audio.safetensors"):
        file.unlink()
    source = str(authority.folder / "published-exact")
    verdict = verify.run(authority.params(), source, store=authority.url, features=data)
    assert verdict.verified, verdict.problems
    assert "bit for bit" in verdict.check(REPRODUCTION).reason


@pytest.mark.parametrize(
    ("kind", "said"), [("surgery", "only an exact deletion"), ("subjects", "does not name the subjects")]
)
def test_what_cannot_be_trained_again_is_not_verified_that_way(
    authority: CertificateAuthority, kind: str, said: str
) -> None:
    source = str(authority.folder / f"published-{kind}")
    verdict = verify.run(authority.params(), source, offline=True, features=authority.model_workspace.folder / "data")
    assert (verdict.decision, verdict.genuine) == ("not verified", False)
    assert said in verdict.check(REPRODUCTION).reason


def test_other_data_prove_nothing(authority: CertificateAuthority, tmp_path: Path) -> None:
    other = synthetic_set(tmp_path / "data", "features.seed=7")
    verdict = verify.run(authority.params(), str(authority.folder / "published-exact"), offline=True, features=other)
    assert (verdict.decision, verdict.genuine) == ("not verified", False)
    assert "made from other data" in verdict.check(REPRODUCTION).reason
