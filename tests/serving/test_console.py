"""The files of the console and of /docs, and what the description of the interface says."""

import re
from importlib.resources import files

import pytest

from mbd.serving.app import create_app
from mbd.serving.problems import Problem
from tests.serving.site import Site, SiteClient


@pytest.mark.parametrize("path", ["/", "/console/", "/console/requests/0123456789abcdef", "/docs"])
def test_pages_load_only_files_that_this_server_has(client: SiteClient, path: str) -> None:
    page = client.get(path, None)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    loaded = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.text)
    assert len(loaded) >= 2
    for name in loaded:
        asset = client.get(name, None)
        assert asset.status_code == 200, name
        assert asset.headers["content-type"].split(";")[0] in ("text/javascript", "text/css")
        assert asset.headers["content-security-policy"] == page.headers["content-security-policy"]
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy


def test_every_file_of_the_console_is_served_and_no_other(client: SiteClient) -> None:
    scripts = [each.name for each in files("mbd.serving").joinpath("console").iterdir()]
    assert {client.get(f"/assets/{name}", None).status_code for name in scripts if not name.endswith(".html")} == {200}
    assert client.get("/assets/console.html", None).status_code == 404
    assert client.get("/assets/..%2fservice.py", None).status_code == 404


def test_each_operation_has_an_example_and_each_error_its_body(site: Site) -> None:
    document = create_app(site.service()).openapi()
    operations = [(path, each) for path, some in document["paths"].items() for each in some.values()]
    assert len(operations) > 15
    for path, operation in operations:
        curl, python = re.findall(r"```\w+\n(.+?)\n```", operation["description"])
        assert "{" not in curl.rpartition(" ")[2] and path.split("{")[0] in curl and path.split("{")[0] in python
        compile(python, path, "eval")
        for status, response in operation["responses"].items():
            if status >= "400":
                body = Problem.model_validate(response["content"]["application/problem+json"]["example"])
                assert body.status == int(status)
    submit = document["paths"]["/requests"]["post"]["description"]
    assert '"modalities": ["audio"]' in submit and "Authorization" in submit
