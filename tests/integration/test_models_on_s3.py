"""A model's life on a real S3 server: registered, promoted, deleted from and reinstated by processes that are killed.

Each is killed at points that are spread over its operations, run again, and leaves what one run leaves.
"""

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from multiprocessing import get_context
from typing import cast

import pytest

from mbd.features.contract import FeatureSet
from mbd.formats.layout import certificate_name
from mbd.history.history import ModelHistory
from mbd.log.check import check_log
from mbd.params import Params, load_params
from mbd.production import models, register
from mbd.production.request_store import RequestStore
from mbd.production.submit import submit
from mbd.production.worker import Worker
from mbd.storage.store import Store
from tests.certificate.killing import CountingStore, killed_at, side_by_side
from tests.integration.servers.rgw import S3
from tests.log.build import become_another_machine
from tests.production.registering import NAME, Production, digests

pytestmark = pytest.mark.services

POINTS = 5
REGISTRATIONS = 16


@dataclass(frozen=True)
class ProductionOnS3(Production):
    """The same with a store in a bucket."""

    bucket: str = ""
    endpoint: str = ""

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.name}"

    @cached_property
    def params(self) -> Params:
        return load_params(None, [*self.settings, f"store.endpoint={self.endpoint}", "requests.lease_seconds=6"])


@pytest.fixture(scope="module")
def trained(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProductionOnS3]:
    bucket, folder = f"models-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("production")
    s3.client().create_bucket(Bucket=bucket)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        Production.make(folder)
        yield ProductionOnS3(folder, bucket=bucket, endpoint=s3.endpoint)


@pytest.fixture
def production(trained: ProductionOnS3, request: pytest.FixtureRequest) -> ProductionOnS3:
    return trained.with_store(request.node.name)


def registering(production: Production, both: Store) -> None:
    """Register by the step, but with this store for both parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(register, "open_registrar", lambda params, url: production.registrar(both))
        production.register("audio")


def challenging(production: Production, both: Store) -> None:
    """Register a challenger, which is compared with the current release."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(register, "open_registrar", lambda params, url: production.registrar(both))
        production.register(model=production.folder / "challenger", features=production.features)


def on_its_own(production: ProductionOnS3, name: str) -> ProductionOnS3:
    """Return a store of its own, in a process that is a machine of its own: it remembers no other store's log."""
    become_another_machine(production.folder / f"cache-{uuid.uuid4().hex}")
    return production.with_store(f"{production.name}/{name}")


def killed_everywhere(
    production: ProductionOnS3,
    prepare: Callable[[ProductionOnS3], None],
    run: Callable[[Production, Store], None],
    check: Callable[[ProductionOnS3], None],
) -> None:
    """Kill runs at points that are spread over all operations, side by side, each in a store of its own; check each."""
    counted = production.with_store(f"{production.name}/counted")
    prepare(counted)
    counting = CountingStore(cast("Store", counted.both()))
    run(counted, cast("Store", counting))
    check(counted)

    def at(point: int) -> None:
        here = on_its_own(production, str(point))
        prepare(here)
        operation = 1 + point * (len(counting.operations) - 1) // (POINTS - 1)
        assert killed_at(operation, "after", cast("type[Store]", here.both), partial(run, here))
        run(here, cast("Store", here.both()))
        check(here)

    side_by_side([partial(at, point) for point in range(POINTS)])


def known(production: ProductionOnS3, size: int) -> ModelHistory:
    """Return what the log says of the model; it is whole and has so many entries."""
    log = check_log(production.store, production.trust, certificate_name=certificate_name)
    assert (log.size, log.pending, log.problems) == (size, 0, [])
    return production.known()


def test_a_registration_is_there_once(production: ProductionOnS3) -> None:
    def check(here: ProductionOnS3) -> None:
        model = known(here, 1)
        assert model.current is not None
        assert digests(model.registrations) == [model.current.digest]
        assert [m for m, one in model.references.items() if one] == ["audio"]

    killed_everywhere(production, lambda here: None, registering, check)


def test_a_promotion_is_decided_once(production: ProductionOnS3) -> None:
    def check(here: ProductionOnS3) -> None:
        model = known(here, 2)
        first, second = model.registrations
        assert model.current == (second if second.promoted else first)
        assert second.previous == first.digest

    tolerant = production.with_store(production.name, "registration.margin=100")
    killed_everywhere(tolerant, lambda here: registering(here, cast("Store", here.both())), challenging, check)


def test_a_reinstatement_is_there_once(production: ProductionOnS3) -> None:
    def prepare(here: ProductionOnS3) -> None:
        asked(here)
        assert [done.state for done, _ in worker_of(here).run()] == ["certified"]

    def run(here: Production, both: Store) -> None:
        registrar = here.registrar(both)
        certificate = registrar.history().model(NAME).certificates[0].digest
        registrar.reinstate(NAME, ["audio"], "consent", certificate)

    def check(here: ProductionOnS3) -> None:
        model = known(here, 3)
        assert (len(model.certificates), model.persons) == (1, ())

    killed_everywhere(production, prepare, run, check)


def asked(production: Production) -> None:
    """Register the model, and submit the request of a person."""
    person = str(FeatureSet.open(production.features).split("train").groups[0])
    registering(production, cast("Store", production.both()))
    submit(production.params, production.url, NAME, ["audio"], [person], features_folder=production.features)


def worker_of(production: Production) -> Worker:
    features = production.features
    return Worker(
        production.params,
        RequestStore.open(production.params, production.url),
        production.url,
        features,
        None,
        "worker",
    )


def test_a_deletion_is_certified_once(production: ProductionOnS3) -> None:
    def prepared(name: str) -> ProductionOnS3:
        here = on_its_own(production, name)
        asked(here)
        return here

    def check(here: ProductionOnS3) -> None:
        (request,) = RequestStore.open(here.params, here.url).all()
        model = known(here, 2)
        assert model.current is not None
        assert (request.state, request.certificate) == ("certified", model.current.digest)
        assert (len(model.certificates), len(model.persons)) == (1, 1)

    whole = prepared("whole")
    start = time.perf_counter()
    list(worker_of(whole).run())
    seconds = time.perf_counter() - start
    check(whole)

    def at(point: int) -> None:
        here = prepared(str(point))
        process = get_context("fork").Process(target=lambda: list(worker_of(here).run()))
        process.start()
        process.join(seconds * point / POINTS)
        os.kill(cast("int", process.pid), signal.SIGKILL)
        process.join(60)
        while RequestStore.open(here.params, here.url).open_requests():  # until the lease of the killed one is over
            list(worker_of(here).run())
            time.sleep(0.5)
        check(here)

    side_by_side([partial(at, point) for point in range(POINTS)])


def test_sixteen_registrations_at_once_have_one_order_and_none_is_lost(production: ProductionOnS3) -> None:
    names = [f"model {number}" for number in range(REGISTRATIONS)]
    runs = [partial(register.run, production.params, production.model, [], name, production.url) for name in names]
    side_by_side(list(runs))
    history = production.history().require()
    assert (history.size, history.models) == (REGISTRATIONS, tuple(sorted(names)))
    assert sorted(one.index for one in history.registrations.values()) == list(range(REGISTRATIONS))
    assert check_log(production.store, production.trust, certificate_name=certificate_name).problems == []
    assert all(models.summary(history, name).problem is None for name in names)
