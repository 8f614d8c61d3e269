"""Certificates on a real S3 server with Object Lock: published once, kept, and verified from their URL."""

import json
import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from mbd.errors import MbdError
from mbd.files import file_digests, sha256_file
from mbd.formats.files import CERTIFICATE, WEIGHTS
from mbd.formats.layout import RECEIPT, Receipt, certificate_name
from mbd.params.operations import StoreSettings
from mbd.storage import open_store
from mbd.storage.store import LockedError, OtherContentError, Store
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import make_home
from tests.certificate.killing import side_by_side
from tests.certificate.publishing import assert_free_of, killed_at_random, one_certificate, publish_into, secrets_of
from tests.integration.command import mbd
from tests.integration.servers.faults import Fault, fault_proxy
from tests.integration.servers.rgw import S3
from tests.log.build import become_another_machine

pytestmark = pytest.mark.services

POINTS, AT_ONCE = 50, 5
PUBLISHERS = 16


@pytest.fixture(scope="module")
def s3(versioned_s3: S3) -> S3:
    """Certificates are locked, which takes a bucket with versions."""
    return versioned_s3


@pytest.fixture(scope="module", autouse=True)
def credentials(s3: S3) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        yield


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """A certificate authority with an unpublished bundle."""
    authority = CertificateAuthority.make(
        make_home(tmp_path_factory.mktemp("home")), tmp_path_factory.mktemp("authority")
    )
    for kind in ("exact", "subjects"):
        authority.bundle(kind)
    return authority


@pytest.fixture(scope="module")
def bucket(s3: S3) -> str:
    """A bucket with Object Lock."""
    name = f"certificates-{uuid.uuid4().hex[:8]}"
    s3.client().create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


@pytest.fixture
def url(bucket: str) -> str:
    """An empty prefix in the bucket."""
    return f"s3://{bucket}/{uuid.uuid4().hex}"


def opened(url: str, endpoint: str, **settings: object) -> Store:
    return open_store(url, StoreSettings.model_validate({"endpoint": endpoint, "timeout_seconds": 20.0, **settings}))


def options(authority: CertificateAuthority, s3: S3, *more: str) -> list[str]:
    settings = (*authority.settings, f"store.endpoint={s3.endpoint}", *more)
    return [part for setting in settings for part in ("--set", setting)]


def published(authority: CertificateAuthority, s3: S3, url: str, out: Path, *more: str) -> Receipt:
    """Publish by the command line; return the receipt."""
    bundle, model = authority.bundle("exact"), authority.model_workspace.deletion("exact")
    given: list[str | Path] = [bundle, "--model", model, "--store", url, "--out", out]
    done = mbd("publish", *given, *options(authority, s3, *more), environment=s3.environment)
    assert done.returncode == 0, done.stderr
    return Receipt.model_validate_json((out / RECEIPT).read_bytes())


