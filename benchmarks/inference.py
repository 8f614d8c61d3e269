"""Claims about inference over HTTP, on the loopback interface: a cross-modal transformer on inputs of MOSI's size.

1. Requests of 32 rows of two clients, in bytes: the server answers at least half of the rows that `model.predict` does,
   called in a loop on batches of 32 with nothing else to do. The server may join waiting requests to one batch, so the
   two do not compute the same batches, and a ratio above 1 says nothing about the cost of HTTP.
2. Single rows of 32 clients at once, as JSON: more answers for each second, and a smaller 99th percentile of the time,
   than a plain handler (FastAPI with a pydantic model of the body) that calls `predict` for each request. The server
   computes waiting rows together, the handler one at a time: that is the reason, and it needs clients at once. Where
   `wrk` is installed, it measures both as well, as a client that costs less than this one.
3. With `--beside mlflow` or `--beside kserve`: more answers for each second, and a smaller 99th percentile of the time,
   than the scoring server of MLflow with a pyfunc, or the Python server of KServe with a model, that calls `predict` of
   the same model and does nothing else, on single rows and on 32 rows, both as JSON, by less than half of the
   processor's time, which other work on the machine does not change. `--python` names the interpreter of an
   environment that has mlflow and pandas, or kserve, and this package.
4. Memory is flat: over `--requests` requests (200,000) to a small model it grows by less than 100 bytes for each.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import numpy as np

from mbd.formats.features import Shape
from mbd.model.predictor import Model, load
from mbd.tensors import Array
from tests.serving.inference.server import application, encode, module_model, rows_of, service_of

if TYPE_CHECKING:
    from fastapi import FastAPI

SHAPES = {"text": Shape.vector(768), "audio": Shape.vector(74), "visual": Shape.vector(47)}
SMALL = {"text": Shape.vector(16), "audio": Shape.vector(8)}
FACTORY = "mbd.model.examples.crossmodal:CrossModalTransformer"
NAME, CLIENTS, ROUNDS = "sentiment", 32, 3
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Measured:
    """How fast something answers."""

    rows: float
    """for each second"""
    p99: float
    """seconds"""

    @classmethod
    def of(cls, rounds: Sequence["Measured"]) -> "Measured":
        """Return the medians."""
        return cls(float(np.median([one.rows for one in rounds])), float(np.median([one.p99 for one in rounds])))

    def __str__(self) -> str:
        return f"{self.rows:8.0f} rows/s, p99 {self.p99 * 1e3:7.1f} ms"


def our_app(folder: Path) -> "FastAPI":
    service = service_of({NAME: load(folder / "model")}, folder)
    service.batcher.start()
    return application(service)


def plain_app(folder: Path) -> "FastAPI":
    from fastapi import FastAPI
    from pydantic import BaseModel

    app, model = FastAPI(), load(folder / "model")

    class Body(BaseModel):
        inputs: dict[str, list[list[float]]]

    class Prediction(BaseModel):
        prediction: list[float]

    @app.post("/predict")
    def predict(body: Body) -> Prediction:
        inputs = {name: np.array(values, np.float32) for name, values in body.inputs.items()}
        return Prediction(prediction=model.predict(inputs).tolist())

    return app


def mlflow_app(folder: Path) -> "FastAPI":
    """Return the application that `mlflow models serve` runs, with the model saved and loaded as a pyfunc."""
    from mlflow import pyfunc
    from mlflow.models import ModelSignature
    from mlflow.pyfunc import scoring_server
    from mlflow.types import Schema, TensorSpec

    class Predictor(pyfunc.PythonModel):  # type: ignore[misc]
        def load_context(self, context: pyfunc.PythonModelContext) -> None:
            self.model = load(Path(context.artifacts["model"]))

        # MLflow would take type hints for a signature, which is given below.
        def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return self.model.predict(model_input)

    inputs = [TensorSpec(np.dtype(np.float32), (-1, *shape.size), name) for name, shape in SHAPES.items()]
    pyfunc.save_model(
        folder / "pyfunc",
        python_model=Predictor(),
        artifacts={"model": str(folder / "model")},
        signature=ModelSignature(inputs=Schema(inputs)),
        pip_requirements=[],
    )
    app: FastAPI = scoring_server.init(pyfunc.load_model(str(folder / "pyfunc")))
    return app


def kserve_app(folder: Path) -> "FastAPI":
    """Return the application of KServe's Python server, with a model that calls `predict` and does nothing else."""
    from kserve import InferOutput, InferResponse, ModelRepository
    from kserve import Model as KServeModel
    from kserve.protocol.dataplane import DataPlane
    from kserve.protocol.model_repository_extension import ModelRepositoryExtension
    from kserve.protocol.rest.server import RESTServer

    class Predictor(KServeModel):  # type: ignore[misc]
        def load(self) -> bool:
            self.model, self.ready = load(folder / "model"), True
            return True

        def predict(self, payload, headers=None, response_headers=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            answer = self.model.predict({one.name: one.as_numpy() for one in payload.inputs})
            output = InferOutput("prediction", list(answer.shape), "FP32")
            output.set_data_from_numpy(answer.astype(np.float32), binary_data=False)
            return InferResponse(payload.id or "none", self.name, [output])

    served, repository = Predictor(NAME), ModelRepository()
    served.load()
    repository.update(served)
    server = RESTServer("", DataPlane(repository), ModelRepositoryExtension(repository), 0)
    server.create_application()
    app: FastAPI = import_module("kserve.model_server").app
    return app


APPS = {"ours": our_app, "plain": plain_app, "mlflow": mlflow_app, "kserve": kserve_app}


def serve(kind: str, folder: Path) -> None:
    """Run a server; print its port."""
    import torch
    import uvicorn

    torch.set_num_threads(1)
    app = APPS[kind](folder)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))

    async def run() -> None:
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await task

    asyncio.run(run())


