"""Private keys: only their owner reads them, secrets come from the environment, other holders plug in by URI."""

import stat
from pathlib import Path

import pytest
from securesystemslib.signer import CryptoSigner

from mbd.errors import MbdError, UsageError
from mbd.trust.keys import load_signer, new_key
from mbd.trust.public_keys import public_pem
from tests.refusals import refused
from tests.trust.keys import keys_in


def test_a_new_key_signs_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "signer.pem"
    public = new_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.with_suffix(".pub").read_text() == public == public_pem(load_signer(f"file:{file}"))
    assert public_pem(load_signer(f"file://{file}")) == public
    assert sorted(path.name for path in tmp_path.iterdir()) == ["signer.pem", "signer.pub"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "signer.pem"
    new_key(file)
    file.chmod(mode)
    with refused(UsageError, file=file, hint=f"chmod 600 {file}"):
        load_signer(f"file:{file}")


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    new_key(tmp_path / "signer.pem")
    before = (tmp_path / "signer.pem").read_bytes(), (tmp_path / "signer.pub").read_bytes()
    with refused(UsageError, file=tmp_path / "signer.pem"):
        new_key(tmp_path / "signer.pem")
    assert before == ((tmp_path / "signer.pem").read_bytes(), (tmp_path / "signer.pub").read_bytes())


def test_a_passphrase_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "signer.pem"
    public = new_key(file, "open sesame")
    assert b"ENCRYPTED" in file.read_bytes()
    with refused(UsageError, match="a passphrase"):
        load_signer(f"file:{file}")
    monkeypatch.setenv("MBD_KEY_PASSPHRASE", "open sesame")
    assert public_pem(load_signer(f"file:{file}")) == public
    monkeypatch.setenv("MBD_KEY_PASSPHRASE", "open barley")
    with refused(UsageError, file=file):
        load_signer(f"file:{file}")


def test_what_is_no_key_says_so(tmp_path: Path) -> None:
    with refused(UsageError, file=tmp_path / "none.pem"):
        load_signer(f"file:{tmp_path / 'none.pem'}")
    file = tmp_path / "text.pem"
    file.write_text("hello")
    file.chmod(0o600)
    with refused(UsageError, file=file):
        load_signer(f"file:{file}")
    with refused(UsageError, key="certificate.signers"):
        load_signer("carrier-pigeon:12")
    with refused(UsageError, key="certificate.log_signer"):
        load_signer("build/keys/log.pem", key="certificate.log_signer")


def test_a_holder_elsewhere_is_reached_by_uri_and_name(tmp_path: Path) -> None:
    """`file2:` is securesystemslib's own scheme; it represents every KMS and HSM that the library supports."""
    keys = keys_in(tmp_path)
    signer = load_signer(f"file2:{tmp_path / 'signer.pem'}#signer", keys.trust)
    assert isinstance(signer, CryptoSigner)
    assert public_pem(signer) == public_pem(keys.signer())
    with refused(UsageError, key="certificate.signers"):
        load_signer("awskms:arn:aws:kms:us-east-1:1:key/2", keys.trust)
    with refused(UsageError, key=None, value="awskms:arn:aws:kms:us-east-1:1:key/2"):
        load_signer("awskms:arn:aws:kms:us-east-1:1:key/2#signer")
    with refused(MbdError, key="certificate.signers"):
        load_signer(f"file2:{tmp_path / 'none.pem'}#signer", keys.trust)


def test_a_missing_package_of_an_hsm_is_named(tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    with refused(MbdError, hint="securesystemslib[hsm]"):
        load_signer("hsm:2?label=token#signer", keys.trust)
