"""Requests over HTTP that a worker carries out, to the certificate; also if it is killed, with a model under load."""

import json
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from mbd.cli.options import repeated
from mbd.features.contract import FeatureSet
from mbd.model.predictor import load
from mbd.params import load_params
from mbd.production.request_store import RequestStore
from mbd.serving.app import create_app
from mbd.serving.inference.releases import ReleaseLog
from mbd.serving.inference.served import Release
from mbd.serving.server import WorkerProcess
from mbd.serving.service import Service
from mbd.serving.tokens import TokenFile
from mbd.steps import verify
from tests.integration.servers.process import answers
from tests.production.registering import NAME, Production
from tests.serving.inference.load import Load
from tests.serving.inference.server import Client, listening, rows_of
from tests.serving.site import serving_process
from tests.serving.waiting import wait_until
from tests.serving.worker_site import PATIENCE, call, wait_for_end

LEASE_SECONDS = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Production:
    return Production.make(tmp_path_factory.mktemp("production"))


@pytest.fixture
def production(trained: Production, request: pytest.FixtureRequest) -> Production:
    """A registered model with a store of its own."""
    tokens = trained.folder / "tokens.json"
    own = [f"serving.tokens={tokens}", "serving.poll_seconds=0.3", f"requests.lease_seconds={LEASE_SECONDS}"]
    inference = [f"serving.inference.models=[{NAME}]", "serving.inference.poll_seconds=0.1"]
    found = trained.with_store(request.node.name, *own, *inference)
    found.register("audio")
    return found


def token_of(production: Production) -> str:
    return TokenFile(Path(production.params.serving.tokens)).new(production.name, ["submit", "read"])[0]


def fetched(production: Production, version: str, place: Path) -> Path:
    """Return a folder with the model of a release, from the store."""
    folder = Path(tempfile.mkdtemp(dir=place))
    log = ReleaseLog(production.store, production.trust_file, production.params.certificate.checkpoint_age)
    state = log.read()
    facts = next(one for one in state.history.model(NAME).releases if one.digest == version)
    state.fetch(Release(NAME, version, facts.issued), folder)
    return folder


def test_a_persons_request_is_entered_carried_out_and_certified(production: Production, tmp_path: Path) -> None:
    person = str(FeatureSet.open(production.features).split("train").groups[0])
    token, log = token_of(production), tmp_path / "serve.log"
    options = ("--worker", "--features", str(production.features), *repeated("--set", production.settings))
    with serving_process(log, *options) as (url, _):
        asked = {"model": NAME, "modalities": ["audio"], "subject": person}
        wait_until(lambda: answers(f"{url}/readyz"))
        entered = call(f"{url}/requests", token, asked)
        done = wait_for_end(url, token, entered["id"])
        certificate = done["certificate"]
        assert (done["state"], done["of_person"]) == ("certified", True)
        wait_until(lambda: call(f"{url}/models/{NAME}", token)["current"])
        model = call(f"{url}/models/{NAME}", token)
        assert (model["current"]["digest"], model["current"]["state"]) == (certificate, "valid")
        assert (model["current"]["scope"], model["current"]["guarantee"]) == ("subjects", "exact")
        assert (model["revoked"], sorted(model["takes"])) == ([], ["audio", "text", "visual"])
        place = f"{url}/store/certificates/{certificate}"
        held = fetched(production, certificate, tmp_path)
        assert verify.run(production.params, place, model=held, trust=production.trust_file).verified
    stored = [file.read_text("latin-1") for file in (production.folder / "stores").rglob("*") if file.is_file()]
    assert not [text for text in (*stored, log.read_text(), json.dumps((entered, done, model))) if person in text]


@contextmanager
def served(production: Production) -> Iterator[tuple[Service, int]]:
    """Serve everything in this process, with a worker beside it; yield the service and its port."""
    service = Service.open(load_params(None, production.settings), production.store, production.trust_file)
    arguments = ["--features", str(production.features), *repeated("--set", production.settings)]
    service.worker = WorkerProcess(["request", "run", "--watch", *arguments], first_pause=0.01)
    with listening(create_app(service)) as port:
        yield service, port


@pytest.mark.slow
def test_a_worker_is_killed_under_load_and_no_answer_fails_and_its_request_is_certified_once(
    production: Production, tmp_path: Path
) -> None:
    registered = production.known().releases[-1].digest
    token, model_of = token_of(production), cache(lambda version: load(fetched(production, version, tmp_path)))
    audio = rows_of(model_of(registered), 1)["audio"]
    with served(production) as (service, port), Client(port) as client:
        url, worker = f"http://127.0.0.1:{port}", service.worker
        wait_until(lambda: client.get(f"/v2/models/{NAME}/ready").status == 200)
        assert client.infer(NAME, {"audio": audio}).status == 200
        with Load(port, NAME, model_of, registered, pause=0.05) as load_on_it:
            entered = call(f"{url}/requests", token, {"model": NAME, "modalities": ["audio"]})["id"]
            wait_until(lambda: call(f"{url}/requests/{entered}", token)["state"] == "running", PATIENCE)
            killed = worker.pid if worker else None
            assert killed
            os.kill(killed, signal.SIGKILL)
            done = wait_for_end(url, token, entered)
            wait_until(lambda: load_on_it.answers[done["certificate"]] or load_on_it.problems)
        assert load_on_it.problems == []
        assert set(load_on_it.answers) == {registered, done["certificate"]}
        with Client(port) as late:
            refused = late.infer(NAME, {"audio": audio})
        assert (refused.status, refused.document["certificate"]) == (422, done["certificate"])
    request = RequestStore.open(production.params, production.url).get(entered)
    entered_states = Counter(event.state for event in request.history if not event.note)  # notes are of stages
    assert (request.state, entered_states["certified"], entered_states["running"]) == ("certified", 1, 2)
    workers = [event.by for event in request.history if event.state == "running"]
    assert len(set(workers)) == 2
    history = production.history()
    assert (history.size, set(history.certificates)) == (2, {done["certificate"]})
