"""A model server on the loopback interface, a client that speaks the protocol byte by byte, and models to serve."""

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI

from mbd.formats.features import Shape
from mbd.formats.model import DataRecord, ModelRecord
from mbd.model.checkpoint import describe, save_model
from mbd.model.contract import Architecture, load_factory
from mbd.model.joint import to_tensor_dict
from mbd.model.module import spec_of
from mbd.model.predictor import Model, load
from mbd.params import load_params
from mbd.records import now
from mbd.serving import problems
from mbd.serving.inference.routes import InferenceService, router
from mbd.serving.inference.served import Release, Serving, Signature
from mbd.storage import open_store
from mbd.tensors import Array
from tests.serving.waiting import wait_until

DATATYPES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "uint8": "UINT8"}
VERSION = "f" * 64


def module_model(
    folder: Path, factory: str, shapes: Mapping[str, Shape], classes: tuple[str, ...] = (), seed: int = 1
) -> Model:
    """Return a model with random weights, loaded from a folder."""
    architecture = Architecture(load_factory(factory), shapes, max(len(classes), 1), name=factory)
    tensors = to_tensor_dict(architecture.build(seed=seed))
    record = ModelRecord(
        backbone=factory,
        spec=spec_of(architecture, {}),
        task="classification" if classes else "regression",
        classes=classes,
        label_range=None if classes else (-3.0, 3.0),
        modalities={m: shape.width for m, shape in shapes.items()},
        seed="0",
        data=DataRecord(name="none", files={}),
        tensors={name: describe(tensor, tuple(shapes)) for name, tensor in tensors.items()},
        sha256="",
    )
    folder.mkdir()
    save_model(folder, record, tensors)
    return load(folder)


def rows_of(model: Model, count: int, seed: int = 0) -> dict[str, Array]:
    """Return random inputs of a model: all modalities, and lengths where there are some."""
    draw, found = np.random.default_rng(seed), dict[str, Array]()
    for modality, shape in model.record.shapes.items():
        if modality not in model.record.inputs:
            continue
        if shape.kind == "tokens":
            found[modality] = draw.integers(0, shape.vocabulary or 1, (count, *shape.size))
        else:
            found[modality] = draw.normal(size=(count, *shape.size)).astype(np.float32)
        if shape.has_lengths:
            found[f"{modality}_lengths"] = draw.integers(1, shape.size[0] + 1, count)
    return found


@dataclass(frozen=True)
class Reply:
    """An answer."""

    status: int
    document: dict[str, Any]
    outputs: dict[str, Array]
    headers: dict[str, str]


def encode(inputs: Mapping[str, Array], *, binary: bool = False, **more: Any) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a request."""
    entries, parts = [], []
    for name, array in inputs.items():
        entry: dict[str, Any] = {"name": name, "datatype": DATATYPES[str(array.dtype)], "shape": list(array.shape)}
        if binary:
            parts.append(array.tobytes())
            entry["parameters"] = {"binary_data_size": array.nbytes}
        else:
            entry["data"] = array.tolist()
        entries.append(entry)
    if binary:
        more = {"parameters": {"binary_data_output": True}, **more}
    head = json.dumps({"inputs": entries, **more}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))} if binary else {"Content-Type": "application/json"}
    return b"".join((head, *parts)), headers


def decode(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Parse an answer as a client of the protocol does."""
    length = int(headers.get("inference-header-content-length", len(body)))
    document = json.loads(body[:length])
    outputs, rest = {}, body[length:]
    for entry in document["outputs"] if "model_version" in document else ():
        size = entry.get("parameters", {}).get("binary_data_size")
        values = np.array(entry["data"], np.float32) if size is None else np.frombuffer(rest[:size], "<f4")
        rest = rest[size or 0 :]
        outputs[entry["name"]] = values.reshape(entry["shape"])
    assert not rest
    return Reply(status, document, outputs, dict(headers))


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        self._connection.request(method, path, body, dict(headers or {}))
        response = self._connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return decode(response.status, found, response.read())

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str) -> Reply:
        return self.send("GET", path)

    def infer(self, name: str, inputs: Mapping[str, Array], *, binary: bool = False, **more: Any) -> Reply:
        return self.send("POST", f"/v2/models/{name}/infer", *encode(inputs, binary=binary, **more))


@contextmanager
def listening(app: FastAPI, *, lifespan: bool = True) -> Iterator[int]:
    """Serve an application; yield the port."""
    # These clients do not connect again: on a busy machine one may rest for longer than the default of 5 s.
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="on" if lifespan else "off",
        ws="none",
        timeout_keep_alive=60,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)


def application(service: InferenceService) -> FastAPI:
    app = FastAPI()
    problems.install(app)
    app.include_router(router(service))
    return app


def service_of(models: Mapping[str, Model], folder: Path, *settings: str) -> InferenceService:
    """Return a service that serves given models, as if a log had released them; no log is followed."""
    own = f"serving.inference.models={list(models)}"
    store = open_store(f"file://{folder}/store")
    service = InferenceService(load_params(None, [own, *settings]), store, folder / "trust.json")
    for name, model in models.items():
        put(service, name, model)
    return service


def put(service: InferenceService, name: str, model: Model, version: str = VERSION, **more: Any) -> None:
    """Serve a model under a name."""
    service.models[name].state = Serving(Release(name, version, now()), model, Signature(model), **more)


@contextmanager
def served(service: InferenceService) -> Iterator[Client]:
    """Serve what a service has now, without a poller."""
    service.batcher.start()
    try:
        with listening(application(service), lifespan=False) as port, Client(port) as client:
            yield client
    finally:
        service.batcher.stop()


@contextmanager
def following(service: InferenceService, *names: str) -> Iterator[Client]:
    """Serve what a log says; start when these models are ready."""
    with listening(application(service)) as port, Client(port) as client:
        for name in names:
            wait_until(partial(_ready, client, name))
        yield client


def _ready(client: Client, name: str) -> bool:
    return client.get(f"/v2/models/{name}/ready").status == 200
