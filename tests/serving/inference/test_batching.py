"""Batches: who is computed with whom, and that one request never harms another."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mbd.model.predictor import Model
from mbd.serving.inference.routes import InferenceService
from mbd.tensors import Array
from tests.model.modules import VECTORS
from tests.serving.inference.server import Client, Reply, module_model, put, rows_of, served, service_of

OTHER = "0" * 64


class Recorded:
    """A backbone that notes what it is given, and can be held up."""

    def __init__(self, model: Model) -> None:
        self._backbone = model.backbone
        self.batches: list[tuple[tuple[str, ...], int]] = []
        self.threads: set[tuple[str, int]] = set()
        self.entered, self.go = threading.Event(), threading.Event()
        self.go.set()

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
        self.entered.set()
        assert self.go.wait(60)
        here = tuple(sorted(m for m, bits in available.items() if bits.any()))
        self.batches.append((here, len(next(iter(available.values())))))
        self.threads.add((threading.current_thread().name, torch.get_num_threads()))
        if (features["text"] > 1e6).any():
            raise RuntimeError("this row breaks the module")
        return self._backbone.predict(features, available)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return module_model(tmp_path_factory.mktemp("m") / "m", "tests.model.modules:Concatenation", VECTORS)


@pytest.fixture
def recorded(model: Model) -> Recorded:
    return Recorded(model)


def service_with(model: Model, recorded: Recorded, folder: Path, *settings: str) -> InferenceService:
    return service_of({"m": replace(model, backbone=recorded)}, folder, *settings)


def send(port: int, rows: Mapping[str, Array]) -> Reply:
    with Client(port) as client:
        return client.infer("m", rows, binary=True)


def occupy(pool: ThreadPoolExecutor, port: int, rows: Mapping[str, Array], recorded: Recorded) -> "Future[Reply]":
    """Send a request whose computation lasts until `recorded.go` is set; return when it has begun."""
    recorded.go.clear()
    recorded.entered.clear()
    reply = pool.submit(send, port, rows)
    assert recorded.entered.wait(60)
    return reply


def held_up(
    client: Client, service: InferenceService, requests: list[dict[str, Array]], recorded: Recorded
) -> list[Reply]:
    """Send requests that all wait while a first one is computed; return their answers."""
    with ThreadPoolExecutor(len(requests) + 1) as pool:
        occupy(pool, client.port, {"video": np.zeros((1, 5), np.float32)}, recorded)
        replies = [pool.submit(send, client.port, rows) for rows in requests]
        total = sum(len(next(iter(rows.values()))) for rows in requests)
        wait_until(lambda: service.batcher._rows == total, recorded)
        recorded.go.set()
        return [reply.result() for reply in replies]


def wait_until(condition: Callable[[], bool], recorded: Recorded) -> None:
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            recorded.go.set()
            raise AssertionError("the requests do not wait")
        time.sleep(0.005)


def check_answers(
    model: Model, service: InferenceService, requests: list[dict[str, Array]], recorded: Recorded
) -> None:
    """Let requests wait for each other, and compare every answer."""
    with served(service) as client:
        send(client.port, requests[0])
        recorded.batches.clear()
        replies = held_up(client, service, requests, recorded)
    for rows, reply in zip(requests, replies, strict=True):
        np.testing.assert_allclose(reply.outputs["prediction"], model.predict(rows), rtol=1e-5, atol=1e-6)


def test_requests_with_the_same_modalities_are_computed_together(
    model: Model, recorded: Recorded, tmp_path: Path
) -> None:
    service = service_with(model, recorded, tmp_path)
    requests = []
    for number in range(12):
        rows = rows_of(model, 1 + number % 3, seed=number)
        requests.append({m: rows[m] for m in (("text",) if number % 2 else ("text", "audio"))})
    check_answers(model, service, requests, recorded)
    assert Counter(recorded.batches) == Counter({(("video",), 1): 1, (("audio", "text"), 12): 1, (("text",), 12): 1})


def test_a_batch_has_no_more_rows_than_the_parameter_says(model: Model, recorded: Recorded, tmp_path: Path) -> None:
    service = service_with(model, recorded, tmp_path, "serving.inference.batch_rows=4")
    requests = [{"text": rows_of(model, count, seed=count)["text"]} for count in (3, 2, 2, 9)]
    check_answers(model, service, requests, recorded)
    assert max(rows for _, rows in recorded.batches) == 4
    assert sum(rows for _, rows in recorded.batches[1:]) == 16


def test_a_request_waits_for_others_as_long_as_the_parameter_says(
    model: Model, recorded: Recorded, tmp_path: Path
) -> None:
    settings = ("serving.inference.batch_milliseconds=300", "serving.inference.batch_rows=3")
    service = service_with(model, recorded, tmp_path, *settings)
    row = {"text": rows_of(model, 1)["text"]}
    with served(service) as client, ThreadPoolExecutor(3) as pool:
        send(client.port, row)
        recorded.batches.clear()
        start = time.monotonic()
        assert send(client.port, row).status == 200
        assert time.monotonic() - start >= 0.3
        assert {reply.status for reply in pool.map(lambda _: send(client.port, row), range(3))} == {200}
        assert recorded.batches == [(("text",), 1), (("text",), 3)]


def test_a_bad_row_fails_its_own_request_only(model: Model, recorded: Recorded, tmp_path: Path) -> None:
    service = service_with(model, recorded, tmp_path)
    requests = [{"text": rows_of(model, 2, seed=seed)["text"]} for seed in range(6)]
    requests[2]["text"][1, 3] = np.nan
    requests[4]["text"][0, 0] = 1e9
    with served(service) as client:
        send(client.port, requests[0])
        replies = held_up(client, service, requests, recorded)
    assert [reply.status for reply in replies] == [200, 200, 422, 200, 500, 200]
    assert "NaN" in replies[2].document["error"] and "row 1" in replies[2].document["value"]
    assert replies[4].document["error"] == "m failed on these inputs: RuntimeError"
    for rows, reply in zip(requests, replies, strict=True):
        if reply.status == 200:
            np.testing.assert_allclose(reply.outputs["prediction"], model.predict(rows), rtol=1e-5, atol=1e-6)


def test_a_full_queue_refuses_at_once_and_what_waits_is_answered(
    model: Model, recorded: Recorded, tmp_path: Path
) -> None:
    service = service_with(model, recorded, tmp_path, "serving.inference.queue_rows=6")
    row = {"text": rows_of(model, 2)["text"]}
    with served(service) as client:
        send(client.port, row)
        with ThreadPoolExecutor(4) as pool:
            first = occupy(pool, client.port, row, recorded)
            waiting = [pool.submit(send, client.port, row) for _ in range(3)]
            wait_until(lambda: service.batcher._rows == 6, recorded)
            refused = client.infer("m", row)
            assert (refused.status, refused.document["reason"]) == (503, "overloaded")
            assert refused.headers["retry-after"] == "1"
            recorded.go.set()
            assert {reply.result().status for reply in [first, *waiting]} == {200}
    assert service.samples.registry.get_sample_value("mbd_inference_queued_rows") == 0


def test_what_waits_during_a_swap_is_checked_and_answered_by_the_new_release(
    model: Model, recorded: Recorded, tmp_path: Path
) -> None:
    service = service_with(model, recorded, tmp_path)
    new = module_model(tmp_path / "new", "tests.model.modules:Concatenation", VECTORS, seed=2)
    rows = rows_of(model, 1)
    text, audio = ({m: rows[m]} for m in ("text", "audio"))
    with served(service) as client, ThreadPoolExecutor(4) as pool:
        send(client.port, text)
        running = occupy(pool, client.port, text, recorded)
        waiting = [pool.submit(send, client.port, rows) for rows in (text, audio)]
        wait_until(lambda: service.batcher._rows == 2, recorded)
        put(service, "m", new, OTHER, revoked={"audio": "c" * 64})
        recorded.go.set()
        assert running.result().document["model_version"] != OTHER
        answered, refused = (reply.result() for reply in waiting)
    assert answered.document["model_version"] == OTHER
    np.testing.assert_array_equal(answered.outputs["prediction"], new.predict(text))
    assert (refused.status, refused.document["certificate"]) == (422, "c" * 64)


def test_one_thread_computes_with_the_threads_that_the_parameter_says(
    model: Model, recorded: Recorded, tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    with served(service_with(model, recorded, tmp_path, "serving.inference.threads=3")) as client:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: send(client.port, {"text": rows_of(model, 1)["text"]}), range(8)))
        assert recorded.threads == {("inference", 3)}
    assert torch.get_num_threads() == before


def test_what_waits_when_the_server_stops_is_refused(model: Model, recorded: Recorded, tmp_path: Path) -> None:
    service = service_with(model, recorded, tmp_path)
    row = {"text": rows_of(model, 1)["text"]}
    with served(service) as client, ThreadPoolExecutor(4) as pool:
        send(client.port, row)
        running = occupy(pool, client.port, row, recorded)
        waiting = pool.submit(send, client.port, row)
        wait_until(lambda: service.batcher._rows == 1, recorded)
        stopping = pool.submit(service.batcher.stop)
        wait_until(service.batcher._stop.is_set, recorded)
        recorded.go.set()
        stopping.result()
        assert (running.result().status, waiting.result().status) == (200, 503)
        assert send(client.port, row).status == 503
