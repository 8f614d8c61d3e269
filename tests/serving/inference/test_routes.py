"""Inference over HTTP: the answers are those of `predict`, and what is wrong is said."""

import json
from collections.abc import Iterator
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mbd.model.predictor import Model, load
from mbd.serving.inference.routes import InferenceService
from mbd.tensors import Array
from tests.model.modules import MIXED, VECTORS
from tests.monitoring.golden_store import GOLDEN
from tests.serving.inference.server import VERSION, Client, application, module_model, put, rows_of, served, service_of

CLASSES = ("angry", "happy", "sad")
CERTIFICATE = "c" * 64


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """Models of every kind of input: token ids, a sequence, an image, vectors; with and without classes."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "mixed": module_model(folder / "mixed", "tests.model.modules:Perception", MIXED),
        "moods": module_model(folder / "moods", "tests.model.modules:Concatenation", VECTORS, CLASSES),
        "joint": load(GOLDEN / "surgery" / "model"),
        "lattice": load(GOLDEN / "subjects" / "model"),
    }


@pytest.fixture(scope="module")
def service(models: dict[str, Model], tmp_path_factory: pytest.TempPathFactory) -> InferenceService:
    service = service_of(models, tmp_path_factory.mktemp("service"))
    put(service, "joint", models["joint"], revoked={"audio": CERTIFICATE})
    return service


@pytest.fixture(scope="module")
def client(service: InferenceService) -> Iterator[Client]:
    with served(service) as client:
        yield client


def subsets(names: list[str]) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(names, size) for size in range(1, len(names) + 1)))


def with_lengths(rows: dict[str, Array], chosen: tuple[str, ...]) -> dict[str, Array]:
    return {name: x for name, x in rows.items() if name.removesuffix("_lengths") in chosen}


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
@pytest.mark.parametrize("name", ["mixed", "moods", "joint", "lattice"])
def test_every_set_of_modalities_is_answered_as_predict_does(
    client: Client, models: dict[str, Model], name: str, binary: bool
) -> None:
    model = models[name]
    rows = rows_of(model, 5)
    for chosen in subsets(list(model.modalities)):
        given = with_lengths(rows, chosen)
        reply = client.infer(name, given, binary=binary, id="one")
        assert reply.status == 200, reply.document
        (found,) = reply.outputs.values()
        np.testing.assert_array_equal(found, model.predict(given))
        assert (reply.document["id"], reply.document["model_version"]) == ("one", VERSION)
        assert ("inference-header-content-length" in reply.headers) == binary


def test_lengths_count_and_default_to_the_whole_row(client: Client, models: dict[str, Model], tmp_path: Path) -> None:
    model = module_model(tmp_path / "m", "tests.model.modules:Recurrent", {"audio": MIXED["audio"]})
    rows = rows_of(model, 4)
    assert not np.array_equal(model.predict(rows), model.predict({"audio": rows["audio"]}))
    with served(service_of({"gru": model}, tmp_path)) as own:
        np.testing.assert_array_equal(own.infer("gru", rows).outputs["prediction"], model.predict(rows))
        whole = {"audio": rows["audio"]}
        np.testing.assert_array_equal(own.infer("gru", whole).outputs["prediction"], model.predict(whole))


def test_pixels_may_be_bytes(client: Client, models: dict[str, Model]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 2, 8, 8), dtype=np.uint8)
    for binary in (False, True):
        reply = client.infer("mixed", {"image": pixels}, binary=binary)
        np.testing.assert_array_equal(reply.outputs["prediction"], models["mixed"].predict({"image": pixels}))


def test_nested_and_flat_data_mean_the_same(client: Client, models: dict[str, Model]) -> None:
    x = rows_of(models["joint"], 2)["text"]
    entry = {"name": "text", "datatype": "FP32", "shape": [2, 12]}
    replies = [post(client, "joint", {"inputs": [entry | {"data": data}]}) for data in (x.tolist(), x.ravel().tolist())]
    assert replies[0] == replies[1]


def test_an_output_is_binary_if_it_is_asked_for(client: Client, models: dict[str, Model]) -> None:
    rows = {"text": rows_of(models["moods"], 2)["text"]}
    wanted = [{"name": "probabilities", "parameters": {"binary_data": True}}]
    reply = client.infer("moods", rows, outputs=wanted)
    assert reply.headers["content-type"] == "application/octet-stream"
    np.testing.assert_array_equal(reply.outputs["probabilities"], models["moods"].predict(rows))


def test_metadata_lists_modalities_as_optional_inputs(client: Client) -> None:
    found = client.get("/v2/models/mixed").document
    inputs = {tensor["name"]: (tensor["datatype"], tensor["shape"]) for tensor in found["inputs"]}
    assert inputs == {
        "text": ("INT64", [-1, 6]),
        "text_lengths": ("INT64", [-1]),
        "audio": ("FP32", [-1, 8, 4]),
        "audio_lengths": ("INT64", [-1]),
        "image": ("FP32", [-1, 2, 8, 8]),
    }
    assert all(tensor["parameters"]["optional"] for tensor in found["inputs"])
    assert found["outputs"] == [{"name": "prediction", "datatype": "FP32", "shape": [-1]}]
    moods = client.get("/v2/models/moods").document["outputs"]
    assert moods[0]["shape"] == [-1, 3] and moods[0]["parameters"] == {"classes": list(CLASSES)}
    assert client.get(f"/v2/models/mixed/versions/{VERSION}").document == found


def test_the_server_says_what_it_is_and_which_models_are_ready(client: Client, service: InferenceService) -> None:
    assert client.get("/v2").document["extensions"] == ["binary_tensor_data"]
    assert client.get("/v2/health/ready").status == 200
    assert client.get("/v2/models/mixed/ready").document == {"name": "mixed", "ready": True}
    reply = client.get("/v2/models/smell/ready")
    assert (reply.status, reply.document["reason"]) == (404, "unknown_model")
    assert client.get(f"/v2/models/mixed/versions/{'0' * 64}").status == 404


def test_a_revoked_modality_is_refused_with_the_certificate(client: Client) -> None:
    for name in ("audio", "audio_lengths"):
        reply = client.infer("joint", {name: np.zeros((1, 6), np.float32)})
        assert (reply.status, reply.document["reason"]) == (422, "revoked_modality")
        assert reply.document["certificate"] == CERTIFICATE
        assert reply.headers["content-type"] == "application/problem+json"
        assert (reply.document["status"], reply.document["detail"]) == (422, reply.document["error"])
        assert f"audio was revoked by certificate {CERTIFICATE}" in reply.document["error"]
    assert client.get("/v2/models/joint").document["parameters"] == {"revoked": {"audio": CERTIFICATE}}


def post(client: Client, name: str, document: Any, **headers: str) -> dict[str, Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return client.send("POST", f"/v2/models/{name}/infer", body, headers).document


def text(data: Any = None, shape: Any = (1, 12), datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    data = [0.5] * 12 if data is None else data
    return {"inputs": [{"name": "text", "datatype": datatype, "shape": shape, "data": data} | more]}


WRONG: dict[str, tuple[Any, str]] = {
    "not JSON": (b"{", "the request is not JSON"),
    "a list": ([], "should be a valid dictionary"),
    "no inputs": ({"inputs": []}, "at least 1 item"),
    "no name": ({"inputs": [{"datatype": "FP32", "shape": [1]}]}, "Field required"),
    "an unknown input": (text(name="smell"), "the model has no input 'smell'"),
    "an unknown datatype": (text(datatype="FP8"), "FP32|FP64"),
    "another datatype": (text([1] * 12, datatype="INT64"), "text must be FP32, not INT64"),
    "another shape": (text([0.5] * 11, (1, 11)), "text must have the shape [-1, 12]"),
    "a shape that is none": (text(shape=[1.5, 12]), "valid integer"),
    "a negative shape": (text(shape=[-1, 12]), "greater than or equal to 0"),
    "a shape that the data do not have": (text(shape=[2, 12]), "its data have the shape [12]"),
    "ragged data": (text([[0.5] * 11, [0.5]]), "different lengths"),
    "words": (text(["a"] * 12), "not a list of numbers"),
    "nothing": (text([None] * 12), "not a list of numbers"),
    "no data": ({"inputs": [{"name": "text", "datatype": "FP32", "shape": [1, 12]}]}, "not a list of numbers"),
    "no rows": (text([], (0, 12)), "the request has no rows"),
    "NaN": (text([float("nan")] + [0.5] * 11), "1 values of text are NaN or infinite"),
    "a number beyond float32": (text([1e300] + [0.5] * 11), "1 values of text are NaN or infinite"),
    "the same input twice": ({"inputs": text()["inputs"] * 2}, "'text' is there twice"),
    "different numbers of rows": (
        {"inputs": [*text()["inputs"], {"name": "visual", "datatype": "FP32", "shape": [2, 8], "data": [0.5] * 16}]},
        "different numbers of rows",
    ),
    "an unknown output": (text() | {"outputs": [{"name": "loss"}]}, "no output 'loss'"),
    "a parameter that would be ignored": (text() | {"parameters": {"sequence_id": 7}}, "a key that is not known"),
    "bytes that are not there": (text(parameters={"binary_data_size": 48}), "either data or binary_data_size"),
    "an id that is no text": (text() | {"id": 7}, "valid string"),
    "too many rows": (text([0.5] * 12 * 1025, (1025, 12)), "at most 1024 rows"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_request_is_refused_with_the_reason(client: Client, what: str) -> None:
    document, expected = WRONG[what]
    assert expected in post(client, "joint", document)["error"]


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("text", np.full((1, 6), 40), "token ids from 0 to 39"),
        ("text", np.full((1, 6), -1), "token ids from 0 to 39"),
        ("text_lengths", np.array([3]), "there are lengths of text, and no text"),
    ],
)
def test_wrong_token_ids_and_lengths_are_refused(client: Client, name: str, inputs: Array, expected: str) -> None:
    reply = client.infer("mixed", {name: inputs})
    assert (reply.status, reply.document["reason"]) == (422, "invalid_input")
    assert expected in reply.document["error"]


@pytest.mark.parametrize("length", ["-1", "x", "1000000", "", "²"])
def test_a_wrong_length_of_the_json_is_refused(client: Client, length: str) -> None:
    headers = {"Inference-Header-Content-Length": length.encode().decode("latin-1")}
    reply = client.send("POST", "/v2/models/joint/infer", b"{}", headers)
    assert (reply.status, reply.document["reason"]) == (400, "malformed")


def test_a_compressed_request_is_refused(client: Client) -> None:
    reply = client.send("POST", "/v2/models/joint/infer", b"{}", {"Content-Encoding": "gzip"})
    assert "compressed requests are not supported" in reply.document["error"]


def test_refusals_are_counted_by_reason_and_no_label_is_made_up_by_clients(
    client: Client, service: InferenceService
) -> None:
    def count(model: str, reason: str) -> float:
        labels = {"model": model, "reason": reason}
        return service.samples.registry.get_sample_value("mbd_inference_refused_total", labels) or 0

    before = count("joint", "malformed"), count("", "unknown_model")
    post(client, "joint", b"{")
    post(client, "made-up", b"{")
    assert (count("joint", "malformed"), count("", "unknown_model")) == (before[0] + 1, before[1] + 1)
    assert "made-up" not in service.samples.text()


def test_the_openapi_document_has_every_answer(service: InferenceService) -> None:
    paths = application(service).openapi()["paths"]
    answers = paths["/v2/models/{name}/infer"]["post"]["responses"]
    assert set(answers) == {"200", "400", "404", "413", "422", "500", "503"}
    assert set(answers["200"]["content"]) == {"application/json", "application/octet-stream"}
    assert answers["422"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
