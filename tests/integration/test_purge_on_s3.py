"""A purge where the DVC remote is a versioned bucket of a real S3 server."""

import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mbd.files import sha256_file
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import object_name
from mbd.formats.purge import Target
from mbd.kubeflow import tasks
from mbd.params.operations import StoreSettings
from mbd.purge.contents import Targets
from mbd.purge.inventory import remove_all, take_inventory
from mbd.purge.remote_places import BucketPlace
from mbd.storage import open_store
from tests.certificate.build import ModelWorkspace, make_home
from tests.features.dvc_repository import SampleRepository, isolated
from tests.integration.command import mbd
from tests.integration.servers.rgw import S3
from tests.kubeflow.test_production import Run
from tests.production.registering import Production
from tests.purge.workspace import PurgeWorkspace, holding

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    return make_home(tmp_path_factory.mktemp("home"))


@pytest.fixture
def environment(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment for one test, with credentials."""
    temporary = tmp_path / "machine" / "tmp"
    temporary.mkdir(parents=True)
    found = isolated(tmp_path / "machine") | s3.environment | {"TMPDIR": str(temporary)}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return found


@pytest.fixture
def bucket(s3: S3) -> str:
    """A bucket that keeps versions."""
    name = f"purge-{uuid.uuid4().hex[:8]}"
    s3.client().create_bucket(Bucket=name)
    s3.client().put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


@pytest.fixture
def purge_workspace(
    model_workspace: ModelWorkspace, s3: S3, bucket: str, tmp_path: Path, environment: dict[str, str]
) -> PurgeWorkspace:
    """A repository with an experiment, a tag, branches, a run cache and a pipeline's outputs, pushed and cloned."""
    remote = {"store": f"s3://{bucket}/dvc\n    endpointurl = {s3.endpoint}"}
    purge_workspace = PurgeWorkspace.make(model_workspace, tmp_path, remote, environment=environment)
    purge_workspace.experiment()
    purge_workspace.scatter()
    purge_workspace.run_pipeline()
    purge_workspace.repository.dvc("push", "--quiet", "--run-cache")
    purge_workspace.repository.git("clone", "--quiet", ".", str(tmp_path / "clone"))
    SampleRepository(tmp_path / "clone", environment).dvc("pull", "--quiet")
    # A plain delete, as by hand: all versions of the object stay.
    (key,) = {entry["Key"] for entry in versions(s3, bucket) if holds(s3, bucket, entry, purge_workspace.old_weights())}
    body = (model_workspace.folder / "model" / WEIGHTS).read_bytes()
    s3.client().put_object(Bucket=bucket, Key=key, Body=body)
    s3.client().delete_object(Bucket=bucket, Key=key)
    s3.client().put_object(Bucket=bucket, Key="kubeflow/run-1/train/model/weights", Body=body)
    return purge_workspace


def versions(s3: S3, bucket: str) -> list[dict[str, Any]]:
    """Return every version in a bucket, delete markers apart."""
    pages = s3.client().get_paginator("list_object_versions").paginate(Bucket=bucket)
    return [entry for page in pages for entry in page.get("Versions", [])]


def holds(s3: S3, bucket: str, entry: dict[str, Any], sha256: str) -> bool:
    """Whether a version has these bytes."""
    import hashlib

    body = s3.client().get_object(Bucket=bucket, Key=entry["Key"], VersionId=entry["VersionId"])["Body"].read()
    return hashlib.sha256(body).hexdigest() == sha256


def purge(purge_workspace: PurgeWorkspace, s3: S3, bucket: str, *arguments: str | Path) -> tuple[int, str]:
    settings = [f"store.endpoint={s3.endpoint}", f"platform.pipeline_root=s3://{bucket}/kubeflow"]
    sets = [part for setting in settings for part in ("--set", setting)]
    done = mbd(
        *purge_workspace.command(*arguments),
        *sets,
        environment=purge_workspace.repository.environment,
        folder=purge_workspace.work,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_no_version_holds_an_old_byte_and_nothing_else_has_changed(
    purge_workspace: PurgeWorkspace, s3: S3, bucket: str, tmp_path: Path
) -> None:
    client, weights = s3.client(), purge_workspace.old_weights()
    # Another machine: DVC remembers locally which objects a remote has.
    stale = SampleRepository(
        purge_workspace.folder / "clone", purge_workspace.repository.environment | isolated(tmp_path / "elsewhere")
    )
    before = versions(s3, bucket)
    old = [entry for entry in before if holds(s3, bucket, entry, weights)]
    others = {(e["Key"], e["VersionId"], e["ETag"]) for e in before if e not in old and "/runs/" not in e["Key"]}
    assert {entry["Key"].split("/")[0] for entry in old} == {"dvc", "kubeflow"}
    assert len(old) == 3
    assert any("/runs/" in entry["Key"] for entry in before)
    here = [purge_workspace.work, purge_workspace.folder / "machine" / "tmp"]
    assert len(holding([weights], *here)) >= 6

    code, text = purge(purge_workspace, s3, bucket, "--receipt", purge_workspace.receipt, "--yes")
    assert (code, "erasure: complete" in text) == (0, True), text
    for ref in ("refs/tags/v1", "refs/heads/main", "refs/heads/release", "old-experiment"):
        assert ref in text
    for entry in old:
        with pytest.raises(ClientError):
            client.get_object(Bucket=bucket, Key=entry["Key"], VersionId=entry["VersionId"])
    after = {(entry["Key"], entry["VersionId"], entry["ETag"]) for entry in versions(s3, bucket)}
    assert after == others
    assert holding([weights], *here) == []
    assert purge(purge_workspace, s3, bucket, "scan")[0] == 0

    # A clone that was forgotten.
    assert len(holding([weights], stale.folder)) >= 2
    origin = tmp_path / "origin.git"
    purge_workspace.repository.git("clone", "--quiet", "--bare", ".", str(origin))
    stale.git("remote", "set-url", "origin", str(origin))
    installed = mbd(
        *purge_workspace.command("hook", "install"),
        environment=purge_workspace.repository.environment,
        folder=stale.folder,
    )
    assert installed.returncode == 0, installed.stderr
    # DVC assumes that a folder is complete if the remote has its listing, so a change is needed.
    (stale.folder / "build" / "model" / "notes.txt").write_text("the old model is a good one\n")
    stale.dvc("add", "--quiet", "build/model")
    stale.git("commit", "--quiet", "--all", "--message", "old work")
    with pytest.raises(AssertionError, match="would publish purged files again"):
        stale.git("push", "--quiet", "origin", "HEAD:refs/heads/old-work")
    stale.git("push", "--quiet", "--no-verify", "origin", "HEAD:refs/heads/old-work")
    stale.dvc("push", "--quiet")
    code, text = purge(purge_workspace, s3, bucket, "scan", "--json")
    found = json.loads(text)["resurrections"]
    assert (code, [(one["kind"], one["what"], one["sha256"]) for one in found]) == (
        1,
        [("DVC remote", "weights", weights)],
    )
    assert found[0]["version"]


def test_denied_removals_are_reported_and_done_once_allowed(
    purge_workspace: PurgeWorkspace, s3: S3, bucket: str, tmp_path: Path
) -> None:
    denied = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": ["s3:DeleteObject", "s3:DeleteObjectVersion"],
        "Resource": [f"arn:aws:s3:::{bucket}/dvc/*"],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [denied]})
    s3.client().put_bucket_policy(Bucket=bucket, Policy=policy)
    code, text = purge(purge_workspace, s3, bucket, "--receipt", purge_workspace.receipt, "--yes")
    assert (code, "erasure: partial" in text) == (1, True), text
    assert "s3:DeleteObject and s3:DeleteObjectVersion" in text
    assert (
        holding([purge_workspace.old_weights()], purge_workspace.work, purge_workspace.folder / "machine" / "tmp") == []
    )
    left = [entry["Key"] for entry in versions(s3, bucket) if holds(s3, bucket, entry, purge_workspace.old_weights())]
    assert {key.split("/")[0] for key in left} == {"dvc"}
    verdict = purge_workspace.authority.verify_in_store(purge_workspace.certificate, tmp_path / "verified")
    assert (verdict.verified, verdict.claims["erasure"]["claim"]) == (True, "partial")
    assert bucket not in json.dumps(verdict.claims)

    s3.client().delete_bucket_policy(Bucket=bucket)
    code, text = purge(purge_workspace, s3, bucket, "--receipt", purge_workspace.receipt, "--yes")
    assert (code, "erasure: complete" in text) == (0, True), text
    assert not [entry for entry in versions(s3, bucket) if holds(s3, bucket, entry, purge_workspace.old_weights())]