def test_published_and_verified_from_the_url(authority: CertificateAuthority, s3: S3, url: str, tmp_path: Path) -> None:
    receipt = published(authority, s3, url, tmp_path / "published")
    written = file_digests(tmp_path / "published")
    assert receipt.object_lock.startswith("the certificate is kept under GOVERNANCE until")
    assert {o.what for o in receipt.objects if o.lock} == {CERTIFICATE, "proof.json"}
    assert all(o.version for o in receipt.objects)
    for source in (url, f"{url}/certificates/{receipt.certificate}", f"{url}/latest/sentiment/audio"):
        done = mbd(
            "verify",
            source,
            "--json",
            "--trust",
            authority.trust_file,
            *options(authority, s3),
            environment=s3.environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert {check["outcome"] for check in json.loads(done.stdout)["checks"]} == {"passed"}
    published(authority, s3, url, tmp_path / "published")
    assert file_digests(tmp_path / "published") == written


def test_the_server_refuses_to_delete_or_overwrite_the_certificate_but_not_the_weights(
    authority: CertificateAuthority, s3: S3, url: str, bucket: str, tmp_path: Path
) -> None:
    receipt = published(authority, s3, url, tmp_path / "published", "store.lock_mode=COMPLIANCE", "store.lock_days=1")
    client, store, prefix = s3.client(), opened(url, s3.endpoint), url.removeprefix(f"s3://{bucket}/")
    objects = {o.what: o for o in receipt.objects}
    certificate, weights = objects[CERTIFICATE], objects[WEIGHTS]
    assert certificate.lock
    place = {"Bucket": bucket, "Key": f"{prefix}/{certificate.name}"}
    denied = pytest.raises(ClientError, match="AccessDenied")
    with denied:
        client.delete_object(**place, VersionId=certificate.version)
    shorter = {"Mode": "COMPLIANCE", "RetainUntilDate": certificate.lock.until - timedelta(hours=2)}
    with denied:
        client.put_object_retention(**place, VersionId=certificate.version, Retention=shorter)
    with pytest.raises(OtherContentError):
        store.create(certificate.name, b"forged")
    there = store.stat(certificate.name)
    assert there
    with pytest.raises(LockedError):
        store.replace(certificate.name, b"forged", expected=there.tag)
    assert weights.lock is None
    client.delete_object(Bucket=bucket, Key=f"{prefix}/{weights.name}", VersionId=weights.version)
    assert store.stat(weights.name) is None


def test_an_overwritten_certificate_is_ignored(
    authority: CertificateAuthority, s3: S3, url: str, bucket: str, tmp_path: Path
) -> None:
    receipt = published(authority, s3, url, tmp_path / "published")
    client, prefix = s3.client(), url.removeprefix(f"s3://{bucket}/")
    place = {"Bucket": bucket, "Key": f"{prefix}/{certificate_name(receipt.certificate)}"}
    forged = client.put_object(**place, Body=b"forged")  # S3 makes a version of it, and keeps the locked one
    _verified(authority, s3, url, receipt)
    client.delete_object(**place, VersionId=forged["VersionId"])
    marker = client.delete_object(**place)  # S3 hides the locked version, and keeps it
    (certificate,) = (o for o in receipt.objects if o.what == CERTIFICATE)
    kept = client.get_object(**place, VersionId=certificate.version)["Body"].read()
    assert kept == (tmp_path / "published" / CERTIFICATE).read_bytes()
    client.delete_object(**place, VersionId=marker["VersionId"])
    published(authority, s3, url, tmp_path / "published")
    _verified(authority, s3, url, receipt)


def _verified(authority: CertificateAuthority, s3: S3, url: str, receipt: Receipt) -> None:
    source = f"{url}/certificates/{receipt.certificate}"
    done = mbd("verify", source, "--trust", authority.trust_file, *options(authority, s3), environment=s3.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"VERIFIED, not reproduced: certificate {receipt.certificate}; no model was given\n")


def test_sixteen_concurrent_publishers_create_one_certificate(
    authority: CertificateAuthority, s3: S3, url: str, bucket: str, tmp_path: Path
) -> None:
    side_by_side([lambda: publish_into(opened(url, s3.endpoint), authority, "exact")] * PUBLISHERS)
    one_certificate(opened(url, s3.endpoint), authority, "exact", tmp_path / "checked")
    name = certificate_name(sha256_file(authority.bundle("exact") / CERTIFICATE))
    assert len(list(opened(url, s3.endpoint).versions(name))) == 1


def test_a_publisher_killed_at_50_random_points_completes_when_run_again(
    authority: CertificateAuthority, s3: S3, url: str, tmp_path: Path
) -> None:
    def rounds(seed: int) -> None:
        def place(point: int) -> Store:
            become_another_machine(tmp_path / f"machine-{seed}-{point}")
            return opened(f"{url}/{seed}/{point}", s3.endpoint)

        for point in killed_at_random(
            POINTS // AT_ONCE, place, lambda store: publish_into(store, authority, "exact"), seed
        ):
            publish_into(place(point), authority, "exact")
            one_certificate(place(point), authority, "exact", tmp_path / f"checked-{seed}-{point}")

    side_by_side([partial(rounds, seed) for seed in range(AT_ONCE)])


@pytest.mark.parametrize(
    ("faults", "answered"),
    [
        ((Fault.INTERNAL_ERROR, Fault.UNAVAILABLE), False),
        ((Fault.INTERNAL_ERROR, Fault.RESET), True),
        ((Fault.RESET, Fault.TRUNCATED_BODY), False),
        ((Fault.NO_ANSWER, Fault.STALLED_BODY), False),
        ((Fault.DAMAGED_BODY, Fault.DAMAGED_REQUEST), False),
    ],
    ids=["500 and 503", "done but not answered", "connections break", "silence", "damaged on the way"],
)
def test_faults_are_retried_or_reported_and_never_leave_a_partial_certificate(
    authority: CertificateAuthority, s3: S3, url: str, tmp_path: Path, faults: tuple[Fault, Fault], answered: bool
) -> None:
    quick = {"timeout_seconds": 1.0, "retries": 3}
    with fault_proxy(s3.endpoint) as proxy:
        for turn in range(4):
            become_another_machine(tmp_path / f"machine-{turn}")
            for fault in faults:
                proxy.inject(fault, times=6, probability=0.15, done=answered)
            try:
                publish_into(opened(f"{url}/{turn}", proxy.endpoint, **quick), authority, "exact")
            except MbdError as error:
                assert error.hint, error
            assert proxy.faults() > 0
            proxy.calm()
            store = opened(f"{url}/{turn}", s3.endpoint)
            _never_half(store, authority, tmp_path / f"half-{turn}")
            publish_into(store, authority, "exact")
            one_certificate(store, authority, "exact", tmp_path / f"checked-{turn}")


def _never_half(store: Store, authority: CertificateAuthority, folder: Path) -> None:
    """Check that a pointer leads to a complete certificate."""
    if any(store.list("latest/")):
        one_certificate(store, authority, "exact", folder)


@pytest.mark.parametrize(
    "wrong",
    [
        {"AWS_SECRET_ACCESS_KEY": "not-the-secret"},
        {"AWS_ACCESS_KEY_ID": "NOBODY"},
        {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
    ],
    ids=["wrong secret", "unknown key", "no credentials"],
)
def test_wrong_credentials_are_a_clear_error(
    authority: CertificateAuthority, s3: S3, url: str, wrong: dict[str, str]
) -> None:
    model = authority.model_workspace.deletion("exact")
    wrongly = s3.environment | wrong
    publish: list[str | Path] = ["publish", authority.bundle("exact"), "--model", model, "--store", url]
    for command, code in ((publish, 1), (["verify", url, "--trust", authority.trust_file], 43)):
        done = mbd(*command, *options(authority, s3), environment=wrongly)
        printed = done.stdout + done.stderr
        assert (done.returncode, "refused the credentials" in printed) == (code, True), printed
        assert ("hint" in printed) == (code == 1)  # a verdict says what to do in its sentence
        assert "not-the-secret" not in printed
    assert not list(opened(url, s3.endpoint).versions())


@pytest.mark.parametrize("kind", ["exact", "subjects"])
def test_nothing_secret_is_in_any_version_of_any_object(
    authority: CertificateAuthority, s3: S3, url: str, bucket: str, kind: str
) -> None:
    store = opened(url, s3.endpoint)
    publish_into(store, authority, kind)
    client, prefix = s3.client(), url.removeprefix(f"s3://{bucket}/")
    contents = {}
    for stored in store.versions():
        answer = client.get_object(Bucket=bucket, Key=f"{prefix}/{stored.name}", VersionId=stored.version)
        contents[stored.name] = answer["Body"].read() + json.dumps(answer["Metadata"]).encode()
    assert len(contents) > 10
    secrets = secrets_of(authority) | {"S3 key": s3.access_key.encode(), "S3 secret": s3.secret_key.encode()}
    assert_free_of(secrets, contents)
