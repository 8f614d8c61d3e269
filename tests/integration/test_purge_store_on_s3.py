"""A purge where the store itself is a versioned bucket of a real S3 server, and the DVC remote another one."""

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mbd.files import read_json, sha256_file
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import Receipt, object_name
from mbd.formats.statement import PurgeStatement
from mbd.history.entries import read_entry
from mbd.history.tombstones import read_tombstones
from mbd.params.operations import StoreSettings
from mbd.records import now
from mbd.storage import open_private, open_store
from mbd.storage.store import Store
from tests.certificate.build import ModelWorkspace, make_home
from tests.features.dvc_repository import isolated
from tests.integration.command import mbd
from tests.integration.servers.rgw import S3
from tests.purge.planted import plant_tombstones
from tests.purge.workspace import PurgeWorkspace, holding

pytestmark = pytest.mark.services


@dataclass(frozen=True)
class PurgeAuthority:
    """A certificate authority with its store in one bucket and data in another; every command is a new process."""

    purge_workspace: PurgeWorkspace
    s3: S3
    store_bucket: str
    remote_bucket: str

    @property
    def url(self) -> str:
        return f"s3://{self.store_bucket}/mbd"

    @property
    def store(self) -> Store:
        return open_store(self.url, self._settings)

    @property
    def private(self) -> Store:
        return open_private(self.url, self._settings)

    @property
    def _settings(self) -> StoreSettings:
        return StoreSettings.model_validate({"endpoint": self.s3.endpoint, "timeout_seconds": 30.0})

    @property
    def receipt(self) -> Path:
        return self.purge_workspace.folder / "published" / "receipt.json"

    @property
    def certificate(self) -> str:
        return Receipt.read(self.receipt, "receipt", "").certificate

    def run(self, *arguments: str | Path, store: bool = True) -> tuple[int, str]:
        """Run a command; steps ask the store itself for tombstones."""
        settings = (
            *self.purge_workspace.authority.settings,
            f"store.endpoint={self.s3.endpoint}",
            f"purge.tombstones={self.url}",
        )
        given = [*arguments, *(("--store", self.url) if store else ())]
        given += [part for setting in settings for part in ("--set", setting)]
        done = mbd(*given, environment=self.purge_workspace.repository.environment, folder=self.purge_workspace.work)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def verify(self) -> dict[str, Any]:
        """Verify the certificate from its URL as a stranger does; return what it claims of erasure."""
        place = f"{self.url}/certificates/{self.certificate}"
        trust = self.purge_workspace.authority.trust_file
        code, text = self.run("verify", place, "--json", "--trust", trust, store=False)
        assert code == 0, text
        found = json.loads(text)
        assert {check["outcome"] for check in found["checks"]} == {"passed"}
        return dict(found["claims"]["erasure"])

    def contents(self) -> dict[tuple[str, str, str], str]:
        """Return the SHA-256 of every version of every object in both buckets, by bucket, key and version."""
        client, found = self.s3.client(), {}
        for bucket in (self.store_bucket, self.remote_bucket):
            for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
                for one in page.get("Versions", []):
                    place = {"Bucket": bucket, "Key": one["Key"], "VersionId": one["VersionId"]}
                    body = client.get_object(**place)["Body"].read()
                    found[bucket, one["Key"], one["VersionId"]] = hashlib.sha256(body).hexdigest()
        return found

    def old_versions(self) -> set[tuple[str, str, str]]:
        weights = self.purge_workspace.old_weights()
        return {place for place, digest in self.contents().items() if digest == weights}


@pytest.fixture(scope="module")
def s3(versioned_s3: S3) -> S3:
    """Certificates are locked, which takes a bucket with versions."""
    return versioned_s3


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    return make_home(tmp_path_factory.mktemp("home"))


@pytest.fixture
def authority(
    s3: S3, model_workspace: ModelWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PurgeAuthority:
    """A deletion published in a bucket; versions in this bucket and in the DVC remote hold the old weights."""
    temporary = tmp_path / "machine" / "tmp"
    temporary.mkdir(parents=True)
    machine = isolated(tmp_path / "machine") | s3.environment | {"TMPDIR": str(temporary)}
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    client, names = s3.client(), [f"{what}-{uuid.uuid4().hex[:8]}" for what in ("store", "remote")]
    client.create_bucket(Bucket=names[0], ObjectLockEnabledForBucket=True)  # which keeps versions as well
    client.create_bucket(Bucket=names[1])
    client.put_bucket_versioning(Bucket=names[1], VersioningConfiguration={"Status": "Enabled"})
    remote = {"store": f"s3://{names[1]}/dvc\n    endpointurl = {s3.endpoint}"}
    purge_workspace = PurgeWorkspace.make(model_workspace, tmp_path, remote, environment=machine)
    shutil.rmtree(
        purge_workspace.authority.folder / "store"
    )  # what this test is about lies in the bucket, and only there
    shutil.rmtree(f"{os.environ['XDG_CACHE_HOME']}/missing-by-design")  # and so does what the machine knows of its log
    purge_workspace.repository.dvc("push", "--quiet")
    authority = PurgeAuthority(purge_workspace, s3, *names)
    given = (
        purge_workspace.authority.bundle("surgery"),
        "--model",
        model_workspace.deletion("surgery"),
    )
    code, text = authority.run("publish", *given, "--out", authority.receipt.parent)
    assert code == 0, text
    # A worker left the old weights in the store; a plain delete was done here and in the remote.
    body = (model_workspace.folder / "model" / WEIGHTS).read_bytes()
    for key in (
        f"mbd/{object_name(purge_workspace.old_weights())}",
        f"mbd/private/batches/files/{purge_workspace.old_weights()}",
    ):
        for _ in range(2):
            client.put_object(Bucket=names[0], Key=key, Body=body)
        client.delete_object(Bucket=names[0], Key=key)
    for bucket, key, _ in authority.old_versions():
        if bucket == names[1]:
            client.delete_object(Bucket=bucket, Key=key)
    return authority


def denied(bucket: str) -> str:
    """Return a policy under which no version below the store's `batches` can be removed."""
    all_else = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
    }
    batches = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": ["s3:DeleteObject", "s3:DeleteObjectVersion"],
        "Resource": [f"arn:aws:s3:::{bucket}/mbd/private/batches/*"],
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [all_else, batches]})