OLD, MD5 = b"old weights " * 10, "0123456789abcdef0123456789abcdef"
KEY = f"files/md5/{MD5[:2]}/{MD5[2:]}"


@pytest.fixture
def targets(tmp_path: Path) -> Targets:
    (tmp_path / "old").write_bytes(OLD)
    return Targets([Target(sha256=sha256_file(tmp_path / "old"), what="weights", md5=MD5, size=len(OLD))])


def remote_in(s3: S3, bucket: str, *, by_name: bool = True) -> BucketPlace:
    settings = StoreSettings.model_validate({"endpoint": s3.endpoint, "timeout_seconds": 30.0})
    return BucketPlace("DVC remote", open_store(f"s3://{bucket}", settings), by_name=by_name, runs=True)


def test_object_lock_is_reported_with_a_hint(s3: S3, targets: Targets, environment: dict[str, str]) -> None:
    client, bucket = s3.client(), f"locked-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    until = datetime.now(UTC) + timedelta(hours=1)
    client.put_object(Bucket=bucket, Key=KEY, Body=OLD, ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=until)
    client.put_object(Bucket=bucket, Key=KEY, Body=OLD)
    (finding,) = remove_all([remote_in(s3, bucket)], targets)
    assert (finding.found, finding.stayed) == (2, 1)
    (obstacle,) = finding.obstacles
    assert obstacle.reason == "an object is under Object Lock"
    assert "GOVERNANCE" in obstacle.detail
    assert "s3:BypassGovernanceRetention" in obstacle.hint
    assert len(versions(s3, bucket)) == 1


