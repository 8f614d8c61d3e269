"""A DVC remote on a real S3 server: what a Kubeflow step does to get its data."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mbd.features.contract import FeatureSet
from mbd.files import sha256_file
from tests.features.dvc_repository import STAGE, SampleRepository, isolated
from tests.integration.command import mbd
from tests.integration.servers.rgw import S3

pytestmark = pytest.mark.services


@dataclass(frozen=True)
class RemoteOrigin:
    """Git history on one server, data on another, and the options of the command."""

    history: Path
    environment: dict[str, str]
    first: tuple[str, str]
    second: tuple[str, str]
    manifest_md5: str
    """name of the second manifest in the remote"""

    def options(self, rev: str, out: Path) -> list[str | Path]:
        """Options of `mbd features`."""
        return ["--dvc-repo", self.history.as_uri(), "--dvc-rev", rev, "--dvc-path", STAGE, "--out", out]


@pytest.fixture(scope="module")
def origin(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteOrigin]:
    base = tmp_path_factory.mktemp("origin")
    s3.client().create_bucket(Bucket="features")
    environment = isolated(base) | s3.environment
    repository = SampleRepository.make(base / "work", environment, "s3://features/dvc", endpointurl=s3.endpoint)
    first = repository.commit(seed=1)
    repository.dvc("push", "--quiet")
    second = repository.commit(seed=2)
    repository.dvc("push", "--quiet")
    manifest_md5 = hashlib.md5((repository.folder / STAGE / "manifest.json").read_bytes()).hexdigest()
    repository.git("clone", "--quiet", "--bare", ".", str(base / "history.git"))
    # Another machine: neither cache nor index of the first.
    yield RemoteOrigin(base / "history.git", isolated(base / "elsewhere") | s3.environment, first, second, manifest_md5)


def test_each_revision_comes_from_s3_and_no_credential_is_written(origin: RemoteOrigin, s3: S3, tmp_path: Path) -> None:
    for rev, (commit, digest) in {"HEAD": origin.second, origin.first[0][:10]: origin.first}.items():
        out = tmp_path / rev
        done = mbd("features", *origin.options(rev, out), environment=origin.environment)
        assert done.returncode == 0, done.stderr
        FeatureSet.open(out, verify=True)
        record = json.loads((out / "step.json").read_text())["inputs"]["revision"]
        assert (record["commit"], record["digest"]) == (commit, digest)
        assert sha256_file(out / "manifest.json") == digest
    for folder in (tmp_path, origin.history, Path(origin.environment["HOME"]).parent):
        for file in (path for path in folder.rglob("*") if path.is_file()):
            assert s3.secret_key.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    "wrong",
    [
        {"AWS_SECRET_ACCESS_KEY": "not-the-secret"},
        {"AWS_ACCESS_KEY_ID": "NOBODY"},
        {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
    ],
    ids=["wrong secret", "unknown key", "no credentials"],
)
def test_wrong_credentials_and_missing_data_are_different_errors(
    origin: RemoteOrigin, tmp_path: Path, wrong: dict[str, str]
) -> None:
    # An index that has seen the folders before would not have to ask for them.
    environment = origin.environment | {"DVC_SITE_CACHE_DIR": str(tmp_path / "site")} | wrong
    done = mbd("features", *origin.options("HEAD", tmp_path / "out"), environment=environment)
    assert done.returncode == 5
    assert "error: the DVC remote refused the credentials, or there are none" in done.stderr
    assert "AWS_SECRET_ACCESS_KEY" in done.stderr
    assert "not-the-secret" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_data_missing_from_the_bucket_is_an_error(origin: RemoteOrigin, s3: S3, tmp_path: Path) -> None:
    client = s3.client()
    stored = f"dvc/files/md5/{origin.manifest_md5[:2]}/{origin.manifest_md5[2:]}"
    manifest = client.get_object(Bucket="features", Key=stored)["Body"].read()
    client.delete_object(Bucket="features", Key=stored)
    try:
        done = mbd("features", *origin.options("HEAD", tmp_path / "out"), environment=origin.environment)
    finally:
        client.put_object(Bucket="features", Key=stored, Body=manifest)
    assert done.returncode == 5
    assert "neither in the DVC remote nor in the cache" in done.stderr
