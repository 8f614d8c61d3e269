"""Opening a store by its URL."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mbd.errors import UsageError
from mbd.params.operations import StoreSettings
from mbd.storage import lock_for, open_store
from mbd.storage.store import Lock
from tests.refusals import refused_without


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("file://build/store", "build/store/a/b"),
        ("file://./build/store/", "build/store/a/b"),
        ("file://{here}/store", "store/a/b"),
        ("file://{here}/my%20store", "my store/a/b"),
    ],
)
def test_the_path_of_a_folder_may_be_relative_or_absolute(url: str, file: str) -> None:
    store = open_store(url.format(here=Path.cwd()))
    store.create("a/b", b"x")
    assert Path(file).read_bytes() == b"x"


def test_a_relative_folder_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("file://store")
    monkeypatch.chdir("/")
    store.create("a", b"x")
    assert (tmp_path / "store" / "a").exists()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "build/store",
        "http://host/x",
        "file://",
        "s3://",
        "s3://key:secret@bucket/x",
        "s3://bucket/p?x=1",
        "s3://No bucket!",
    ],
)
def test_other_urls_are_refused_without_repeating_credentials(url: str) -> None:
    if url.startswith("s3:"):
        pytest.importorskip("boto3")
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_a_store_knows_its_url() -> None:
    pytest.importorskip("boto3")
    assert open_store("s3://bucket").url == "s3://bucket"
    assert open_store("s3://bucket/a/b/").url == "s3://bucket/a/b"
    assert open_store("file://build/store").url == "file://build/store"


def test_s3_without_boto3_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith(("mbd.storage.s3", "boto3"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with refused_without("boto") as caught:
        open_store("s3://bucket")
    assert "[data]" in str(caught.value)


def test_a_folder_needs_neither_boto3_nor_torch() -> None:
    code = (
        "import sys; from mbd.storage import open_store; open_store('file://s').create('a', b'');"
        "sys.exit(bool({'boto3', 'botocore', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_certificates_are_locked_if_the_store_and_the_parameters_allow_it() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    class Locking:
        locks = True

    folder = open_store("file://store")
    assert lock_for(folder, StoreSettings(), now) is None
    settings = StoreSettings(lock_mode="COMPLIANCE", lock_days=10)
    assert lock_for(Locking(), settings, now) == Lock("COMPLIANCE", now + timedelta(days=10))  # type: ignore[arg-type]
    assert lock_for(Locking(), StoreSettings(lock_mode=None), now) is None  # type: ignore[arg-type]