@pytest.mark.parametrize("status", ["never", "Suspended"])
def test_buckets_without_or_with_suspended_versioning_are_purged(
    s3: S3, bucket: str, targets: Targets, status: str, environment: dict[str, str]
) -> None:
    client = s3.client()
    if status == "never":
        client.create_bucket(Bucket=bucket + "-plain")
        bucket += "-plain"
    client.put_object(Bucket=bucket, Key=KEY, Body=OLD)
    if status == "Suspended":
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
        client.put_object(Bucket=bucket, Key=KEY, Body=OLD)
    client.put_object(Bucket=bucket, Key="files/md5/ff/" + "f" * 30, Body=OLD[:-1])
    place = remote_in(s3, bucket)
    (finding,) = remove_all([place], targets)
    assert (finding.found, finding.stayed) == ((1, 0) if status == "never" else (2, 0))
    assert take_inventory([place], targets)[0].found == 0
    assert [entry["Key"] for entry in versions(s3, bucket)] == ["files/md5/ff/" + "f" * 30]


def test_objects_without_digests_in_their_names_are_found_by_content(
    s3: S3, bucket: str, targets: Targets, environment: dict[str, str]
) -> None:
    client = s3.client()
    for name, body in (("build/model.bin", OLD), ("build/model.bin", OLD[::-1]), ("build/other.bin", OLD[:-1])):
        client.put_object(Bucket=bucket, Key=name, Body=body)
    (finding,) = remove_all([remote_in(s3, bucket, by_name=False)], targets)
    assert (finding.found, finding.stayed) == (1, 0)
    assert len(versions(s3, bucket)) == 2


