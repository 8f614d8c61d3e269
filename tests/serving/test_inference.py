"""Inference beside the rest of the HTTP interface: one server, one set of tokens, one page of metrics."""

from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient

from mbd.model.predictor import load
from mbd.params import load_params
from mbd.serving.app import create_app
from mbd.serving.service import Service
from tests.monitoring.golden_store import GOLDEN, golden
from tests.production.registering import Production
from tests.serving.inference.server import encode, rows_of
from tests.serving.site import Site, SiteClient
from tests.serving.waiting import wait_until

NAME = golden("exact").predicate.model
SETTINGS = (f"serving.inference.models=[{NAME}]", "serving.inference.poll_seconds=0.1")


def site_with_a_model(folder: Path, *settings: str) -> Site:
    site = Site.make(folder, *SETTINGS, *settings)
    site.golden.files("exact")
    site.golden.certificate("exact")
    return site


def ready(client: SiteClient) -> None:
    wait_until(lambda: client.get(f"/v2/models/{NAME}/ready").status_code == 200)


def test_a_model_answers_beside_requests_and_metrics_without_a_token_or_a_rate(tmp_path: Path) -> None:
    site = site_with_a_model(tmp_path, "serving.rate_per_minute=4", "serving.body_bytes=1024")
    model = load(GOLDEN / "exact" / "model")
    rows = {"text": rows_of(model, 40)["text"]}
    body, headers = encode(rows)
    assert len(body) > 1024
    with site.client() as client:
        ready(client)
        for _ in range(10):
            reply = client.http.post(f"/v2/models/{NAME}/infer", content=body, headers=headers)
            assert reply.status_code == 200, reply.text
        answer = reply.json()["outputs"][0]
        np.testing.assert_allclose(answer["data"], model.predict(rows), rtol=1e-5)
        assert f'mbd_inference_ready{{model="{NAME}"}} 1.0' in client.get("/metrics").text
        assert client.get("/healthz").status_code == 200


def test_inference_needs_a_token_that_may_read_unless_it_is_public(tmp_path: Path) -> None:
    with site_with_a_model(tmp_path, "serving.public=[store, metrics]").client() as client:
        assert client.get(f"/v2/models/{NAME}", role=None).status_code == 401
        assert client.get(f"/v2/models/{NAME}", role="submit").status_code == 403
        ready(client)


def test_every_refusal_has_the_member_that_clients_of_the_protocol_read(tmp_path: Path) -> None:
    settings = ("serving.public=[store, metrics]", "serving.inference.request_bytes=4096")
    with site_with_a_model(tmp_path, *settings).client() as client:
        ready(client)
        path, headers = f"/v2/models/{NAME}/infer", client.site.headers("read")
        for body in (b" " * 4097, (b" " * 1024 for _ in range(5))):  # announced or not
            large = client.http.post(path, content=body, headers=headers)
            assert (large.status_code, large.json()["reason"]) == (413, "too_large")
            assert large.json()["error"] == "the body of a request has at most 4096 bytes"
        refused = f'mbd_inference_refused_total{{model="{NAME}",reason="too_large"}} 2.0'
        assert refused in client.get("/metrics").text
        for address, role in ((path, "read"), (f"/v2/models/{NAME}", None), ("/v2/nothing", "read")):
            answer = client.get(address, role=role).json()
            assert answer["error"] == answer["detail"]


def test_without_models_there_is_no_inference_but_its_document_is_in_the_openapi_otherwise(tmp_path: Path) -> None:
    with Site.make(tmp_path / "plain").client() as client:
        assert client.get(f"/v2/models/{NAME}").status_code == 404
    with site_with_a_model(tmp_path / "models").client() as client:
        assert "/v2/models/{name}/infer" in client.get("/openapi.json").json()["paths"]


def test_a_registered_model_is_listed_with_its_references_and_answers(tmp_path: Path) -> None:
    production = Production.make(tmp_path)
    registered = production.register("audio")
    settings = [*production.settings, *SETTINGS, "serving.inference.models=[sentiment]", "registration.retrain_days=30"]
    service = Service.open(load_params(None, settings), production.store, production.trust_file)
    body, headers = encode({"text": rows_of(load(production.model), 3)["text"]})
    with TestClient(create_app(service)) as client:
        wait_until(lambda: client.get("/v2/models/sentiment/ready").status_code == 200)
        assert service.monitor.scanned.wait(20)
        (found,) = client.get("/models").json()["models"]
        assert (found["current"], found["registered"]["digest"]) == (None, registered.registration)
        assert sorted(found["takes"]) == ["audio", "text", "visual"]
        assert [m for m, weights in found["references"].items() if weights] == ["audio"]
        assert 'mbd_model_retrain_timestamp_seconds{model="sentiment"}' in client.get("/metrics").text
        reply = client.post("/v2/models/sentiment/infer", content=body, headers=headers).json()
        assert reply["model_version"] == registered.registration
