"""The history of a store follows from the entries of its log alone; no other object decides anything."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from mbd.certificate.compose import supersession
from mbd.certificate.history import History
from mbd.certificate.keys import revoke_key
from mbd.certificate.layout import certificate_name
from mbd.certificate.log.tiles import CHECKPOINT
from mbd.certificate.replay import cache_file, read_history
from mbd.certificate.trust import write_trust
from mbd.errors import VerificationError
from mbd.records import now
from tests.monitoring.golden_store import GoldenStore, golden


@pytest.fixture
def golden_store(tmp_path: Path) -> GoldenStore:
    return GoldenStore.open(tmp_path)


def history_of(store: GoldenStore, *, cached: bool = False) -> History:
    return read_history(store.store, store.trust, cached=cached)


def remove(store: GoldenStore, name: str) -> None:
    (store.folder / "store" / name).unlink()


def test_an_empty_store_has_an_empty_history(golden_store: GoldenStore) -> None:
    history = history_of(golden_store).require()
    assert (history.size, history.certificates, history.model("sentiment").current) == (0, {}, None)


def test_the_current_release_is_the_last_one_that_was_not_withdrawn(golden_store: GoldenStore) -> None:
    first, second = golden_store.certificate(), golden_store.certificate("certified")
    model = golden("surgery").predicate.model
    current = history_of(golden_store).model(model).current
    assert current is not None
    assert (current.digest, current.index) == (second, 1)
    golden_store.revoke(second)
    history = history_of(golden_store)
    again = history.model(model).current
    assert again is not None
    assert again.digest == first
    assert history.certificate(first).predicate.issued == again.issued


def test_a_modality_stays_revoked_until_its_certificate_is_revoked(golden_store: GoldenStore) -> None:
    model = golden("surgery").predicate.model
    first = golden_store.certificate()
    second = golden_store.certificate(supersedes=first)
    assert history_of(golden_store).effects(first) == {"superseded"}
    golden_store.revoke(second)
    history = history_of(golden_store).model(model)
    assert history.current is None
    assert history.returned(["audio", "text"]) == ("audio",)
    golden_store.revoke(first)
    assert history_of(golden_store).model(model).returned(["audio", "text"]) == ()


def test_statements_about_a_certificate_are_in_the_order_of_the_log(golden_store: GoldenStore) -> None:
    certificate, other = golden_store.certificate(), golden_store.certificate("exact")
    audited = golden_store.audit(certificate)
    replaced = golden_store.publish(supersession(certificate, other, "better", now()))
    revoked = golden_store.revoke(certificate)
    about = history_of(golden_store).about(certificate)
    assert [(one.digest, one.effect) for one in about] == [
        (audited, "passed"),
        (replaced, "superseded"),
        (revoked, "revoked"),
    ]


@pytest.mark.parametrize("damage", ["removed", "replaced"])
def test_an_entry_that_cannot_be_read_blocks_all(golden_store: GoldenStore, damage: str) -> None:
    golden_store.certificate("exact")
    revoked = golden_store.revoke(golden_store.certificate())
    remove(golden_store, certificate_name(revoked))
    if damage == "replaced":
        golden_store.store.create(certificate_name(revoked), b"{}")
    history = history_of(golden_store)
    assert [(one.digest, one.blocks) for one in history.findings] == [(revoked, True)]
    with pytest.raises(VerificationError, match="cannot be known: entry 2 of the log"):
        history.require()


def test_an_entry_of_a_revoked_key_counts_for_nothing_and_blocks_nothing(golden_store: GoldenStore) -> None:
    digest = golden_store.certificate()
    revoke_key(golden_store.trust_file, "signer", "stolen", log_size=0)
    history = history_of(golden_store).require()
    assert history.certificates == {}
    assert [(one.digest, one.blocks) for one in history.findings] == [(digest, False)]


def test_an_entry_of_an_unknown_signer_blocks_because_the_trust_file_may_be_old(
    golden_store: GoldenStore, tmp_path: Path
) -> None:
    golden_store.certificate()
    other = GoldenStore.open(tmp_path / "other")
    stranger = tuple(key for key in golden_store.trust.keys if key.purpose == "log")
    theirs = tuple(key for key in other.trust.keys if key.purpose == "certificate")
    trust = golden_store.trust.model_copy(update={"keys": (*theirs, *stranger)})
    assert [one.blocks for one in read_history(golden_store.store, trust, cached=False).findings] == [True]


def test_a_log_without_its_checkpoint_is_not_an_empty_log(golden_store: GoldenStore) -> None:
    golden_store.certificate()
    remove(golden_store, CHECKPOINT)
    with pytest.raises(VerificationError, match="has shrunk"):
        history_of(golden_store)


def test_an_old_checkpoint_may_hide_statements(golden_store: GoldenStore) -> None:
    golden_store.certificate()
    history, week = history_of(golden_store), timedelta(days=7)
    assert history.problem(now(), week) is None
    assert history.problem(now() + timedelta(days=8)) is None
    assert "older than 7 days" in (history.problem(now() + timedelta(days=8), week) or "")
    assert "in the future" in (history.problem(now() - timedelta(days=1), week) or "")


# The cache


def test_a_second_replay_reads_only_new_entries(golden_store: GoldenStore) -> None:
    first = golden_store.certificate()
    assert history_of(golden_store, cached=True).read == 1
    assert history_of(golden_store, cached=True).read == 0
    golden_store.revoke(first)
    warm = history_of(golden_store, cached=True)
    assert (warm.read, warm) == (1, history_of(golden_store))


def test_a_warm_replay_grows_over_full_tiles(golden_store: GoldenStore) -> None:
    first = golden_store.certificate()
    golden_store.publish_many(golden_store.revocations(first, 300))
    history_of(golden_store, cached=True)
    golden_store.publish_many(golden_store.revocations(first, 600, start=300))
    warm = history_of(golden_store, cached=True)
    assert (warm.read, warm.size) == (300, 601)
    assert warm == history_of(golden_store)


def test_a_log_that_was_rolled_back_is_refused(golden_store: GoldenStore, tmp_path: Path) -> None:
    first = golden_store.certificate()
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    golden_store.revoke(first)
    history_of(golden_store, cached=True)
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "backup", tmp_path / "store")
    for _ in range(2):
        with pytest.raises(VerificationError, match="has shrunk"):
            history_of(golden_store, cached=True)
    golden_store.certificate("exact")
    with pytest.raises(VerificationError, match="has been rewritten"):
        history_of(golden_store, cached=True)
    golden_store.certificate("certified")
    with pytest.raises(VerificationError, match="has been rewritten"):
        history_of(golden_store, cached=True)


def test_with_another_trust_file_everything_is_verified_again_but_the_head_is_remembered(
    golden_store: GoldenStore, tmp_path: Path
) -> None:
    golden_store.certificate()
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    golden_store.certificate("exact")
    history_of(golden_store, cached=True)
    before = golden_store.trust
    revoke_key(golden_store.trust_file, "signer", "stolen", log_size=1)
    assert (history_of(golden_store, cached=True).read, history_of(golden_store, cached=True).read) == (2, 0)
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "backup", tmp_path / "store")
    write_trust(golden_store.trust_file, before)
    with pytest.raises(VerificationError, match="has shrunk"):
        history_of(golden_store, cached=True)


def test_an_entry_that_is_there_again_counts_again(golden_store: GoldenStore) -> None:
    certificate = golden_store.certificate()
    file = golden_store.folder / "store" / certificate_name(certificate)
    content = file.read_bytes()
    golden_store.audit(certificate)
    file.unlink()
    assert history_of(golden_store, cached=True).blocking
    file.write_bytes(content)
    whole = history_of(golden_store, cached=True).require()
    assert [one.effect for one in whole.about(certificate)] == ["passed"]


def test_a_damaged_cache_is_made_again(golden_store: GoldenStore) -> None:
    golden_store.certificate()
    history_of(golden_store, cached=True)
    file = cache_file(golden_store.store, golden_store.trust)
    assert file is not None
    file.write_bytes(b"{")
    assert history_of(golden_store, cached=True).read == 1
    assert history_of(golden_store, cached=True).read == 0


def test_without_a_place_for_the_cache_there_is_none(
    golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden_store.certificate()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [history_of(golden_store, cached=True).read for _ in range(2)] == [1, 1]
