"""200 requests and eight workers that are killed at random, on a folder and on real S3.

In the end each request is certified exactly once, every certificate verifies, and the log has no other entry.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mbd.log.reader import Log
from mbd.params import Params, load_params, to_yaml
from mbd.production.request_store import RequestStore
from mbd.randomness import stream
from mbd.steps import features, train, verify
from mbd.storage import open_store
from mbd.trust.keys import make_keys
from mbd.trust.trust_file import read_trust
from tests.certificate.authority import key_settings
from tests.integration.servers.rgw import S3
from tests.production.small import SETTINGS as SMALL

pytestmark = [pytest.mark.services, pytest.mark.slow]

MODELS, REQUESTS, WORKERS, KILLS = 6, 200, 8, 20
SETTINGS = (*SMALL, "requests.lease_seconds=15")
DEADLINE_SECONDS = 900


class Service:
    """One store, its models and its workers."""

    def __init__(self, folder: Path, url: str, endpoint: str | None) -> None:
        make_keys(folder / "keys", "signer")
        self.folder, self.url = folder, url
        self.settings = [
            *SETTINGS,
            f"store.url={url}",
            *([f"store.endpoint={endpoint}"] if endpoint else []),
            *key_settings(folder),
            f"deletion.ledgers={folder}/ledgers",
        ]
        self.params = load_params(None, self.settings)
        features.run(self.params, folder / "features")
        train.run(self.params, folder / "features", folder / "model")
        self.request_store = RequestStore.open(self.params, url)

    def of(self, model: str) -> Params:
        return load_params(None, [*self.settings, f"certificate.model={model}"])

    def start(self, model: str) -> subprocess.Popen[bytes]:
        file = self.folder / f"{model}.yaml"
        file.write_text(to_yaml(self.of(model)))
        command = [sys.executable, "-c", "from mbd.cli import main; main()", "request", "run", "--params", str(file)]
        given = ["--features", str(self.folder / "features"), "--model", str(self.folder / "model")]
        with (self.folder / "workers.log").open("ab") as log:
            return subprocess.Popen(
                [*command, *given], stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
            )


@pytest.fixture(params=["folder", "s3"])
def service(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    if request.param == "folder":
        yield Service(tmp_path, f"file://{tmp_path}/store", None)
        return
    s3: S3 = request.getfixturevalue("s3")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"requests-{uuid.uuid4().hex[:8]}"
    s3.client().create_bucket(Bucket=bucket)
    yield Service(tmp_path, f"s3://{bucket}/service", s3.endpoint)


def submit_all(service: Service) -> list[str]:
    """Submit requests for audio and visual of every model, each twice with one token."""
    made: list[str] = []
    for number in range(REQUESTS):
        model, modality = f"model-{number % MODELS}", ("audio", "visual")[number // MODELS % 2]
        ids = {
            service.request_store.submit(model, [modality], due_days=1 + number % 30, token=f"t-{number}").id
            for _ in range(2)
        }
        made += ids
    return made


def carry_out(service: Service) -> int:
    """Start workers and kill them at random until no request is open; return the number of killed workers."""
    random, killed = stream(0, "requests", "killing"), 0
    workers: list[subprocess.Popen[bytes]] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while open_requests := service.request_store.open_requests():
            assert time.monotonic() < deadline, (service.folder / "workers.log").read_text()[-3000:]
            workers = [worker for worker in workers if worker.poll() is None]
            models = sorted({request.model for request in open_requests})
            while len(workers) < WORKERS:
                workers.append(service.start(str(random.choice(models))))
            time.sleep(float(random.uniform(0.5, 2.5)))
            if killed < KILLS:
                workers[int(random.integers(len(workers)))].send_signal(signal.SIGKILL)
                killed += 1
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return killed


def test_each_request_is_certified_exactly_once(service: Service) -> None:
    made = submit_all(service)
    assert len(set(made)) == REQUESTS
    assert carry_out(service) > 0
    requests = list(service.request_store.all())
    assert {request.id for request in requests} == set(made)
    for request in requests:
        assert request.state == "certified"
        assert Counter(event.state for event in request.history)["certified"] == 1
    certificates = {request.certificate for request in requests}
    assert None not in certificates
    store = open_store(service.url, service.params.store)
    log = Log(store, read_trust(Path(service.params.certificate.trust)))
    assert log.size == len(certificates)
    published = {entry.name.split("/")[1] for entry in store.list("certificates/")}
    assert published == certificates
    for certificate in certificates:
        place = f"{service.url}/certificates/{certificate}"
        assert verify.run(service.params, place, trust=Path(service.params.certificate.trust)).verified