@contextmanager
def running(kind: str, folder: Path, python: str = sys.executable) -> Iterator[tuple[int, int]]:
    """Run a server in a process of its own; yield its port and its process id."""
    command = [python, __file__, "--serve", kind, "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield int(process.stdout.readline()), process.pid
    finally:
        process.terminate()
        process.wait(30)


def http(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """Return the bytes of a request."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def load_on(port: int, requests: Sequence[bytes], count: int, clients: int) -> list[float]:
    """Send `count` requests in turn over some connections, each waiting for its answer; return the times they took."""
    times: list[float] = []
    left = iter(range(count))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in left:
            start = time.perf_counter()
            writer.write(requests[number % len(requests)])
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            lowered = head.lower()
            at = lowered.index(b"\r\ncontent-length:") + 17
            await reader.readexactly(int(lowered[at : lowered.index(b"\r\n", at)]))
            times.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return times


def measure(port: int, requests: Sequence[bytes], rows: int, count: int, clients: int) -> Measured:
    start = time.perf_counter()
    times = asyncio.run(load_on(port, requests, count, clients))
    return Measured(count * rows / (time.perf_counter() - start), float(np.quantile(times, 0.99)))


def measure_with_wrk(port: int, path: str, body: bytes, headers: dict[str, str], folder: Path) -> Measured:
    """Send the same single row again and again over some connections, for five seconds."""
    (folder / "body").write_bytes(body)
    lines = [f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}" for name, value in headers.items()]
    script = f'wrk.method = "POST"\nwrk.body = io.open({json.dumps(str(folder / "body"))}, "rb"):read("*a")\n'
    (folder / "wrk.lua").write_text(script + "\n".join(lines))
    options = ["-t1", f"-c{CLIENTS}", "-d5s", "--latency", "-s", str(folder / "wrk.lua")]
    command = ["wrk", *options, f"http://127.0.0.1:{port}{path}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "Non-2xx" not in text and "Socket errors" not in text, text
    rate, tail = re.search(r"Requests/sec:\s+([\d.]+)", text), re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    assert rate and tail, text
    return Measured(float(rate[1]), float(tail[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[tail[2]])


def direct(model: Model, batches: Sequence[dict[str, Array]], count: int) -> Measured:
    """Call `predict` on the same rows."""
    times, start = [], time.perf_counter()
    for number in range(count):
        before = time.perf_counter()
        rows = len(model.predict(batches[number % len(batches)]))
        times.append(time.perf_counter() - before)
    return Measured(count * rows / (time.perf_counter() - start), float(np.quantile(times, 0.99)))


def infer_requests(batches: Sequence[dict[str, Array]], *, binary: bool) -> list[bytes]:
    return [http(f"/v2/models/{NAME}/infer", *encode(batch, binary=binary)) for batch in batches]


def as_json(batches: Sequence[dict[str, Array]]) -> list[bytes]:
    """Return the bodies that a plain handler and MLflow take."""
    return [json.dumps({"inputs": {m: x.tolist() for m, x in batch.items()}}).encode() for batch in batches]


def large_batches(model: Model, port: int, count: int) -> None:
    batches = [rows_of(model, 32, seed=seed) for seed in range(8)]
    requests = infer_requests(batches, binary=True)
    rounds = [(measure(port, requests, 32, count, 2), direct(model, batches, count)) for _ in range(ROUNDS)]
    ours, predict = (Measured.of(part) for part in zip(*rounds, strict=True))
    print(f"32 rows in bytes, /infer   {ours}\n32 rows, model.predict     {predict}")
    print(f"  throughput /infer / predict: {ours.rows / predict.rows:.2f} (claim: at least 0.5)")
    print(f"  p99 /infer / predict: {ours.p99 / predict.p99:.2f}")


def single_rows(model: Model, folder: Path, port: int, count: int) -> None:
    batches = [rows_of(model, 1, seed=seed) for seed in range(64)]
    in_json, in_bytes = (infer_requests(batches, binary=binary) for binary in (False, True))
    bodies = as_json(batches)
    plain = [http("/predict", body, JSON) for body in bodies]
    with running("plain", folder) as (other, _):
        measure(other, plain, 1, 50, CLIENTS)
        rounds = [
            (
                measure(port, in_json, 1, count, CLIENTS),
                measure(port, in_bytes, 1, count, CLIENTS),
                measure(other, plain, 1, count, CLIENTS),
                direct(model, batches, count),
            )
            for _ in range(ROUNDS)
        ]
        if shutil.which("wrk"):
            by_wrk = (
                measure_with_wrk(port, f"/v2/models/{NAME}/infer", *encode(batches[0]), folder),
                measure_with_wrk(other, "/predict", bodies[0], JSON, folder),
            )
            print(f"single rows as JSON, wrk, {CLIENTS} connections\n  /infer {by_wrk[0]}\n  plain  {by_wrk[1]}")
            print(f"  throughput / plain handler {by_wrk[0].rows / by_wrk[1].rows:.2f}")
            print(f"  p99 / plain handler {by_wrk[0].p99 / by_wrk[1].p99:.2f}")
    ours, ours_in_bytes, handler, predict = (Measured.of(part) for part in zip(*rounds, strict=True))
    print(f"single rows, {CLIENTS} clients\n  /infer, JSON      {ours}\n  /infer, bytes     {ours_in_bytes}")
    print(f"  plain handler     {handler}\n  model.predict     {predict} (one after the other)")
    print(f"  throughput, JSON: / plain handler {ours.rows / handler.rows:.2f} (claim: more than 1)")
    print(f"  p99, JSON: / plain handler {ours.p99 / handler.p99:.2f} (claim: less than 1)")
    print(f"  throughput, bytes: / plain handler {ours_in_bytes.rows / handler.rows:.2f}")
    print(f"  throughput, bytes: / predict on single rows {ours_in_bytes.rows / predict.rows:.2f}")


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def beside_another(kind: str, model: Model, folder: Path, ours: tuple[int, int], count: int, python: str) -> None:
    """Compare with the server of MLflow or KServe; its first answer is compared with `predict`."""
    with running(kind, folder, python) as theirs:
        (port, _), (other, _) = ours, theirs
        for rows, clients, requests in ((1, CLIENTS, count), (32, 2, count // 8)):
            batches = [rows_of(model, rows, seed=seed) for seed in range(16)]
            asked = infer_requests(batches, binary=False)
            path, bodies = "/invocations", as_json(batches)
            if kind == "kserve":
                path, bodies = f"/v2/models/{NAME}/infer", [encode(batch, binary=False)[0] for batch in batches]
            scored = [http(path, body, JSON) for body in bodies]
            answer = json.load(urlopen(Request(f"http://127.0.0.1:{other}{path}", bodies[0], JSON)))
            found = answer["predictions"] if kind == "mlflow" else answer["outputs"][0]["data"]
            np.testing.assert_allclose(found, model.predict(batches[0]), rtol=1e-4, atol=1e-5)
            measure(other, scored, rows, 20, clients)
            before = [cpu_seconds(pid) for _, pid in (ours, theirs)]
            measured = [
                (measure(port, asked, rows, requests, clients), measure(other, scored, rows, requests, clients))
                for _ in range(ROUNDS)
            ]
            used, others = (cpu_seconds(pid) - start for (_, pid), start in zip((ours, theirs), before, strict=True))
            here, there = (Measured.of(part) for part in zip(*measured, strict=True))
            print(f"{rows} rows as JSON, {clients} clients\n  /infer  {here}\n  {kind}  {there}")
            print(f"  throughput / {kind} {here.rows / there.rows:.2f} (claim: more than 1)")
            print(f"  p99 / {kind} {here.p99 / there.p99:.2f} (claim: less than 1)")
            print(f"  processor time / {kind} {used / others:.2f} (claim: less than 0.5)")


def memory(folder: Path, count: int) -> None:
    model = module_model(folder / "model", "mbd.model.examples.late_fusion:LateFusion", SMALL)
    batches = [rows_of(model, rows, seed=rows) for rows in (1, 2, 4)]
    requests = [*infer_requests(batches, binary=True), *infer_requests(batches, binary=False)]
    with running("ours", folder) as (port, pid):

        def used() -> int:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        asyncio.run(load_on(port, requests, count // 10, CLIENTS))
        before = used()
        asyncio.run(load_on(port, requests, count, CLIENTS))
        grown = (used() - before) / count
    print(f"memory over {count} requests: {grown:+.1f} bytes for each, {before / 2**20:.0f} MB before (claim: < 100)")


def speed(folder: Path, count: int, other: str | None, python: str) -> None:
    """Measure the server beside others, or beside `other` alone, which the interpreter `python` runs."""
    model = module_model(folder / "model", FACTORY, SHAPES)
    with running("ours", folder) as ours:
        port, _ = ours
        measure(port, infer_requests([rows_of(model, 1)], binary=True), 1, 50, 1)
        if other:
            beside_another(other, model, folder, ours, count, python)
        else:
            large_batches(model, port, count // 8)
            single_rows(model, folder, port, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200_000, help="requests over which memory is watched; 0: none")
    parser.add_argument("--count", type=int, default=2000, help="requests of each measurement of speed; 0: none")
    parser.add_argument(
        "--beside", choices=["mlflow", "kserve"], help="compare speed with this server, instead of the others"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs that server")
    parser.add_argument("--serve", choices=APPS, help="run one server (used by the program)")
    parser.add_argument("--folder", type=Path, help="folder of its model (used by the program)")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.folder)
        return
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        for name in ("large", "small"):
            (Path(temporary) / name).mkdir()
        if options.count:
            speed(Path(temporary) / "large", options.count, options.beside, options.python)
        if options.requests:
            memory(Path(temporary) / "small", options.requests)


if __name__ == "__main__":
    main()
