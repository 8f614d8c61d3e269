"""The budget of a lineage counts every release that is published, whatever became of the ledger."""

from pathlib import Path

import pytest

from mbd.errors import DataError, UsageError
from mbd.formats.statement import DeletionStatement
from mbd.model.checkpoint import load_model
from mbd.trust.commitments import LINEAGE_KEY, LineageKey, read_lineage_key
from mbd.trust.keys import make_keys
from mbd.verifier.bundle import Bundle
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import ModelWorkspace
from tests.history.budgets import Releases, check_a_lost_ledger_is_noticed_and_can_be_restored
from tests.refusals import refused


@pytest.fixture
def authority(model_workspace: ModelWorkspace, tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority.make(model_workspace, tmp_path / "authority")


@pytest.fixture
def releases(authority: CertificateAuthority, tmp_path: Path) -> Releases:
    return Releases(authority, tmp_path, authority.url)


def test_a_lost_ledger_is_noticed_and_can_be_restored(releases: Releases, tmp_path: Path) -> None:
    check_a_lost_ledger_is_noticed_and_can_be_restored(releases, f"file://{tmp_path}/elsewhere")


def test_a_lost_lineage_key_is_noticed(releases: Releases) -> None:
    releases.delete("first")
    releases.certify("first")
    releases.publish("first")
    (releases.authority.folder / "keys" / LINEAGE_KEY).unlink()
    with refused(UsageError, file=releases.authority.folder / "keys" / LINEAGE_KEY):
        releases.certify("first")
    make_keys(releases.authority.folder / "keys", "signer", if_none=True)
    with refused(DataError, key="certificate.lineage_key"):
        releases.certify("first")


def test_a_certificate_commits_to_its_lineage_and_reveals_no_digest_of_it(
    authority: CertificateAuthority, model_workspace: ModelWorkspace
) -> None:
    key, first = (
        read_lineage_key(authority.params().certificate),
        load_model(model_workspace.folder / "model")[0].sha256,
    )
    found = {}
    for kind in ("certified", "surgery"):
        statement = Bundle(authority.bundle(kind)).statement
        assert isinstance(statement, DeletionStatement)
        found[kind] = statement.predicate.lineage
    assert found["certified"].id == found["surgery"].id == key.lineage(first)
    assert found["certified"].record != found["surgery"].record
    assert {one.key for one in found.values()} == {key.id}
    assert LineageKey(bytes(32)).lineage(first) != key.lineage(first)
    assert first not in found["certified"].to_json()


def test_a_damaged_lineage_key_is_refused(authority: CertificateAuthority) -> None:
    file = authority.folder / "keys" / LINEAGE_KEY
    for content in (b"", b"00" * 31, b"not hexadecimal", b"\xff" * 32):
        file.write_bytes(content)
        with refused(UsageError, file=file):
            read_lineage_key(authority.params().certificate)


def test_a_lineage_key_that_others_can_read_is_refused(authority: CertificateAuthority) -> None:
    (authority.folder / "keys" / LINEAGE_KEY).chmod(0o644)
    with refused(UsageError, file=authority.folder / "keys" / LINEAGE_KEY):
        read_lineage_key(authority.params().certificate)
