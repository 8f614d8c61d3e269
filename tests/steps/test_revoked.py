"""Retraining remembers: what is revoked for a registered name is in no later model of it."""

import shutil
from pathlib import Path

import pytest

from mbd.certificate.guard import admit
from mbd.errors import DataError, UsageError, VerificationError
from mbd.features.contract import FeatureSet
from mbd.files import sha256_file
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import object_name
from mbd.history.tombstones import store_tombstones
from mbd.model.checkpoint import load_model
from mbd.params import load_params
from mbd.production import models, register
from mbd.production.request_store import RequestStore
from mbd.production.submit import submit
from mbd.production.worker import Worker
from mbd.steps import purge, train
from mbd.steps.revoked import persons_of, read_revoked, revocable
from mbd.steps.step import purged_digests
from tests.history.revocations import not_admitted
from tests.production.registering import NAME, Production
from tests.refusals import refused


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Production:
    return Production.make(tmp_path_factory.mktemp("production"))


@pytest.fixture
def production(trained: Production, request: pytest.FixtureRequest) -> Production:
    return trained.with_store(request.node.name.replace("[", "-").rstrip("]"))


def forget(production: Production, modality: str, person: str | None = None) -> str:
    """Delete a modality, or that of a person, from the current release; return the certificate."""
    requests = RequestStore.open(production.params, production.url)
    submit(production.params, production.url, NAME, [modality], [person] if person else [])
    ((done, outcome),) = Worker(production.params, requests, production.url, production.features, None, "w").run()
    assert done.certificate, outcome
    return done.certificate


def test_nothing_is_left_out_where_no_model_of_the_name_is_registered(production: Production) -> None:
    assert read_revoked(production.params).modalities == ()
    assert revocable(production.params, production.features) == ("text", "audio", "visual")


def test_recordings_that_a_run_leaves_out_are_not_read_where_their_certificates_are_unknown(
    production: Production, tmp_path: Path
) -> None:
    assert persons_of(production.params, ()).persons == {}
    nothing_logged = load_params(None, [*production.settings, f"store.url=file://{tmp_path}/other"])
    with pytest.raises(DataError) as error:
        persons_of(nothing_logged, ("0" * 64,))
    assert error.value.key == "store.url"


def test_references_are_trained_for_what_may_be_revoked_and_registered_from_one_folder(
    production: Production, tmp_path: Path
) -> None:
    chosen = load_params(None, [*production.settings, "requests.revocable=[visual, audio]"])
    results = train.run_references(chosen, production.features, tmp_path / "references")
    assert [one.without for one in results] == [("audio",), ("visual",)]
    name, url = NAME, production.url
    registered = register.run(production.params, production.model, [tmp_path / "references"], name, url)
    weights = {m: sha256_file(production.references(m)[0] / WEIGHTS) for m in ("audio", "visual")}
    assert registered.references == weights
    unknown = load_params(None, [*production.settings, "requests.revocable=[smell]"])
    with refused(UsageError, key="requests.revocable"):
        train.run_references(unknown, production.features, tmp_path / "others")


def test_what_was_revoked_is_in_no_later_model_until_it_is_reinstated(
    production: Production, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    production.register("audio")
    forget(production, "audio")
    assert revocable(production.params, production.features) == ("text", "visual")
    with refused(VerificationError, key="sees"):
        production.register()
    with not_admitted("audio is revoked"):
        admit(production.model, production.store, production.trust)
    result = train.run(production.params, production.features, tmp_path / "again")
    assert result is not None
    assert "audio is revoked for sentiment: training leaves it out" in caplog.text
    assert (set(result.modalities), result.without) == ({"text", "visual"}, ("audio",))
    assert result.sha256 == sha256_file(production.references("audio")[0] / WEIGHTS)
    registered = production.register(model=tmp_path / "again")
    assert admit(tmp_path / "again", production.store, production.trust).registration == registered.registration

    done = models.reinstate(production.params, NAME, ["audio"], "consent given again", production.url)
    assert len(done.overruled) == 1
    result = train.run(production.params, production.features, tmp_path / "with consent")
    assert result is not None
    assert result.sha256 == load_model(production.model)[0].sha256
    assert production.register(model=tmp_path / "with consent").promoted
    assert admit(production.model, production.store, production.trust).registration


@pytest.mark.parametrize("damage", ["head", "entry"])
def test_without_the_whole_log_nothing_is_trained(
    production: Production, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    production.register()
    forget(production, "audio")
    folder = Path(production.url.removeprefix("file://"))
    if damage == "head":
        (folder / "log" / "checkpoint").unlink()
    else:
        shutil.rmtree(next((folder / "certificates").iterdir()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    with pytest.raises(VerificationError, match=r"has shrunk|cannot be known"):
        train.run(production.params, production.features, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_purge_removes_every_registered_model_that_has_seen_the_modality(
    production: Production, tmp_path: Path
) -> None:
    production.register("text", "audio", "visual")
    certificate = forget(production, "audio")
    released, root = tmp_path / "released", tmp_path / "empty"
    models.fetch(production.params, production.history(), NAME, released)
    root.mkdir()
    params = load_params(None, [*production.settings, f"purge.tombstones={tmp_path}/tombstones"])
    purge.run(params, purge.plan(params, None, production.url, certificate=certificate, root=root), production.url)
    saw = [production.model, *production.references("text", "visual")]
    objects = {stored.name for stored in production.store.list("objects/")}
    assert not objects & {object_name(sha256_file(folder / WEIGHTS)) for folder in saw}
    assert object_name(sha256_file(production.references("audio")[0] / WEIGHTS)) in objects
    assert admit(released, production.store, production.trust).certificate == certificate
    weights = {sha256_file(folder / WEIGHTS) for folder in saw}
    assert purged_digests(params) == weights
    models.reinstate(params, NAME, ["audio"], "consent", production.url)
    assert purged_digests(params) == frozenset()  # training may give these bytes again
    assert not list(store_tombstones(params, production.url))


def test_a_purge_for_a_person_removes_the_references_that_have_heard_them(
    production: Production, tmp_path: Path
) -> None:
    production.register("text", "audio", "visual")
    person = str(FeatureSet.open(production.features).split("train").groups[0])
    certificate = forget(production, "audio", person)
    params = load_params(None, [*production.settings, f"purge.tombstones={tmp_path}/tombstones"])
    (tmp_path / "empty").mkdir()
    planned = purge.plan(params, None, production.url, certificate=certificate, root=tmp_path / "empty")
    assert purge.run(params, planned, production.url).record.erasure.claim == "complete"
    saw = [production.model, *production.references("text", "visual")]
    assert purged_digests(params) == {sha256_file(folder / WEIGHTS) for folder in saw}
    models.reinstate(params, NAME, ["audio"], "consent", production.url, person=certificate)
    assert purged_digests(params) == frozenset()


def test_a_person_on_whom_no_weight_depends_leaves_nothing_to_purge(production: Production, tmp_path: Path) -> None:
    production.register("text", "audio", "visual")
    person = str(FeatureSet.open(production.features).split("valid").groups[0])
    certificate = forget(production, "audio", person)
    planned = purge.plan(production.params, None, production.url, certificate=certificate, root=tmp_path)
    assert len(planned.purged.targets) == 0
