"""The history of a store follows from the entries of its log alone; no other object decides anything."""

import shutil
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from mbd.certificate.compose import compose_supersession
from mbd.certificate.publish import Publisher
from mbd.certificate.register import Registrar
from mbd.errors import UsageError, VerificationError
from mbd.formats.layout import certificate_name
from mbd.formats.registration import Reinstatement
from mbd.formats.statement import ReinstatementStatement, subjects_of
from mbd.history.entries import read_entry
from mbd.history.history import History
from mbd.history.replay import cache_file, read_history
from mbd.history.state import status_in
from mbd.log.check import adopt_log
from mbd.log.reader import LogDamagedError
from mbd.log.tiles import CHECKPOINT
from mbd.params import load_params
from mbd.params.operations import StoreSettings
from mbd.records import now
from mbd.storage.store import Store
from mbd.trust.keys import load_signer, revoke_key
from mbd.trust.trust_file import write_trust
from tests.certificate.authority import key_settings
from tests.certificate.killing import CountingStore, killed_at
from tests.log.build import another_machine, refused_as_shrunk, refused_as_unknown
from tests.monitoring.golden_store import GoldenStore, golden
from tests.refusals import refused


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


def test_a_modality_stays_revoked_though_its_certificates_are_withdrawn(golden_store: GoldenStore) -> None:
    model = golden("surgery").predicate.model
    first = golden_store.certificate()
    second = golden_store.certificate(supersedes=first)
    assert history_of(golden_store).effects(first) == {"superseded"}
    golden_store.revoke(second)
    of_model = history_of(golden_store).model(model)
    assert of_model.current is None
    assert of_model.returned(["audio", "text"]) == ("audio",)
    golden_store.revoke(first)
    history = history_of(golden_store)
    assert history.model(model).returned(["audio", "text"]) == ("audio",)
    assert not history.shows(first, model, ["audio"])


@pytest.mark.parametrize("kind", ["surgery", "subjects"])
def test_nothing_is_current_that_has_seen_what_a_withdrawn_certificate_revoked(
    golden_store: GoldenStore, kind: str
) -> None:
    name = golden(kind).predicate.model
    registered = golden_store.registration(model=name, sees=("text", "audio", "visual"))
    golden_store.revoke(golden_store.certificate(kind))
    model = history_of(golden_store).model(name)
    assert model.current is None
    assert model.revoked or model.persons
    assert model.start is not None
    assert model.start.digest == registered  # what the deletion is made from again


@pytest.mark.parametrize(("disowned", "kind"), [(0, "surgery"), (1, "surgery"), (0, "exact")])
def test_a_deletion_that_was_inherited_is_in_doubt_with_the_certificate_of_it(
    golden_store: GoldenStore, disowned: int, kind: str
) -> None:
    """The attacks on the later release were after what it has deleted itself, and those that refute it after all."""
    predicate = golden("surgery").predicate
    registered = golden_store.registration(sees=("text", "audio", "visual"))
    later = predicate.deleted.model_copy(update={"modalities": ("visual",), "revoked": ("audio", "visual")})
    inputs = {m: size for m, size in predicate.structure.inputs.items() if m != "visual"}
    structure = predicate.structure.model_copy(update={"inputs": inputs})
    certificates = [
        golden_store.certificate(),
        golden_store.certificate(kind, model=predicate.model, deleted=later, structure=structure),
    ]
    golden_store.audit(certificates[disowned], decision="refused", reasons=("audio leaks",))
    history = history_of(golden_store)
    model = history.model(predicate.model)
    proven = kind == "exact"
    assert model.current == (history.certificates[certificates[1]] if proven else None)
    assert model.start is not None
    assert (model.start.digest == registered) is not proven  # from which both are deleted again, and attacked
    assert history.shows(certificates[1], predicate.model, ["visual"]) is proven
    assert model.revoked == {"audio", "visual"}
    states = [status_in(history, history.certificates[digest], now()) for digest in certificates]
    in_doubt = states[1 - disowned]
    assert in_doubt.decision == ("not verified" if not proven else "verified")
    if not proven:
        assert certificates[disowned][:16] in in_doubt.reason
        again = golden_store.certificate(
            deleted=later.model_copy(update={"modalities": ("audio", "visual")}), structure=structure
        )
        current = history_of(golden_store).model(predicate.model).current
        assert current is not None
        assert current.digest == again


@pytest.mark.parametrize(("again", "once_more"), [(True, True), (True, False), (False, False)])
def test_a_later_release_is_in_doubt_unless_what_it_inherits_was_deleted_again(
    golden_store: GoldenStore, again: bool, once_more: bool
) -> None:
    """Also if it was made of the files of a release that was refuted before; not if that is withdrawn once more."""
    predicate = golden("surgery").predicate
    golden_store.registration(sees=("text", "audio", "visual"))
    first = golden_store.certificate()
    golden_store.audit(first, decision="refused", reasons=("audio leaks",))
    if again:
        golden_store.certificate(days=80)  # of audio, from the registered model
    later = predicate.deleted.model_copy(update={"modalities": ("visual",), "revoked": ("audio", "visual")})
    inputs = {m: size for m, size in predicate.structure.inputs.items() if m != "visual"}
    structure = predicate.structure.model_copy(update={"inputs": inputs})
    newest = golden_store.certificate(deleted=later, structure=structure)
    if once_more:
        golden_store.revoke(first)
    history = history_of(golden_store)
    assert (history.model(predicate.model).current == history.certificates[newest]) is again
    assert history.shows(newest, predicate.model, ["audio"]) is again


