"""Registering: what is current follows from the log; one registration makes one entry, however it is interrupted."""

import json
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from mbd.certificate.compose import compose_revocation
from mbd.certificate.guard import admit
from mbd.certificate.publish import announce
from mbd.cli import group
from mbd.errors import DataError, UsageError, VerificationError
from mbd.files import sha256_file
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import certificate_name
from mbd.log.check import check_log
from mbd.production import models, register
from mbd.records import now
from mbd.steps.publish import open_publisher
from mbd.storage.store import Store
from tests.certificate.killing import CountingStore, killed_at, side_by_side
from tests.history.revocations import not_admitted
from tests.log.build import another_machine, become_another_machine
from tests.production.registering import NAME, Production, digests
from tests.refusals import refused


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Production:
    return Production.make(tmp_path_factory.mktemp("production"))


@pytest.fixture
def production(trained: Production, request: pytest.FixtureRequest) -> Production:
    return trained.with_store(request.node.name.replace("[", "-").rstrip("]"))


def register_with(production: Production, both: Store) -> None:
    """Register by the step, but with this store for both parts."""
    register.open_registrar = lambda params, url: production.registrar(both)  # the process is a fork
    production.register("audio")


def one_registration(production: Production) -> None:
    """Check that the log has one registration, which is current and whole, and nothing else."""
    log = check_log(production.store, production.trust, certificate_name=certificate_name)
    assert (log.size, log.pending, log.problems) == (1, 0, [])
    model = production.known()
    assert model.current is not None
    assert digests(model.registrations) == [model.current.digest]
    assert [m for m, one in model.references.items() if one] == ["audio"]
    assert [s.name for s in production.store.list("certificates/") if s.name.endswith("certificate.json")] == [
        certificate_name(model.current.digest)
    ]


def test_a_registered_model_is_current_and_its_references_are_ready(production: Production) -> None:
    done = production.register("audio", "visual")
    model = production.known()
    assert model.current is not None
    assert (model.current.digest, model.current.weights) == (done.registration, sha256_file(production.model / WEIGHTS))
    ready = {m: one.weights if one else None for m, one in model.references.items()}
    silent, blind = (sha256_file(folder / WEIGHTS) for folder in production.references("audio", "visual"))
    assert ready == {"text": None, "audio": silent, "visual": blind}
    assert (model.revoked, model.problem(model.current)) == (frozenset(), None)


def test_a_registered_model_is_admitted_by_its_registration(production: Production) -> None:
    done = production.register()
    admission = admit(production.model, production.store, production.trust)
    assert (admission.certificate, admission.registration) == (None, done.registration)
    with pytest.raises(VerificationError, match="no certificate is about these weights, and no registration"):
        admit(production.folder / "challenger", production.store, production.trust)


def test_a_model_whose_registration_was_revoked_or_whose_record_was_changed_is_not_admitted(
    production: Production, tmp_path: Path
) -> None:
    done = production.register()
    changed = tmp_path / "changed"
    models.fetch(production.params, production.history(), NAME, changed)
    (changed / "model.json").write_bytes((changed / "model.json").read_bytes() + b"\n")
    with not_admitted(r"model\.json is not the one that was registered"):
        admit(changed, production.store, production.trust)
    publisher = open_publisher(production.params, production.url)
    announce(compose_revocation(done.registration, "a mistake", now()), production.params.certificate, publisher)
    with not_admitted("its registration was revoked .*: a mistake"):
        admit(production.model, production.store, production.trust)
    assert production.known().current is None
    again = production.register()
    assert again.registration != done.registration
    assert admit(production.model, production.store, production.trust).registration == again.registration


def test_registered_again_nothing_changes_and_with_another_reference_there_is_a_new_entry(
    production: Production,
) -> None:
    first = production.register("audio")
    assert production.register("audio") == first
    second = production.register("audio", "text")
    assert second.registration != first.registration
    assert production.history().size == 2


def test_a_challenger_is_current_only_if_it_is_not_worse(production: Production, tmp_path: Path) -> None:
    models_, by_mae = [production.model, production.folder / "challenger"], "registration.metric=mae"
    error = {}
    for number, folder in enumerate(models_):
        alone = production.with_store(f"{production.name}-{number}", by_mae)
        with another_machine(tmp_path / alone.name):
            assert "no current release" in alone.register(model=folder, features=production.features).reason
        error[folder] = alone.known().registrations[0].metrics["mae"]
    better, worse = sorted(models_, key=lambda folder: error[folder])
    assert error[better] < error[worse]
    strict = production.with_store(f"{production.name}-strict", by_mae)
    strict.register(model=better, features=production.features)
    lost = strict.register(model=worse, features=production.features)
    assert not lost.promoted
    assert strict.register(model=worse, features=production.features) == lost
    first, second = strict.known().registrations
    assert (strict.known().current, second.promoted) == (first, False)
    assert admit(worse, strict.store, strict.trust).registration == lost.registration
    other = production.with_store(f"{production.name}-other", by_mae)
    with another_machine(tmp_path / other.name):
        other.register(model=worse, features=production.features)
        assert other.register(model=better, features=production.features).promoted
    assert other.known().current == other.known().registrations[1]
    tolerant = production.with_store(f"{production.name}-tolerant", by_mae, "registration.margin=1")
    with another_machine(tmp_path / tolerant.name):
        tolerant.register(model=better, features=production.features)
        assert tolerant.register(model=worse, features=production.features).promoted


