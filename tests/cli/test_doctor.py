"""`mbd doctor` as it is typed."""

import json
import re
import time
from pathlib import Path

from tests.command import run_mbd
from tests.doctor.servers import http_server, silent_server


def test_what_works_and_what_to_do_about_the_rest(tmp_path: Path) -> None:
    healthy = {"GET /-/ready": (200, b"OK"), "GET /apis/v2beta1/healthz": (200, b"{}")}
    with http_server(healthy) as url:
        settings = ("--set", f"monitoring.pushgateway={url}", "--set", f"platform.kubeflow_host={url}")
        done = run_mbd("doctor", *settings, cwd=tmp_path)
    assert done.exit_code == 0, done.stdout + done.stderr
    for name, state in {"Pushgateway": "ok", "Kubeflow": "ok", "store": "ok", "DVC": "not configured"}.items():
        assert re.search(rf"^{name} +{state} ", done.stdout, re.MULTILINE), done.stdout
    assert "→ `git init && dvc init`" in done.stdout
    assert done.stdout.endswith("\nnothing failed\n")


def test_hosts_that_hang_do_not_hold_it_up_and_are_failures(tmp_path: Path) -> None:
    with silent_server() as silent:
        settings = ["store.url=s3://data", f"store.endpoint={silent}", f"monitoring.pushgateway={silent}"]
        options = [part for setting in [*settings, f"platform.kubeflow_host={silent}"] for part in ("--set", setting)]
        started = time.monotonic()
        done = run_mbd("doctor", "--json", *options, cwd=tmp_path)
        assert time.monotonic() - started < 20
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["healthy"] is False
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert {"python", "packages", "extra train", "git", "disk", "device", "DVC"} <= states.keys()
    assert {states["store"], states["Pushgateway"], states["Kubeflow"]} == {"failed"}
    assert all(check["to_do"] for check in report["checks"] if check["state"] == "failed")
