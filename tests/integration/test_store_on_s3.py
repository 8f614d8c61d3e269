"""The store on a real S3 server: the behaviour of every store, locks, races, faults."""

import hashlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from hypothesis import settings as hypothesis_settings

from mbd.errors import UsageError, VerificationError
from mbd.params.operations import StoreSettings
from mbd.randomness import stream
from mbd.storage import open_store
from mbd.storage.store import Lock, LockedError, NotThereError, OtherContentError, Store, StoredObject, StoreError
from tests.integration.servers.faults import Fault, FaultProxy, fault_proxy
from tests.integration.servers.rgw import S3
from tests.refusals import refused
from tests.storage.behaviour import StoreBehaviour, digest, names, outcomes
from tests.storage.model import machine_of

pytestmark = pytest.mark.services

QUICK = {"timeout_seconds": 1.0, "retries": 2, "part_mebibytes": 5}


@pytest.fixture(autouse=True)
def credentials(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@dataclass(frozen=True)
class BucketOnServer:
    """A bucket and where it is."""

    server: S3
    name: str

    def open(self) -> Store:
        """Return an empty store in it."""
        return opened(self.server, self.name)

    def address(self, store: Store, name: str) -> dict[str, str]:
        """Return the address of an object for a client of S3."""
        return {"Bucket": self.name, "Key": f"{store.url.removeprefix(f's3://{self.name}/')}/{name}"}


@pytest.fixture(scope="module")
def buckets(s3: S3, versioned_s3: S3) -> dict[str, BucketOnServer]:
    """A bucket of each kind."""
    made = {
        kind: BucketOnServer(server, f"store-{kind}-{uuid.uuid4().hex[:8]}")
        for kind, server in (("plain", s3), ("locking", versioned_s3))
    }
    for kind, bucket in made.items():
        bucket.server.client().create_bucket(Bucket=bucket.name, ObjectLockEnabledForBucket=kind == "locking")
    return made


def opened(s3: S3, bucket: str) -> Store:
    settings = StoreSettings.model_validate({"endpoint": s3.endpoint, **QUICK, "timeout_seconds": 20.0})
    return open_store(f"s3://{bucket}/some/{uuid.uuid4().hex}", settings)


class OnS3(StoreBehaviour):
    rounds = 10
    kind: str

    @pytest.fixture
    def store(self, buckets: dict[str, BucketOnServer]) -> Store:
        return buckets[self.kind].open()

    def test_a_dictionary_does_the_same(self, buckets: dict[str, BucketOnServer]) -> None:
        @contextmanager
        def empty() -> Iterator[Store]:
            yield buckets[self.kind].open()

        case = machine_of(empty).TestCase
        case.settings = hypothesis_settings(deadline=None, max_examples=4, stateful_step_count=20, database=None)
        case("runTest").runTest()

    def test_bulk_deletion_takes_more_than_one_request(self, store: Store) -> None:
        assert store.delete(StoredObject(f"none/{number}", 0, "") for number in range(1500)) == {}

    def test_large_files_are_uploaded_in_parts_without_leftovers(self, store: Store, tmp_path: Path) -> None:
        content = stream(0, "large").bytes(11 << 20)
        (tmp_path / "large").write_bytes(content)
        made = store.create("large", tmp_path / "large")
        assert made.size == len(content)
        assert store.create("large", tmp_path / "large").tag == made.tag
        assert names(store) == ["large"]
        store.fetch("large", tmp_path / "back", sha256=digest(content))
        assert (tmp_path / "back").read_bytes() == content
        assert list(store.unfinished()) == []
        (tmp_path / "large").write_bytes(content[::-1])
        with pytest.raises(OtherContentError):
            store.create("large", tmp_path / "large")
        assert store.delete(store.versions()) == {}
        store.create("large", tmp_path / "large")
        assert store.read("large", sha256=digest(content[::-1])) == content[::-1]

    def test_one_of_concurrent_creators_of_large_files_wins(self, store: Store, tmp_path: Path) -> None:
        files = [tmp_path / str(number) for number in range(4)]
        for number, file in enumerate(files):
            file.write_bytes(bytes([number]) * (6 << 20))
        for turn in range(3):
            name = f"large/{turn}"
            ends = outcomes([partial(store.create, name, file) for file in files])
            winners = [file for file, end in zip(files, ends, strict=True) if isinstance(end, StoredObject)]
            assert len(winners) == 1, ends
            assert store.read(name) == winners[0].read_bytes()
        assert list(store.unfinished()) == []

    def test_unfinished_uploads_can_be_listed_and_removed(
        self, store: Store, buckets: dict[str, BucketOnServer]
    ) -> None:
        client, address = buckets[self.kind].server.client(), buckets[self.kind].address(store, "half")
        begun = client.create_multipart_upload(**address)
        client.upload_part(**address, UploadId=begun["UploadId"], PartNumber=1, Body=b"half")
        (left,) = store.unfinished()
        assert left.name == "half"
        assert left.modified is not None
        assert names(store) == []
        store.abort(left)
        store.abort(left)
        assert list(store.unfinished()) == []


class TestPlainBucket(OnS3):
    kind = "plain"

    def test_it_has_no_locks(self, store: Store) -> None:
        assert store.locks is False
        with pytest.raises(StoreError, match="has no Object Lock"):
            store.create("a", b"", lock=Lock("COMPLIANCE", datetime.now(UTC)))


class TestLockingBucket(OnS3):
    kind = "locking"

    # The gateway takes a name that a delete marker hides for one that is taken (Amazon's S3 does not).
    test_a_dictionary_does_the_same = None  # type: ignore[assignment]
    test_a_deleted_object_is_gone_and_its_name_is_free = None  # type: ignore[assignment]

    def test_the_name_of_an_object_without_versions_is_free(self, store: Store) -> None:
        store.create("a", b"one")
        assert store.delete(store.versions("a")) == {}
        with pytest.raises(NotThereError):
            store.read("a", sha256=digest(b"one"))
        store.create("a", b"two")
        assert store.read("a") == b"two"

    def test_a_locked_object_cannot_be_deleted_overwritten_or_unlocked(
        self, store: Store, buckets: dict[str, BucketOnServer]
    ) -> None:
        assert store.locks is True
        lock = Lock("COMPLIANCE", datetime.now(UTC).replace(microsecond=0) + timedelta(days=1))
        store.create("weights", b"w")
        made = store.create("certificate", b"c", lock=lock)
        assert made.lock == lock
        found = store.stat("certificate")
        assert found is not None
        assert found.lock == lock
        assert (store.stat("weights") or made).lock is None

        stayed = store.delete(store.versions())
        assert [each.name for each in stayed] == ["certificate"]
        assert "under Object Lock (COMPLIANCE) until" in next(iter(stayed.values()))
        assert [each.name for each in store.versions()] == ["certificate"], "the weights are not locked"
        with pytest.raises(LockedError, match="under Object Lock"):
            store.replace("certificate", b"d", expected=made.tag)
        with pytest.raises(OtherContentError):
            store.create("certificate", b"d")

        client, place = buckets[self.kind].server.client(), buckets[self.kind].address(store, "certificate")
        denied = pytest.raises(ClientError, match="AccessDenied")
        with denied:
            client.delete_object(**place, VersionId=made.version)
        shorter = {"Mode": "COMPLIANCE", "RetainUntilDate": lock.until - timedelta(hours=5)}
        with denied:
            client.put_object_retention(**place, VersionId=made.version, Retention=shorter)
        client.put_object(**place, Body=b"forged")
        assert store.read("certificate", sha256=digest(b"c")) == b"c", "the locked version is still there"

    def test_an_existing_object_gets_a_lock_and_an_existing_lock_stays(self, store: Store) -> None:
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
        store.create("c", b"c")
        assert store.create("c", b"c", lock=Lock("GOVERNANCE", until)).lock == Lock("GOVERNANCE", until)
        later = Lock("GOVERNANCE", until + timedelta(days=1))
        again = store.create("c", b"c", lock=later)
        assert again.lock is not None
        assert again.lock.until == until

    def test_concurrent_creators_leave_one_locked_version(self, store: Store) -> None:
        now = datetime.now(UTC).replace(microsecond=0)
        locks = [Lock("GOVERNANCE", now + timedelta(minutes=5, seconds=k)) for k in range(16)]
        ends = outcomes([partial(store.create, "c", b"c", lock=lock) for lock in locks])
        assert all(isinstance(end, StoredObject) and end.lock for end in ends), ends
        assert len(list(store.versions("c"))) == 1

    def test_a_bucket_that_locks_everything_is_refused(self, versioned_s3: S3) -> None:
        client, bucket = versioned_s3.client(), f"all-locked-{uuid.uuid4().hex[:8]}"
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
        client.put_object_lock_configuration(
            Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
        )
        with pytest.raises(StoreError, match="locks every object by default"):
            opened(versioned_s3, bucket).create("a", b"")

    def test_a_pointer_survives_the_removal_of_its_old_versions(self, store: Store) -> None:
        tag = None
        for number in range(25):
            tag = store.replace("p", str(number).encode(), expected=tag).tag
        past = [each for each in store.versions("p") if each.version != tag]
        assert len(past) == 24
        store.delete(past)
        assert store.read_tagged("p") == (b"24", tag)
        store.replace("p", b"25", expected=tag)
        assert store.read("p") == b"25"


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(s3: S3) -> None:
    """Ceph's gateway compares in buckets without versions alone."""
    client, bucket = s3.client(), f"versioned-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    store = opened(s3, bucket)
    ignoring = refused(StoreError, match="ignores the conditions", hint="a bucket without versions")
    with ignoring:
        store.create("a", b"")
    with ignoring:
        store.replace("a", b"", expected=None)
    assert list(store.versions()) == []


def test_a_bucket_with_suspended_versioning_can_be_read_but_not_written(s3: S3) -> None:
    client, bucket = s3.client(), f"suspended-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=bucket)
    client.put_object(Bucket=bucket, Key="a", Body=b"one")
    for status in ("Enabled", "Suspended"):
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
    store = open_store(f"s3://{bucket}", StoreSettings(endpoint=s3.endpoint))
    assert store.read("a") == b"one"
    with pytest.raises(StoreError, match="suspended versioning"):
        store.create("b", b"")


@pytest.mark.parametrize(
    ("variables", "bucket", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, None, "refused the credentials.*SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, None, "refused the credentials.*InvalidAccessKeyId"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, None, "refused the credentials, or there are none"),
        ({"AWS_PROFILE": "unknown"}, None, "refused the credentials, or there are none"),
        ({}, "no-such-bucket", "the bucket does not exist"),
    ],
)
def test_wrong_settings_are_clear_errors(
    s3: S3,
    buckets: dict[str, BucketOnServer],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str],
    bucket: str | None,
    words: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    store = opened(s3, bucket or buckets["plain"].name)
    for use in (
        lambda: store.create("a", b""),
        lambda: store.replace("a", b"", expected=None),
        lambda: store.read("a"),
        lambda: store.read("a", sha256=digest(b"")),
        lambda: store.fetch("a", tmp_path / "a", sha256=digest(b"")),
        lambda: store.stat("a"),
        lambda: list(store.list()),
        lambda: list(store.versions()),
        lambda: list(store.unfinished()),
        lambda: store.delete([StoredObject("a", 0, "")]),
        lambda: store.locks,
    ):
        with pytest.raises(StoreError, match=words) as caught:
            use()
        assert caught.value.hint
        assert s3.secret_key not in str(caught.value)


def test_a_missing_permission_is_named(s3: S3, buckets: dict[str, BucketOnServer]) -> None:
    other = f"other-{uuid.uuid4().hex[:8]}"
    s3.client().create_bucket(Bucket=other)
    policy = f"""{{"Version": "2012-10-17", "Statement": [{{"Effect": "Deny", "Principal": "*",
        "Action": ["s3:PutObject"], "Resource": "arn:aws:s3:::{other}/*"}}]}}"""
    s3.client().put_bucket_policy(Bucket=other, Policy=policy)
    with pytest.raises(StoreError, match=r"denies access.*AccessDenied") as caught:
        opened(s3, other).create("a", b"")
    assert "permission" in str(caught.value.hint)


def test_an_unreachable_server_and_an_invalid_endpoint_are_clear_errors(
    s3: S3, buckets: dict[str, BucketOnServer]
) -> None:
    settings = StoreSettings(endpoint="http://127.0.0.1:9", timeout_seconds=1, retries=0)
    with pytest.raises(StoreError, match="cannot be reached"):
        open_store(f"s3://{buckets['plain'].name}", settings).stat("a")
    with refused(UsageError, key="store.endpoint"):
        open_store(f"s3://{buckets['plain'].name}", StoreSettings(endpoint="nonsense")).stat("a")


def test_a_wrong_clock_is_named(s3: S3, buckets: dict[str, BucketOnServer]) -> None:
    """In a separate process whose clock is an hour late."""
    code = f"""
import datetime, botocore.auth, botocore.compat
late = lambda *a, **k: datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - datetime.timedelta(hours=1)
botocore.auth.get_current_datetime = late
from mbd.params.operations import StoreSettings
from mbd.storage import open_store
try:
    open_store("s3://{buckets["plain"].name}", StoreSettings(endpoint="{s3.endpoint}")).create("a", b"")
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "clock of this machine differs too much" in done.stdout, done.stdout + done.stderr


@pytest.fixture(scope="module", params=["plain", "locking"])
def bucket(buckets: dict[str, BucketOnServer], request: pytest.FixtureRequest) -> BucketOnServer:
    return buckets[request.param]


@pytest.fixture(scope="module")
def proxy(bucket: BucketOnServer) -> Iterator[FaultProxy]:
    with fault_proxy(bucket.server.endpoint) as running:
        yield running


@pytest.fixture
def hurt(proxy: FaultProxy, bucket: BucketOnServer) -> Iterator[Store]:
    """A store behind the proxy that has already read the settings of its bucket."""
    proxy.calm()
    settings = StoreSettings.model_validate({"endpoint": proxy.endpoint, **QUICK})
    store = open_store(f"s3://{bucket.name}/{uuid.uuid4().hex}", settings)
    store.create("first", b"")
    yield store
    proxy.calm()


LOST = [Fault.INTERNAL_ERROR, Fault.UNAVAILABLE, Fault.NO_ANSWER, Fault.RESET]


@pytest.mark.parametrize("done", [False, True], ids=["lost request", "lost answer"])
@pytest.mark.parametrize("fault", LOST)
def test_writes_survive_a_fault_and_happen_once(hurt: Store, proxy: FaultProxy, fault: Fault, done: bool) -> None:
    proxy.inject(fault, request="^PUT", done=done)
    hurt.create("a", b"one")
    tag = hurt.replace("p", b"1", expected=None).tag
    proxy.inject(fault, request="^PUT", done=done)
    hurt.replace("p", b"2", expected=tag)
    assert proxy.faults() == 2
    assert (hurt.read("a"), hurt.read("p")) == (b"one", b"2")
    assert len(list(hurt.versions("a"))) == 1, "no second version stays"


@pytest.mark.parametrize("fault", LOST)
def test_a_server_that_keeps_failing_gives_a_clear_error_and_no_object(
    hurt: Store, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.inject(fault, request="^PUT", times=None)
    words = "cannot be reached, or does not answer" if fault in {Fault.NO_ANSWER, Fault.RESET} else "the S3 store fails"
    with pytest.raises(StoreError, match=words) as caught:
        hurt.create("a", b"one")
    assert caught.value.hint
    proxy.calm()
    assert names(hurt) == ["first"]


@pytest.mark.parametrize("fault", [*LOST, Fault.STALLED_BODY, Fault.TRUNCATED_BODY])
def test_reads_survive_a_fault(hurt: Store, proxy: FaultProxy, fault: Fault, tmp_path: Path) -> None:
    content = stream(0, "content").bytes(3 << 20)
    hurt.create("a", content)
    for request in ("^GET .*/a", "^GET .*/a"):
        proxy.inject(fault, request=request)
    assert hurt.read("a", sha256=digest(content)) == content
    proxy.inject(fault, request="^GET .*/a", times=2)
    hurt.fetch("a", tmp_path / "a", sha256=digest(content))
    assert (tmp_path / "a").read_bytes() == content
    assert proxy.faults() == 4


@pytest.mark.parametrize("fault", [Fault.STALLED_BODY, Fault.TRUNCATED_BODY])
def test_a_download_that_never_completes_leaves_no_file(
    hurt: Store, proxy: FaultProxy, fault: Fault, tmp_path: Path
) -> None:
    hurt.create("a", b"0123456789")
    # Each attempt gets half of the rest, so there is progress, but the last byte never arrives.
    proxy.inject(fault, request="^GET .*/a", times=None)
    with pytest.raises(StoreError, match="cannot be reached, or does not answer"):
        hurt.fetch("a", tmp_path / "a", sha256=digest(b"0123456789"))
    with pytest.raises(StoreError):
        hurt.read("a")
    assert list(tmp_path.iterdir()) == []


def test_damage_in_transit_is_detected(hurt: Store, proxy: FaultProxy, tmp_path: Path) -> None:
    content = stream(0, "content").bytes(100_000)
    proxy.inject(Fault.DAMAGED_REQUEST, request="^PUT .*/a")
    with pytest.raises(StoreError):
        hurt.create("a", content)
    assert names(hurt) == ["first"]
    hurt.create("a", content)
    proxy.inject(Fault.DAMAGED_BODY, request="^GET .*/a", times=None)
    with pytest.raises(VerificationError):
        hurt.read("a", sha256=digest(content))
    with pytest.raises(VerificationError):
        hurt.fetch("a", tmp_path / "a", sha256=digest(content))
    assert list(tmp_path.iterdir()) == []


def test_large_uploads_survive_faults_or_leave_nothing(hurt: Store, proxy: FaultProxy, tmp_path: Path) -> None:
    content = stream(0, "large").bytes(11 << 20)
    (tmp_path / "large").write_bytes(content)
    for fault, done in ((Fault.RESET, False), (Fault.UNAVAILABLE, True), (Fault.INTERNAL_ERROR, False)):
        proxy.inject(fault, request="^PUT .*partNumber", done=done)
    proxy.inject(Fault.RESET, request="^POST .*uploadId", done=True)
    hurt.create("survives", tmp_path / "large")
    assert proxy.faults() == 4
    assert hurt.read("survives", sha256=digest(content)) == content

    proxy.inject(Fault.INTERNAL_ERROR, request="^PUT .*partNumber=2", times=None)
    with pytest.raises(StoreError, match="the S3 store fails"):
        hurt.create("fails", tmp_path / "large")
    proxy.calm()
    assert names(hurt) == ["first", "survives"]
    assert list(hurt.unfinished()) == []
    hurt.create("fails", tmp_path / "large")


def test_under_constant_faults_no_write_is_lost_repeated_or_partial(hurt: Store, proxy: FaultProxy) -> None:
    """One request in six fails, with every kind of fault, before or after the server has processed it."""
    for fault in (Fault.INTERNAL_ERROR, Fault.UNAVAILABLE, Fault.RESET, Fault.TRUNCATED_BODY):
        for done in (False, True):
            proxy.inject(fault, times=None, probability=0.02, done=done)
    tag, kept = None, {}
    for number in range(25):
        content = f"{number}".encode() * 1000
        try:
            hurt.create(f"o/{number:02}", content)
            tag = hurt.replace("p", content, expected=tag).tag
            assert hurt.read(f"o/{number:02}", sha256=hashlib.sha256(content).hexdigest()) == content
        except StoreError:  # clear, and rare
            rules, proxy.rules = proxy.rules, []
            pointer = hurt.stat("p")
            tag, proxy.rules = pointer.tag if pointer else None, rules
            continue
        kept[f"o/{number:02}"] = content
    assert proxy.faults() > 10
    proxy.calm()
    assert len(kept) >= 20
    assert {name: hurt.read(name) for name in kept} == kept
    assert [each.name for each in hurt.versions("o/") if each.name in kept] == list(kept), "one version of each"


def test_a_writer_killed_while_uploading_leaves_no_object_and_can_start_again(
    bucket: BucketOnServer, proxy: FaultProxy, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(stream(0, "large").bytes(11 << 20))
    code = f"""
from pathlib import Path
from mbd.params.operations import StoreSettings
from mbd.storage import open_store
store = open_store("s3://{bucket.name}/killed", StoreSettings(endpoint="{proxy.endpoint}", part_mebibytes=5))
store.create("large", Path("{tmp_path / "large"}"))
"""
    proxy.calm()
    proxy.inject(Fault.NO_ANSWER, request="^PUT .*partNumber=3")
    child = subprocess.Popen([sys.executable, "-c", code])
    while not proxy.faults():
        assert child.poll() is None
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    proxy.calm()
    store = open_store(f"s3://{bucket.name}/killed", StoreSettings(endpoint=bucket.server.endpoint, part_mebibytes=5))
    assert names(store) == []
    (left,) = store.unfinished()
    store.create("large", tmp_path / "large")
    store.abort(left)
    assert names(store) == ["large"]
    assert list(store.unfinished()) == []
