"""What docker/compose.yaml runs, as processes on this machine: its set-up, then `mbd serve` with a worker."""

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.servers.process import answers, free_port, running, wait_until
from tests.integration.servers.rgw import S3

pytestmark = pytest.mark.services
COMPOSE = yaml.safe_load((Path(__file__).parents[2] / "docker" / "compose.yaml").read_text())


def test_the_set_up_can_be_repeated_and_a_request_over_http_ends_with_a_certificate(
    s3: S3, quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", str(quick / "bin"), prepend=":")
    monkeypatch.chdir(tmp_path)
    cache = COMPOSE["x-mbd"]["environment"]["XDG_CACHE_HOME"]
    monkeypatch.setenv("XDG_CACHE_HOME", cache.replace("/workspace", str(tmp_path)))
    content = yaml.safe_load(COMPOSE["configs"]["params"]["content"])
    content["store"]["endpoint"], content["monitoring"] = s3.endpoint, {"mode": "none"}
    content["serving"]["inference"]["poll_seconds"] = 1
    Path("params.yaml").write_text(yaml.safe_dump(content))
    setup = COMPOSE["services"]["setup"]
    for _ in range(2):
        subprocess.run([*setup["entrypoint"], *setup["command"]], check=True, timeout=240)
    token, port = Path("build/keys/token").read_text().strip(), str(free_port())
    arguments = [
        {"0.0.0.0": "127.0.0.1", "8890": port}.get(word, word) for word in COMPOSE["services"]["serve"]["command"]
    ]
    url, log = f"http://127.0.0.1:{port}", tmp_path / "serve.log"

    def call(path: str, document: object = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        body = None if document is None else json.dumps(document).encode()
        with urllib.request.urlopen(urllib.request.Request(url + path, body, headers), timeout=30) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    with running(["mbd", *arguments], log) as process:
        wait_until(lambda: answers(f"{url}/readyz"), process, log, seconds=60)
        asked = call("/requests", {"model": "sentiment", "modalities": ["audio"], "requester": "case-17"})
        end = time.monotonic() + 240
        while (request := call(f"/requests/{asked['id']}"))["state"] in ("received", "running"):
            assert time.monotonic() < end, log.read_text()
            time.sleep(1)
        assert request["state"] == "certified", request