def test_persons_are_deleted_again_by_an_exact_deletion_alone(golden_store: GoldenStore) -> None:
    """Weights that have seen their recordings are not released again because attacks found nothing in them."""
    predicate = golden("subjects").predicate
    golden_store.certificate("subjects")
    golden_store.certificate("subjects", days=80)
    with pytest.raises(LogDamagedError, match="recordings of a person"):
        golden_store.certificate("surgery", model=predicate.model, deleted=predicate.deleted)


def test_statements_about_a_certificate_are_in_the_order_of_the_log(golden_store: GoldenStore) -> None:
    certificate, other = golden_store.certificate(), golden_store.certificate("exact")
    audited = golden_store.audit(certificate)
    replaced = golden_store.publish(compose_supersession(certificate, other, "better", now()))
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
    with refused_as_shrunk():
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


@pytest.mark.slow
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
        with refused_as_shrunk():
            history_of(golden_store, cached=True)
    with another_machine(tmp_path / "elsewhere"):  # a publisher that has not seen the newer log
        with refused_as_unknown():
            golden_store.certificate("exact")
        adopt_log(golden_store.store, golden_store.trust)
    for kind in ("exact", "certified"):
        with another_machine(tmp_path / "elsewhere"):
            golden_store.certificate(kind)
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
    with refused_as_shrunk():
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
    file = cache_file(golden_store.url, golden_store.trust)
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


# Reinstatement


def registrar_of(store: GoldenStore) -> Registrar:
    settings = load_params(None, key_settings(store.folder)).certificate
    log = load_signer(f"file:{store.folder}/keys/log.pem")
    return Registrar(Publisher(store.store, StoreSettings(), log, store.trust), store.private, settings)


def test_a_reinstated_modality_may_be_taken_again_until_it_is_deleted_again(golden_store: GoldenStore) -> None:
    model, registrar = golden("surgery").predicate.model, registrar_of(golden_store)
    first = golden_store.certificate()
    digest, overruled = registrar.reinstate(model, ["audio"], "consent given again")
    history = history_of(golden_store)
    assert (overruled, history.model(model).revoked) == ((first,), frozenset())
    (about,) = history.about(first)
    assert (about.digest, about.kind, about.effect, about.modalities) == (
        digest,
        "reinstatement",
        "overruled",
        ("audio",),
    )
    status = read_entry(golden_store.store, first, golden_store.trust, now()).status
    assert status.state == "valid"
    assert "; audio reinstated " in status.reason
    golden_store.certificate("certified")
    assert history_of(golden_store).model(model).revoked == {"audio"}


def test_a_certificate_that_the_reinstatement_does_not_list_keeps_its_effect(golden_store: GoldenStore) -> None:
    model = golden("surgery").predicate.model
    first, second = golden_store.certificate(), golden_store.certificate("certified")
    statement = ReinstatementStatement(
        subject=subjects_of({first: first}),
        predicate=Reinstatement(model=model, modalities=("audio",), reason="consent", issued=now()),
    )
    golden_store.publish(statement)
    assert history_of(golden_store).model(model).revoked == {"audio"}
    assert registrar_of(golden_store).reinstate(model, ["audio"], "consent")[1] == tuple(sorted((first, second)))
    assert history_of(golden_store).model(model).revoked == frozenset()


def test_a_later_certificate_of_the_lineage_does_not_revoke_again_what_was_reinstated(
    golden_store: GoldenStore,
) -> None:
    model = golden("surgery").predicate.model
    golden_store.certificate()
    registrar_of(golden_store).reinstate(model, ["audio"], "consent")
    deleted = golden("surgery").predicate.deleted
    both = deleted.model_copy(update={"modalities": ("visual",), "revoked": ("audio", "visual")})
    golden_store.certificate(deleted=both)
    assert history_of(golden_store).model(model).revoked == {"visual"}


def test_what_is_not_revoked_cannot_be_reinstated(golden_store: GoldenStore) -> None:
    golden_store.certificate()
    with refused(UsageError, key="--modality", value="text"):
        registrar_of(golden_store).reinstate(golden("surgery").predicate.model, ["text"], "consent")
    assert history_of(golden_store).size == 1


def test_the_cache_keeps_registrations_and_reinstatements(golden_store: GoldenStore) -> None:
    model = golden("surgery").predicate.model
    golden_store.certificate()
    registrar_of(golden_store).reinstate(model, ["audio"], "consent")
    history_of(golden_store, cached=True)
    cached = history_of(golden_store, cached=True)
    assert (cached.read, cached.model(model).revoked) == (0, frozenset())
    assert cached == history_of(golden_store)


@pytest.mark.slow
def test_killed_at_every_use_of_the_store_a_reinstatement_is_logged_once(tmp_path: Path) -> None:
    model = golden("surgery").predicate.model

    def prepared(name: str) -> GoldenStore:
        store = GoldenStore.open(tmp_path / name)
        store.certificate()
        return store

    def reinstate(store: GoldenStore, opened: Store) -> None:
        registrar = registrar_of(store)
        killing = replace(registrar, publisher=replace(registrar.publisher, store=opened))
        killing.reinstate(model, ["audio"], "consent")

    counted = prepared("counted")
    counting = CountingStore(counted.store)
    reinstate(counted, cast("Store", counting))
    for operation in range(1, len(counting.operations) + 1):
        store = prepared(str(operation))
        assert killed_at(operation, "after", partial(getattr, store, "store"), partial(reinstate, store))
        reinstate(store, store.store)
        history = history_of(store)
        assert (history.size, history.model(model).revoked) == (2, frozenset())
