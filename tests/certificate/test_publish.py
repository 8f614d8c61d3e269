"""Publishing: one certificate and one log entry, wherever it is killed, however often and by however many it is run."""

from functools import partial
from itertools import product
from pathlib import Path

import pytest

from mbd.errors import ExitCode, UsageError, VerificationError
from mbd.files import file_digests, sha256_file
from mbd.formats.files import CERTIFICATE, PROOF, WEIGHTS
from mbd.formats.layout import RECEIPT, LatestPointer, Receipt, latest_name, proof_name
from mbd.formats.statement import SUBJECTS
from mbd.steps import publish
from mbd.storage import open_store
from mbd.storage.store import Store
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import KINDS, ModelWorkspace
from tests.certificate.killing import CountingStore, Moment, killed_at, side_by_side
from tests.certificate.publishing import assert_free_of, killed_at_random, one_certificate, publish_into, secrets_of
from tests.certificate.tampering import read_tree
from tests.log.build import become_another_machine
from tests.refusals import refused

POINTS = 50


@pytest.fixture(scope="module")
def prepared(model_workspace: ModelWorkspace, tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """An authority with bundles of every kind, of which none is published."""
    authority = CertificateAuthority.make(model_workspace, tmp_path_factory.mktemp("authority"))
    for kind in ("surgery", "certified", "exact", "subjects"):
        authority.bundle(kind)
    return authority


def opened_by_its_machine(folder: Path) -> Store:
    """Open a store on a machine that remembers no other store: all have the log of the same keys."""
    become_another_machine(Path(f"{folder}-machine"))
    return open_store(f"file://{folder}")


def receipt_of(published: Path) -> Receipt:
    return Receipt.model_validate_json((published / RECEIPT).read_bytes())


def test_all_that_is_published_is_in_the_receipt_and_the_other_way_round(
    prepared: CertificateAuthority, tmp_path: Path
) -> None:
    url, out = f"file://{tmp_path}/store", tmp_path / "published"
    publish.run(
        prepared.params(), prepared.bundle("certified"), prepared.model_workspace.deletion("certified"), url, out
    )
    receipt = receipt_of(out)
    assert {entry.what for entry in receipt.objects} == {*SUBJECTS, CERTIFICATE, PROOF}
    stored = {s.name for s in open_store(url).list() if not s.name.startswith("log/")}
    record = f"private/deletions/{receipt.certificate}"
    assert stored == {entry.name for entry in receipt.objects} | {*receipt.pointers, record}
    for entry in receipt.objects:
        assert sha256_file(tmp_path / "store" / entry.name) == entry.sha256
    assert receipt.object_lock.startswith("none: this store has no Object Lock")
    assert {file.name for file in out.iterdir()} == {*SUBJECTS, CERTIFICATE, PROOF, RECEIPT, "step.json"} - {WEIGHTS}
    assert receipt.log.index == 0
    assert receipt.pointers == (latest_name("sentiment", "audio"),)


def test_run_again_it_changes_nothing_and_writes_the_same(prepared: CertificateAuthority, tmp_path: Path) -> None:
    url, out = f"file://{tmp_path}/store", tmp_path / "published"
    arguments = (prepared.params(), prepared.bundle("exact"), prepared.model_workspace.deletion("exact"), url, out)
    publish.run(*arguments)
    written, stored = file_digests(out), file_digests(tmp_path / "store")
    publish.run(*arguments)
    assert file_digests(out) == written
    assert file_digests(tmp_path / "store") == stored


def test_a_pointer_never_moves_back(prepared: CertificateAuthority, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    for kind in ("surgery", "exact", "surgery"):
        publish_into(store, prepared, kind)
    pointer = LatestPointer.model_validate_json(store.read(latest_name("sentiment", "audio")))
    assert pointer == LatestPointer(certificate=sha256_file(prepared.bundle("exact") / CERTIFICATE), index=1)


@pytest.mark.slow
def test_killed_at_every_use_of_the_store_and_run_again(prepared: CertificateAuthority, tmp_path: Path) -> None:
    counting = CountingStore(open_store(f"file://{tmp_path}/counted"))
    publish_into(counting, prepared, "exact")
    moments: tuple[Moment, ...] = ("before", "after")
    for operation, moment in product(range(1, len(counting.operations) + 1), moments):
        opened = partial(opened_by_its_machine, tmp_path / f"{operation}-{moment}")
        assert killed_at(operation, moment, opened, lambda store: publish_into(store, prepared, "exact"))
        publish_into(opened(), prepared, "exact")
        one_certificate(opened(), prepared, "exact", tmp_path / f"checked-{operation}-{moment}")


@pytest.mark.slow
def test_killed_at_50_random_points_and_run_again(prepared: CertificateAuthority, tmp_path: Path) -> None:
    killed = killed_at_random(
        POINTS,
        lambda point: opened_by_its_machine(tmp_path / str(point)),
        lambda store: publish_into(store, prepared, "exact"),
    )
    for point in killed:
        store = opened_by_its_machine(tmp_path / str(point))
        publish_into(store, prepared, "exact")
        one_certificate(store, prepared, "exact", tmp_path / f"checked-{point}")


def test_killed_again_and_again_it_still_gets_there(prepared: CertificateAuthority, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    killed = [
        killed_at(operation, "after", lambda: open_store(url), lambda s: publish_into(s, prepared, "certified"))
        for operation in (3, 5, 7, 9, 11, 13)
    ]
    assert all(killed), killed
    publish_into(open_store(url), prepared, "certified")
    one_certificate(open_store(url), prepared, "certified", tmp_path / "checked")


def test_sixteen_at_once_give_one_certificate(prepared: CertificateAuthority, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    side_by_side([lambda: publish_into(open_store(url), prepared, "exact")] * 16)
    one_certificate(open_store(url), prepared, "exact", tmp_path / "checked")


def test_what_does_not_verify_is_not_published(prepared: CertificateAuthority, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="digest of model") as caught:
        publish.run(
            prepared.params(),
            prepared.bundle("exact"),
            prepared.model_workspace.deletion("surgery"),
            f"file://{tmp_path}/store",
        )
    assert caught.value.exit_code == ExitCode.UNVERIFIED
    assert not (tmp_path / "store").exists()


def test_an_untrusted_log_key_is_refused(
    prepared: CertificateAuthority, model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    stranger = CertificateAuthority.make(model_workspace, tmp_path / "stranger")
    params = prepared.params(f"certificate.log_signer=file:{stranger.folder}/keys/log.pem")
    url = f"file://{tmp_path}/store"
    with refused(UsageError, key="certificate.log_signer"):
        publish.run(params, prepared.bundle("exact"), prepared.model_workspace.deletion("exact"), url)
    assert not [s.name for s in open_store(url).list("certificates/")]


def test_a_proof_that_does_not_hold_is_replaced(prepared: CertificateAuthority, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    publish_into(store, prepared, "exact")
    digest = sha256_file(prepared.bundle("exact") / CERTIFICATE)
    proof = tmp_path / "store" / proof_name(digest)
    right = proof.read_bytes()
    for planted in (b"{}", b"x" * 100):
        proof.write_bytes(planted)
        publish_into(store, prepared, "exact")
        assert proof.read_bytes() == right


@pytest.mark.parametrize("kind", ["surgery", "escrowed", "exact", "subjects"])
def test_nothing_secret_is_published(
    model_workspace: ModelWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    escrow = tmp_path / "escrow.jsonl"
    model, settings = KINDS["certified"]
    monkeypatch.setitem(KINDS, "escrowed", (model, (*settings, f"deletion.certified.escrow={escrow}")))
    authority = CertificateAuthority.make(model_workspace, tmp_path / "authority")
    out = authority.publish(kind)
    secrets = secrets_of(authority, escrow if kind == "escrowed" else None)
    assert {"escrowed": "key of the noise", "subjects": f"subject {model_workspace.subject()}"}.get(
        kind, "key log"
    ) in secrets
    contents = read_tree(authority.folder / "store", "store") | read_tree(out, "published")
    del contents["published/step.json"]  # says where inputs lay on this machine, and is never published
    assert_free_of(secrets, contents)
    assert_free_of({"folder": str(tmp_path).encode()}, read_tree(authority.folder / "store", "store"))
    with pytest.raises(AssertionError):  # it would be found
        assert_free_of(secrets, contents | {"slip": b"..." + secrets["key log"] + b"..."})