def test_a_purge_leaves_proof_and_tombstones_in_the_bucket_and_no_old_byte_in_any_version(
    authority: PurgeAuthority,
) -> None:
    client, purge_workspace = authority.s3.client(), authority.purge_workspace
    old, before = authority.old_versions(), authority.contents()
    assert sorted(bucket for bucket, _, _ in old) == sorted([authority.store_bucket] * 4 + [authority.remote_bucket])
    assert authority.verify()["claim"] == "none"
    purge = ("purge", "--receipt", authority.receipt, "--yes", "--out", purge_workspace.folder / "proof")

    client.put_bucket_policy(Bucket=authority.store_bucket, Policy=denied(authority.store_bucket))
    code, text = authority.run(*purge)
    assert (code, "erasure: partial" in text, "s3:DeleteObject" in text) == (1, True, True), text
    assert {key.split("/")[1] for _, key, _ in authority.old_versions()} == {"private"}
    assert authority.verify()["claim"] == "partial"

    client.delete_bucket_policy(Bucket=authority.store_bucket)
    code, text = authority.run(*purge)
    assert (code, "erasure: complete" in text) == (0, True), text
    for bucket, key, version in old:
        with pytest.raises(ClientError):
            client.get_object(Bucket=bucket, Key=key, VersionId=version)
    after = authority.contents()
    assert not [place for place, digest in after.items() if digest == purge_workspace.old_weights()]
    assert holding([purge_workspace.old_weights()], purge_workspace.work) == []
    kept = {place: digest for place, digest in before.items() if place not in old}
    assert {place: after.get(place) for place in kept} == kept
    added = {key.split("/")[1] for bucket, key, _ in after.keys() - before.keys() if bucket == authority.store_bucket}
    assert {"private", "certificates", "log"} >= added >= {"private", "certificates"}

    tombstones = read_tombstones(authority.store, authority.private, purge_workspace.authority.trust)
    assert {target.sha256 for target in tombstones.of(authority.certificate)} == {purge_workspace.old_weights()}
    about = read_entry(
        authority.store, authority.certificate, purge_workspace.authority.trust, now()
    ).about  # signed, and in the log
    assert [type(one) for one in about] == [PurgeStatement, PurgeStatement]
    said = {one.predicate.erasure.claim: one for one in about if isinstance(one, PurgeStatement)}
    assert said["complete"].predicate.proof == sha256_file(purge_workspace.folder / "proof" / "purge.json")
    assert read_json(purge_workspace.folder / "proof" / "purge.json")["erasure"]["claim"] == "complete"
    claimed = authority.verify()
    assert claimed["claim"] == "complete"
    assert authority.store_bucket not in json.dumps(claimed) and authority.remote_bucket not in json.dumps(claimed)


def test_a_resurrected_file_is_refused_by_steps_found_by_a_scan_and_removed(authority: PurgeAuthority) -> None:
    code, text = authority.run("purge", "--receipt", authority.receipt, "--yes")
    assert code == 0, text
    assert authority.run("purge", "scan")[0] == 0
    model_workspace, weights = (
        authority.purge_workspace.authority.model_workspace,
        authority.purge_workspace.old_weights(),
    )
    key = f"mbd/{object_name(weights)}"
    authority.s3.client().upload_file(str(model_workspace.folder / "model" / WEIGHTS), authority.store_bucket, key)
    code, text = authority.run("purge", "scan", "--json")
    assert (code, [(one["kind"], one["sha256"]) for one in json.loads(text)["resurrections"]]) == (
        1,
        [("store", weights)],
    )
    assert authority.run("purge", "scan", "--remove", "--yes")[0] == 0
    assert authority.old_versions() == set()
    given = (
        "--features",
        model_workspace.folder / "data",
        "--model",
        model_workspace.folder / "model",
        "--out",
        authority.purge_workspace.folder / "e",
    )
    code, text = authority.run("evaluate", *given, store=False)
    assert (code, "this file was purged because a modality was revoked" in text) == (5, True), text


def test_planted_tombstones_remove_nothing_from_a_bucket(authority: PurgeAuthority, tmp_path: Path) -> None:
    released = sha256_file(authority.purge_workspace.authority.model_workspace.deletion("surgery") / WEIGHTS)
    plant_tombstones(authority.store, authority.private, authority.certificate, [released], tmp_path / "stranger")
    before = authority.contents()
    code, text = authority.run("purge", "scan", "--remove", "--yes")
    assert (code, "0 tombstones" in text) == (0, True), text
    assert authority.contents() == before
    code, text = authority.run("purge", "--receipt", authority.receipt, "--yes")
    assert code == 0, text
    assert authority.store.stat(object_name(released))
    model = authority.purge_workspace.authority.model_workspace.deletion("surgery")
    trust = authority.purge_workspace.authority.trust_file
    code, text = authority.run("guard", "--model", model, "--trust", trust)
    assert code == 0, text
