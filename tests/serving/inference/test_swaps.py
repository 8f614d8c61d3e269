"""Under load: releases take over from each other without a failed or wrong answer, and memory stays flat."""

import gc
import os
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mbd.certificate.envelope import PAYLOAD_TYPE, sign
from mbd.certificate.keys import load_signer
from mbd.formats.statement import DeletionStatement, to_payload
from mbd.model.predictor import Model, load
from mbd.params import load_params
from mbd.serving.inference import InferenceService
from mbd.tensors import Array
from tests.monitoring.golden_store import GOLDEN, GoldenStore, golden
from tests.serving.inference.server import Client, following, rows_of, served, service_of

NAME = golden("exact").predicate.model
SWAPS, CLIENTS = 20, 4
KINDS = ("exact", "surgery", "certified")


class Load:
    """Clients that ask again and again, each for other modalities, and check every answer."""

    def __init__(self, port: int, models: Mapping[str, Model], kinds: Mapping[str, str]) -> None:
        self._port, self._models, self._kinds = port, models, kinds
        self._end = threading.Event()
        self.answers, self.problems = Counter[str](), list[str]()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self, number: int) -> None:
        rows = rows_of(self._models["exact"], 1 + number, seed=number)
        chosen = [("text",), ("visual",), ("text", "visual")][number % 3]
        given: dict[str, Array] = {m: rows[m] for m in chosen}
        expected = {kind: model.predict(given) for kind, model in self._models.items()}
        with Client(self._port) as client:
            while not self._end.is_set():
                try:
                    reply = client.infer(NAME, given, binary=bool(number % 2))
                    version = reply.document["model_version"]
                    kind = self._kinds[version]
                    np.testing.assert_allclose(reply.outputs["prediction"], expected[kind], rtol=1e-5, atol=1e-6)
                    self.answers[version] += 1
                except Exception as error:
                    self.problems.append(repr(error))
                    return


def test_twenty_swaps_under_load_fail_no_request_and_give_no_wrong_answer(tmp_path: Path) -> None:
    store = GoldenStore.open(tmp_path / "golden")
    store.files(*KINDS)
    models = {kind: load(GOLDEN / kind / "model") for kind in KINDS}
    settings = [f"serving.inference.models=[{NAME}]", "serving.inference.poll_seconds=0.02"]
    service = InferenceService(load_params(None, settings), store.store, store.trust_file)
    last = store.certificate(KINDS[0], model=NAME)
    kinds = {last: KINDS[0]}
    with following(service, NAME) as client, Load(client.port, models, kinds) as load_on_it:
        for swap in range(1, SWAPS + 1):
            kind = KINDS[swap % len(KINDS)]
            statement = store.dated(kind, model=NAME, supersedes=last)
            last = digest_of(store, statement)
            kinds[last] = kind
            assert store.publish(statement) == last
            while not load_on_it.answers[last]:
                assert not load_on_it.problems
    assert not load_on_it.problems
    assert len(load_on_it.answers) == SWAPS + 1
    swaps = service.instruments.registry.get_sample_value("mbd_inference_swaps_total", {"model": NAME})
    assert swaps == SWAPS


def digest_of(store: GoldenStore, statement: DeletionStatement) -> str:
    """Return the digest that a statement will have when it is published: signatures are deterministic."""
    signer = load_signer(f"file:{store.folder}/keys/signer.pem")
    return sign(to_payload(statement), PAYLOAD_TYPE, [signer]).digest


def test_memory_stays_flat_over_many_requests(tmp_path: Path) -> None:
    model = load(GOLDEN / "surgery" / "model")
    given = rows_of(model, 4)
    with served(service_of({NAME: model}, tmp_path)) as client:

        def ask(count: int) -> int:
            for number in range(count):
                assert client.infer(NAME, given, binary=bool(number % 2)).status == 200
                if number % 10 == 0:
                    assert client.infer(NAME, {"text": given["text"][:, :3]}).status == 422
            gc.collect()
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        before = ask(300)
        after = ask(1000)
    assert after - before < 1000 * 1024, f"{(after - before) / 1000:.0f} bytes for each request"