@pytest.mark.parametrize("reference", ["model", "challenger"])
def test_a_model_that_is_no_reference_is_refused(production: Production, reference: str) -> None:
    with pytest.raises(DataError, match="not a reference of the model"):
        register.run(production.params, production.model, [production.folder / reference], NAME, production.url)


@pytest.mark.parametrize("name", ["../x", "", "a/b", "con"])
def test_a_name_that_is_none_is_refused(production: Production, name: str) -> None:
    with refused(UsageError, key="--as"):
        register.run(production.params, production.model, [], name, production.url)


@pytest.mark.slow
def test_killed_at_every_use_of_the_store_and_run_again(production: Production, tmp_path: Path) -> None:
    counted = production.with_store(f"{production.name}-counted")
    counting = CountingStore(cast("Store", counted.both()))
    opened = register.open_registrar
    register_with(counted, cast("Store", counting))
    register.open_registrar = opened
    for operation in range(1, len(counting.operations) + 1):  # killed after one is killed before the next
        here = production.with_store(f"{production.name}-{operation}")
        become_another_machine(tmp_path / str(operation))  # all stores have the log of the same keys
        assert killed_at(operation, "after", cast("type[Store]", here.both), partial(register_with, here))
        here.register("audio")
        one_registration(here)


def test_sixteen_at_once_make_one_registration(production: Production) -> None:
    side_by_side([lambda: production.register("audio")] * 16)
    one_registration(production)


@pytest.mark.slow
def test_sixteen_different_ones_at_once_have_one_order_and_none_is_lost(production: Production) -> None:
    names = [f"model {number}" for number in range(16)]
    runs = [partial(register.run, production.params, production.model, [], name, production.url) for name in names]
    side_by_side(list(runs))
    history = production.history().require()
    assert (history.size, history.models) == (16, tuple(sorted(names)))
    assert sorted(one.index for one in history.registrations.values()) == list(range(16))
    assert check_log(production.store, production.trust, certificate_name=certificate_name).problems == []


def test_a_planted_draft_is_not_published(production: Production, tmp_path: Path) -> None:
    production.register("audio")
    draft = next(iter(production.private.list("drafts/")))
    other = production.with_store(f"{production.name}-other")
    other.private.create(draft.name, b"{}")
    with another_machine(tmp_path / "another"):
        other.register("audio")
    one_registration(other)
    assert next(iter(other.private.list("drafts/"))).size > len(b"{}")


def test_the_commands_show_and_fetch_what_is_current(production: Production, tmp_path: Path) -> None:
    settings = [part for setting in production.settings for part in ("--set", setting)]
    at = ["--store", production.url, "--json", *settings]
    trust = ["--trust", str(production.trust_file)]

    def run(*arguments: str) -> object:
        result = CliRunner().invoke(group, [*arguments, *at], catch_exceptions=False)
        return json.loads(result.stdout)

    reference = str(production.references("audio")[0])
    done = cast(
        "dict[str, str]",
        run("register", "--model", str(production.model), "--reference", reference, "--as", NAME),
    )
    listed = cast("list[dict[str, object]]", run("models", "list", *trust))
    shown = cast("dict[str, dict[str, object]]", run("models", "show", NAME, *trust))
    assert listed == [shown]
    assert shown["current"]["release"] == done["registration"]
    assert shown["references"] == {"text": None, "audio": sha256_file(Path(reference) / WEIGHTS), "visual": None}
    run("models", "fetch", NAME, "--out", str(tmp_path / "model"), *trust)
    run("models", "fetch", NAME, "--reference", "audio", "--out", str(tmp_path / "reference"), *trust)
    assert sha256_file(tmp_path / "model" / WEIGHTS) == done["weights"]
    assert sha256_file(tmp_path / "reference" / WEIGHTS) == sha256_file(Path(reference) / WEIGHTS)
    admitted = cast("dict[str, object]", run("guard", "--model", str(tmp_path / "model"), *trust))
    assert (admitted["certificate"], admitted["registration"]) == (None, done["registration"])
