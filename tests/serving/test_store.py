"""The store over HTTP: what is published, with the right caching, and nothing else."""

import pytest

from mbd.formats.files import INDICES, REPORT, WEIGHTS
from mbd.formats.layout import certificate_name, object_name, proof_name
from tests.monitoring.golden_store import golden
from tests.serving.site import Site, SiteClient

FOREVER = "public, max-age=31536000, immutable"


def test_what_is_named_by_its_digest_is_cached_for_good_and_the_rest_is_checked(site: Site) -> None:
    site.golden.files("surgery")
    digest = site.golden.certificate("surgery")
    site.golden.publish_many(site.golden.revocations(digest, 260))
    with site.client() as client:
        names = {
            certificate_name(digest): FOREVER,
            object_name(golden("surgery").digests[REPORT]): FOREVER,
            "log/tile/0/000": FOREVER,
            "log/tile/entries/000": FOREVER,
            "log/tile/0/001.p/5": "no-cache",
            proof_name(digest): "no-cache",
            "log/checkpoint": "no-cache",
            "latest/sentiment/audio": "no-cache",
        }
        for name, cache in names.items():
            if name.startswith("latest"):
                site.golden.store.create(name, b"{}")
            answer = client.get(f"/store/{name}", None)
            assert (name, answer.status_code, answer.headers.get("Cache-Control")) == (name, 200, cache)
            assert answer.content == site.golden.store.read(name)
            again = client.get(f"/store/{name}", None, headers={"If-None-Match": answer.headers["ETag"]})
            assert (again.status_code, again.content) == (304, b"")
            head = client.http.head(f"/store/{name}")
            assert (head.status_code, head.content) == (200, b"")
            assert int(head.headers["Content-Length"]) == len(answer.content)


def test_weights_are_served_only_if_that_is_allowed(site: Site) -> None:
    site.golden.files("surgery")
    site.golden.certificate("surgery")
    digests = golden("surgery").digests
    weights, indices = f"/store/{object_name(digests[WEIGHTS])}", f"/store/{object_name(digests[INDICES])}"
    with site.client() as client:
        assert client.get(weights, None).status_code == 404
        assert client.get(indices, None).status_code == 200
    site.settings.append("serving.weights=true")
    with site.client() as client:
        assert client.get(weights, None).content == site.golden.store.read(object_name(digests[WEIGHTS]))


@pytest.mark.parametrize(
    "name",
    [
        "private/requests/{id}.json",
        "requests/{id}.json",
        "log/../private/requests/{id}.json",
        "log/%2e%2e/private/requests/{id}.json",
        "log//private",
        "objects/sha256/../../private/requests/{id}.json",
        "objects/sha256/abc",
        "certificates/{digest}/step.json",
        "latest/../private/x",
        "latest/..%2fprivate/x",
        ".lock",
        ".partial/x",
        "",
        "%00",
        "log/checkpoint%00",
        "x" * 900,
    ],
)
def test_nothing_private_can_be_reached(client: SiteClient, name: str) -> None:
    identifier = client.submit(reason="secret reason").json()["id"]
    digest = next(iter(client.service.history.certificates))
    answer = client.get("/store/" + name.format(id=identifier, digest=digest), None)
    assert answer.status_code in (404, 422), name
    assert "secret reason" not in answer.text


def test_the_store_needs_a_token_where_it_is_not_public(site: Site) -> None:
    site.golden.certificate("surgery")
    site.settings.append("serving.public=[metrics]")
    with site.client() as client:
        for path in ("/store/log/checkpoint", "/certificates", "/models", "/models/sentiment"):
            assert client.get(path, None).status_code == 401
            assert client.get(path, "submit").status_code == 403
            assert client.get(path).status_code == 200
        assert client.get("/metrics", None).status_code == 200
