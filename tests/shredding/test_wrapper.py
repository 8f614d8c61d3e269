"""Wrapping of keys by a file and by a KMS, and their errors."""

import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mbd.errors import MbdError, UsageError
from mbd.shredding.wrapper import FileWrapper, UnwrapError, open_wrapper
from tests.refusals import refused, refused_without
from tests.shredding.kms_server import KmsServer, running_kms

CONTEXT = {"id": "1", "modality": "audio"}
SECRET = secrets.token_bytes(32)


@pytest.fixture
def kek(tmp_path: Path) -> FileWrapper:
    wrapper = FileWrapper(tmp_path / "keys" / "kek")
    assert wrapper.make()
    return wrapper


def test_a_file_wraps_and_unwraps(kek: FileWrapper) -> None:
    wrapped = kek.wrap(SECRET, CONTEXT)
    assert SECRET not in wrapped
    assert wrapped != kek.wrap(SECRET, CONTEXT)
    assert open_wrapper(f"file:{kek.file}").unwrap(wrapped, CONTEXT) == SECRET


def test_a_wrapped_key_cannot_be_used_in_place_of_another(kek: FileWrapper, tmp_path: Path) -> None:
    wrapped = kek.wrap(SECRET, CONTEXT)
    with pytest.raises(UnwrapError):
        kek.unwrap(wrapped, CONTEXT | {"modality": "text"})
    with pytest.raises(UnwrapError):
        kek.unwrap(wrapped[:-1], CONTEXT)
    with pytest.raises(UnwrapError):
        kek.unwrap(b"", CONTEXT)
    other = FileWrapper(tmp_path / "other")
    other.make()
    with pytest.raises(UnwrapError):
        other.unwrap(wrapped, CONTEXT)


def test_the_key_file_is_private_and_never_replaced(kek: FileWrapper) -> None:
    assert kek.file.stat().st_mode & 0o777 == 0o600
    before = kek.file.read_bytes()
    assert not kek.make()
    assert kek.file.read_bytes() == before
    assert [file.name for file in kek.file.parent.iterdir()] == ["kek"]
    kek.file.chmod(0o640)
    with refused(UsageError, file=kek.file):
        kek.wrap(SECRET, CONTEXT)


def test_a_secret_that_is_mounted_read_only_may_be_readable_by_others(kek: FileWrapper) -> None:
    kek.file.chmod(0o644)
    folder = str(kek.file.parent)
    use = f"from pathlib import Path; from mbd.shredding.wrapper import FileWrapper as W; W(Path({str(kek.file)!r}))"
    steps = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"'
    call = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*call, steps, "sh", folder], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    wrap = f'{steps} && "{sys.executable}" -c "$2"'
    done = subprocess.run([*call, wrap, "sh", folder, f"{use}.wrap(bytes(32), {{}})"], check=False)
    assert done.returncode == 0
    with refused(UsageError, file=kek.file):
        kek.wrap(SECRET, CONTEXT)


@pytest.mark.parametrize("content", [b"", b"00" * 31, b"no key at all", b"\xff\xfe"])
def test_a_file_without_a_valid_key_is_an_error(kek: FileWrapper, content: bytes) -> None:
    kek.file.write_bytes(content)
    with refused(UsageError, file=kek.file):
        kek.wrap(SECRET, CONTEXT)
    kek.file.unlink()
    with refused(UsageError, file=kek.file):
        kek.wrap(SECRET, CONTEXT)


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Iterator[KmsServer]:
    with running_kms("one", "two") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        yield server


def test_a_kms_wraps_and_unwraps(kms: KmsServer) -> None:
    wrapped = open_wrapper("awskms:one").wrap(SECRET, CONTEXT)
    assert SECRET not in wrapped
    assert open_wrapper("awskms:one").unwrap(wrapped, CONTEXT) == SECRET
    with pytest.raises(UnwrapError):
        open_wrapper("awskms:two").unwrap(wrapped, CONTEXT)
    with pytest.raises(UnwrapError):
        open_wrapper("awskms:one").unwrap(wrapped, CONTEXT | {"id": "2"})


def test_a_failing_kms_is_a_clear_error(kms: KmsServer) -> None:
    with refused(MbdError, match="no key three", key="shredding.wrapper", value="awskms:three"):
        open_wrapper("awskms:three").wrap(SECRET, CONTEXT)


def test_a_kms_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with refused_without("boto3"):
        open_wrapper("awskms:one").wrap(SECRET, CONTEXT)


@pytest.mark.parametrize("uri", ["kek", "file:", "awskms:", "vault:x"])
def test_other_uris_are_refused(uri: str) -> None:
    with refused(UsageError, key="shredding.wrapper", value=uri):
        open_wrapper(uri)
