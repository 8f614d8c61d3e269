"""Verifying from wherever a certificate is, with whichever trust, and by training again."""

import shutil
from pathlib import Path

import pytest

from mbd.certificate.layout import latest_name
from mbd.certificate.reader import SIGNATURES
from mbd.errors import DataError, UsageError
from mbd.files import sha256_file
from mbd.formats.statement import CERTIFICATE
from mbd.records import now
from mbd.steps import verify
from mbd.steps.verify import REPRODUCTION
from mbd.storage.store import NotThereError
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import make_home
from tests.features.build import synthetic_set


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    model_workspace = make_home(tmp_path_factory.mktemp("home"))
    authority = CertificateAuthority.make(model_workspace, tmp_path_factory.mktemp("office"))
    for kind in ("surgery", "exact", "subjects"):
        authority.publish(kind)
    return authority


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
        verdict = verify.run(authority.params(), source)
        assert verdict.verified, verdict.problems
        assert verdict.certificate == digest


@pytest.fixture
def another(authority: CertificateAuthority, tmp_path: Path) -> CertificateAuthority:
    """Another office on the same models, with nothing published yet."""
    return CertificateAuthority.make(authority.model_workspace, tmp_path / "office")


def test_a_store_names_its_latest_certificate(another: CertificateAuthority) -> None:
    for name in ("first", "second"):
        digest = sha256_file(another.publish("exact", name) / CERTIFICATE)
        for source in (another.url, f"{another.url}/", f"{another.url}/{latest_name('sentiment', 'audio')}"):
            assert verify.run(another.params(), source).certificate == digest


def test_a_store_with_nothing_in_it(another: CertificateAuthority) -> None:
    with pytest.raises(NotThereError, match="no certificate has been published"):
        verify.run(another.params(), another.url)
    with pytest.raises(DataError, match="no such certificate"):
        verify.run(another.params(), f"{another.url}/certificates/{'0' * 64}")


def test_a_store_with_several_says_so(another: CertificateAuthority) -> None:
    another.publish("exact")
    another.model_workspace.certify(
        "surgery", another.folder / "bundle-surgery", *another.settings, "certificate.model=other", clock=now
    )
    another.publish("surgery")
    with pytest.raises(UsageError, match="holds 2 certificates") as caught:
        verify.run(another.params(), another.url)
    assert latest_name("other", "audio") in str(caught.value)


def test_which_trust_file_counts(authority: CertificateAuthority, tmp_path: Path) -> None:
    source = str(authority.folder / "published-exact")
    alone = authority.params(f"certificate.trust={tmp_path}/none.json")
    assert verify.run(alone, source).decision == "not verified"
    assert verify.run(alone, source, trust=authority.trust_file).verified
    stranger = CertificateAuthority.make(authority.model_workspace, tmp_path / "stranger")
    verdict = verify.run(authority.params(), source, trust=stranger.trust_file)
    assert verdict.check(SIGNATURES).outcome == "failed"
    with pytest.raises(DataError, match="no readable trust file"):
        verify.run(alone, source, trust=tmp_path / "none.json")


def test_training_again_gives_the_same_bits_even_without_the_deleted_files(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(authority.model_workspace.folder / "data", tmp_path / "data"))
    for file in data.rglob("audio.safetensors"):
        file.unlink()
    verdict = verify.run(authority.params(), str(authority.folder / "published-exact"), features=data)
    assert verdict.verified, verdict.problems
    assert "bit for bit" in verdict.check(REPRODUCTION).reason


@pytest.mark.parametrize(
    ("kind", "said"), [("surgery", "only an exact deletion"), ("subjects", "does not name the subjects")]
)
def test_what_cannot_be_trained_again_is_not_verified_that_way(
    authority: CertificateAuthority, kind: str, said: str
) -> None:
    source = str(authority.folder / f"published-{kind}")
    verdict = verify.run(authority.params(), source, features=authority.model_workspace.folder / "data")
    assert verdict.decision == "not verified"
    assert said in verdict.check(REPRODUCTION).reason


def test_other_data_prove_nothing(authority: CertificateAuthority, tmp_path: Path) -> None:
    other = synthetic_set(tmp_path / "data", "features.seed=7")
    verdict = verify.run(authority.params(), str(authority.folder / "published-exact"), features=other)
    assert verdict.decision == "not verified"
    assert "made from other data" in verdict.check(REPRODUCTION).reason