def test_parts_of_unfinished_uploads_are_removed(
    s3: S3, bucket: str, targets: Targets, environment: dict[str, str]
) -> None:
    client = s3.client()
    for key in (KEY, "files/md5/ff/" + "f" * 30):
        upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=OLD)
    (finding,) = remove_all([remote_in(s3, bucket)], targets)
    assert (finding.found, finding.stayed) == (1, 0)
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [upload["Key"] for upload in left] == ["files/md5/ff/" + "f" * 30]


def test_a_purge_killed_between_batches_completes_when_run_again(
    s3: S3, bucket: str, targets: Targets, environment: dict[str, str]
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    client = s3.client()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: client.put_object(Bucket=bucket, Key=KEY, Body=OLD), range(2300)))
    client.put_object(Bucket=bucket, Key="files/md5/ff/" + "f" * 30, Body=b"another")

    def killed() -> None:
        place = remote_in(s3, bucket)
        remove, calls = BucketPlace.remove, list[int]()

        def once(self: BucketPlace, copies: Any) -> Any:
            if calls:
                os.kill(os.getpid(), signal.SIGKILL)
            calls.append(1)
            return remove(self, copies)

        setattr(BucketPlace, "remove", once)  # noqa: B010 -- in this process only
        remove_all([place], targets)

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert len(versions(s3, bucket)) == 1301
    (finding,) = remove_all([remote_in(s3, bucket)], targets)
    assert (finding.found, finding.stayed) == (1300, 0)
    assert [entry["Key"] for entry in versions(s3, bucket)] == ["files/md5/ff/" + "f" * 30]


@dataclass(frozen=True)
class InBucket(Production):
    """The same with its store in a bucket."""

    @property
    def url(self) -> str:
        return f"s3://{self.name}"


def test_a_pipeline_knows_the_copies_in_its_root_without_having_the_old_model(
    s3: S3, bucket: str, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.client().create_bucket(Bucket=f"{bucket}-store")
    root = f"platform.pipeline_root=s3://{bucket}/kfp"  # which keeps versions
    settings = f"store.endpoint={s3.endpoint}", "store.lock_mode=null", root
    production = InBucket(Production.make(tmp_path / "production").folder, f"{bucket}-store", settings)
    production.register("audio")
    run = Run(production, tmp_path / "run")
    run.fetch("audio")
    run.reference("audio")
    run.certify("audio")
    run.publish()
    for name in ("model", "reference", "deleted"):  # as Kubeflow's launcher does when their tasks have ended
        for file in run.artifact(name).folder.iterdir():
            s3.client().upload_file(str(file), bucket, f"kfp/mbd-delete/run-42/{name}/{file.name}")
    old = sha256_file(production.model / WEIGHTS)
    assert s3.client().head_object(Bucket=f"{bucket}-store", Key=object_name(old))
    assert [entry for entry in versions(s3, bucket) if holds(s3, bucket, entry, old)]
    shutil.rmtree(run.artifact("model").folder)
    (tmp_path / "pod").mkdir()
    monkeypatch.chdir(tmp_path / "pod")
    given, proof = (run.artifact("published"), run.artifact("deleted")), run.artifact("proof")
    tasks.purge(run.params, *given, proof)
    tasks.require_purged(proof)
    assert proof.metadata["claim"] == "complete"
    assert not [entry for entry in versions(s3, bucket) if holds(s3, bucket, entry, old)]
    with pytest.raises(ClientError):
        s3.client().head_object(Bucket=f"{bucket}-store", Key=object_name(old))
    kept = {entry["Key"] for entry in versions(s3, bucket)}
    assert {f"kfp/mbd-delete/run-42/{name}/{WEIGHTS}" for name in ("reference", "deleted")} <= kept
