"""What is served follows the log: releases, revocations, and a log that cannot be read."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from mbd.errors import VerificationError
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import certificate_name, object_name
from mbd.model.predictor import load
from mbd.params import load_params
from mbd.records import now
from mbd.serving.inference.releases import Poller, ReleaseLog
from mbd.serving.inference.routes import InferenceService
from mbd.serving.inference.served import Serving, Unavailable
from mbd.storage.store import StoredObject, StoreError
from mbd.trust.trust_file import KeyRevocation, write_trust
from tests.monitoring.golden_store import GOLDEN, GoldenStore, golden
from tests.serving.inference.server import following, rows_of

NAME = golden("exact").predicate.model
UNVERIFIED = "the log in the store does not verify, or not all of it can be read"
SETTINGS = (f"serving.inference.models=[{NAME}]", "serving.inference.poll_seconds=0.1")


@pytest.fixture
def store(tmp_path: Path) -> GoldenStore:
    store = GoldenStore.open(tmp_path / "golden")
    store.files("surgery", "exact", "certified", "subjects")
    return store


def service_on(store: GoldenStore, *settings: str) -> InferenceService:
    return InferenceService(load_params(None, [*SETTINGS, *settings]), store.store, store.trust_file)


@contextmanager
def poller_on(service: InferenceService, store: GoldenStore, folder: Path) -> Iterator[Poller]:
    """A poller that looks when a test says so."""
    log = ReleaseLog(store.store, store.trust_file, load_params(None, []).certificate.checkpoint_age)
    folder.mkdir()
    yield Poller(log, service.models, folder, 1, service.samples)


def reason(service: InferenceService) -> str:
    state = service.models[NAME].state
    assert isinstance(state, Unavailable), state
    return state.reason


def serving(service: InferenceService) -> Serving:
    state = service.models[NAME].state
    assert isinstance(state, Serving), state
    return state


def value(service: InferenceService, name: str) -> float:
    return service.samples.registry.get_sample_value(name, {"model": NAME}) or 0


def test_the_current_release_is_fetched_admitted_and_served(store: GoldenStore, tmp_path: Path) -> None:
    digest = store.certificate("exact")
    service, model = service_on(store), load(GOLDEN / "exact" / "model")
    with following(service, NAME) as client:
        rows = rows_of(model, 3)
        reply = client.infer(NAME, rows)
        assert reply.document["model_version"] == digest
        np.testing.assert_array_equal(reply.outputs["prediction"], model.predict(rows))
        refused = client.infer(NAME, {"audio": np.zeros((1, 6), np.float32)})
        assert (refused.status, refused.document["certificate"]) == (422, digest)
        folder = serving(service).folder
        assert folder is not None and folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        assert client.get("/v2/health/live").status == 200
    assert not folder.exists()
    assert value(service, "mbd_inference_ready") == 1
    assert value(service, "mbd_inference_release_timestamp_seconds") > 0


def test_a_revoked_certificate_is_out_within_one_poll(store: GoldenStore, tmp_path: Path) -> None:
    digest = store.certificate("exact")
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        folder = serving(service).folder
        store.revoke(digest)
        poller.poll()
        assert "revoked: for the test" in reason(service)
        assert folder is not None and not folder.exists()
        assert value(service, "mbd_inference_ready") == 0


def test_a_model_that_was_taken_out_answers_503_with_the_reason(store: GoldenStore) -> None:
    digest = store.certificate("exact")
    service = service_on(store)
    with following(service, NAME) as client:
        store.revoke(digest)
        while (reply := client.infer(NAME, {"text": np.zeros((1, 12), np.float32)})).status == 200:
            pass
        assert (reply.status, reply.document["reason"]) == (503, "unavailable")
        assert "revoked: for the test" in reply.document["error"]
        assert client.get(f"/v2/models/{NAME}/ready").status == 503
        assert client.get("/v2/health/ready").status == 503


def test_a_modality_is_refused_as_soon_as_it_is_revoked(store: GoldenStore, tmp_path: Path) -> None:
    before = store.certificate("subjects", model=NAME)
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        assert serving(service).release.statement == before
        assert serving(service).check({"audio": np.zeros((1, 6), np.float32)}) == 1
        after = store.certificate("exact")
        poller.poll()
        assert serving(service).release.statement == after
        assert serving(service).revoked == {"audio": after}
        assert value(service, "mbd_inference_swaps_total") == 1


def test_a_release_that_cannot_be_fetched_leaves_the_old_one_as_long_as_the_guard_admits_it(
    store: GoldenStore, tmp_path: Path
) -> None:
    old = store.certificate("surgery", model=NAME)
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        weights = object_name(golden("exact").digests[WEIGHTS])
        content = store.store.read(weights)
        store.store.delete([StoredObject(weights, 0, "")])
        new = store.certificate("exact", model=NAME)
        poller.poll()
        assert serving(service).release.statement == old
        assert value(service, "mbd_inference_failed_loads_total") == 1
        assert len(list((tmp_path / "models").iterdir())) == 1
        store.store.create(weights, content)
        poller.poll()
        assert serving(service).release.statement == new
        assert len(list((tmp_path / "models").iterdir())) == 1


def test_an_old_release_that_takes_what_is_revoked_now_does_not_stay(store: GoldenStore, tmp_path: Path) -> None:
    store.certificate("subjects", model=NAME)
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        weights = object_name(golden("exact").digests[WEIGHTS])
        store.store.delete([StoredObject(weights, 0, "")])
        store.certificate("exact", model=NAME)
        poller.poll()
        assert "its current release is not loaded" in reason(service)


def test_weights_that_were_exchanged_in_the_store_are_not_loaded(store: GoldenStore, tmp_path: Path) -> None:
    store.certificate("exact")
    file = store.folder / "store" / object_name(golden("exact").digests[WEIGHTS])
    file.chmod(0o600)
    file.write_bytes((GOLDEN / "subjects" / "model" / WEIGHTS).read_bytes())
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        assert "not loaded" in reason(service) and str(tmp_path) not in reason(service)
        assert not list((tmp_path / "models").iterdir())


def test_only_what_the_guard_admits_under_this_name_is_loaded(store: GoldenStore, tmp_path: Path) -> None:
    store.certificate("exact", model="another")
    store.certificate("exact", issued=now() - timedelta(days=9), reaudit_by=now() - timedelta(days=1))
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        assert "audit was due by" in reason(service)


def test_a_log_that_cannot_be_verified_takes_everything_out_at_once(store: GoldenStore, tmp_path: Path) -> None:
    digest = store.certificate("exact")
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        revocation = store.revoke(digest)
        store.store.delete([StoredObject(certificate_name(revocation), 0, "")])
        poller.poll()
        assert reason(service) == UNVERIFIED


def test_a_log_that_is_older_than_before_takes_everything_out(
    store: GoldenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    digest = store.certificate("exact")
    copy = shutil.copytree(store.folder / "store", tmp_path / "copy")
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        store.revoke(digest)
        poller.poll()
        shutil.rmtree(store.folder / "store")
        copy.rename(store.folder / "store")
        poller.poll()
        assert reason(service) == UNVERIFIED
        assert "the log has shrunk" in caplog.text


def test_a_store_out_of_reach_is_tolerated_for_a_time_and_then_nothing_is_answered(store: GoldenStore) -> None:
    store.certificate("exact")
    service = service_on(store, "serving.inference.log_seconds=1.0")
    rows = {"text": np.zeros((1, 12), np.float32)}
    with following(service, NAME) as client:
        trust, away = store.trust_file, store.trust_file.with_name("away")
        trust.rename(away)
        assert client.infer(NAME, rows).status == 200
        while (reply := client.infer(NAME, rows)).status == 200:
            pass
        assert "the log could not be read for 1 seconds" in reply.document["error"]
        away.rename(trust)
        while client.infer(NAME, rows).status != 200:
            pass


def test_the_bound_holds_although_the_poller_hangs(store: GoldenStore, tmp_path: Path) -> None:
    store.certificate("exact")
    service = service_on(store, "serving.inference.log_seconds=0.001")
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        assert isinstance(service.models[NAME].state, Serving)
        with pytest.raises(Exception, match="the log could not be read"):
            service.models.serving(NAME)


def test_a_name_without_a_release_says_so(store: GoldenStore, tmp_path: Path) -> None:
    store.certificate("exact", model="another")
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        assert reason(service) == "the log has no release of it"


def let_the_guard_raise(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("mbd.serving.inference.releases.admit", asked)


def test_the_guard_is_asked_only_if_something_was_logged(
    store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.certificate("exact")
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        let_the_guard_raise(VerificationError("the guard was asked"), monkeypatch)
        poller.poll()
        assert serving(service)
        store.certificate("surgery", model="another")
        poller.poll()
        assert reason(service) == "the guard was asked"


def test_a_store_that_fails_while_the_guard_asks_is_tolerated_for_a_time(
    store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.certificate("exact")
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        let_the_guard_raise(StoreError("the store failed"), monkeypatch)
        store.certificate("surgery", model="another")
        poller.poll()
        assert serving(service)
        service.models.log_seconds = 0
        poller.poll()
        assert reason(service) == "the guard could not be asked about it for too long"


def test_the_guard_is_asked_again_with_other_trusted_keys(store: GoldenStore, tmp_path: Path) -> None:
    store.certificate("exact")
    service = service_on(store)
    with poller_on(service, store, tmp_path / "models") as poller:
        poller.poll()
        trust = store.trust
        revoked = tuple(
            key.model_copy(
                update={"revoked": KeyRevocation(at=now() - timedelta(days=30), reason="stolen", log_size=None)}
            )
            if key.name == "signer"
            else key
            for key in trust.keys
        )
        write_trust(store.trust_file, trust.model_copy(update={"keys": revoked}))
        poller.poll()
        assert reason(service)
