"""Metrics of a deletion in a real Prometheus, by the Pushgateway and the exporter; alerts fire and resolve."""

import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from mbd.files import read_json
from mbd.formats.layout import certificate_name
from mbd.production.request_store import RequestStore
from mbd.records import now
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import KINDS, make_home
from tests.deploy.test_prometheus import FOLDER, promtool
from tests.integration.command import mbd
from tests.integration.servers.process import answers, free_port, need, running, wait_until
from tests.integration.servers.prometheus import Prometheus, prometheus_server, push_gateway

pytestmark = pytest.mark.services
OURS = re.compile(r"(# (HELP|TYPE) )?mbd_")  # a gateway has metrics of its own


@dataclass(frozen=True)
class MonitoringStack:
    """A store with a certificate, its exporter, a Pushgateway, and a Prometheus that scrapes both."""

    authority: CertificateAuthority
    exporter: str
    gateway: str
    prometheus: Prometheus

    def delete(self, out: Path, *more: str) -> int:
        """Run `mbd delete` as a user does; return its exit code."""
        model_workspace = self.authority.model_workspace.folder
        output = (
            "monitoring.mode=push",
            f"monitoring.pushgateway={self.gateway}",
            f"monitoring.textfile={out}-metrics",
        )
        settings = (*KINDS["certified"][1], f"deletion.ledgers={out}-ledgers")
        folders = {"--features": model_workspace / "data", "--model": model_workspace / "model", "--out": out}
        options = [f"{name}={folder}" for name, folder in folders.items()]
        return mbd(
            "delete",
            "--modality=audio",
            *options,
            *more,
            *(f"--set={one}" for one in (*output, *settings)),
            environment={},
        ).returncode


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoringStack]:
    folder = tmp_path_factory.mktemp("monitoring")
    authority = CertificateAuthority.make(make_home(folder / "home"), folder / "authority")
    authority.publish("certified")
    port, log = free_port(), folder / "exporter.log"
    command = [sys.executable, "-c", "from mbd.cli import main; main()", "exporter", "--port", str(port)]
    options = ["--store", authority.url, "--trust", str(authority.trust_file), "--set=monitoring.scan_seconds=0.5"]
    exporter = f"http://127.0.0.1:{port}"
    with running([*command, *options], log) as process, push_gateway(folder / "gateway") as gateway:
        wait_until(lambda: answers(f"{exporter}/readyz"), process, log)
        rules = FOLDER / "rules.yaml"
        with prometheus_server(folder / "prometheus", exporter, gateway, rules=rules) as prometheus:
            yield MonitoringStack(authority, exporter, gateway, prometheus)


def test_a_deletion_is_pushed_and_a_later_failure_keeps_the_time_of_its_success(
    scene: MonitoringStack, tmp_path: Path
) -> None:
    start, ask = time.time(), scene.prometheus.value
    assert scene.delete(tmp_path / "out") == 0
    phases = read_json(tmp_path / "out" / "step.json")["phases_seconds"]
    labels = 'step="delete", model="sentiment"'
    success = ask(f"mbd_step_last_success_timestamp_seconds{{{labels}}}")
    assert start <= success <= time.time()
    assert ask(f'mbd_step_phase_duration_seconds{{{labels}, phase="cut"}}') == pytest.approx(phases["cut"])
    edited = read_json(tmp_path / "out" / "deletion.json")["indices"]["count"]
    assert edited > 0
    assert ask('mbd_deletion_edited_parameters{model="sentiment", modality="audio", method="certified"}') == edited
    assert scene.delete(tmp_path / "out", "--subject=speaker1") != 0  # the method is for whole modalities
    assert ask(f'mbd_step_last_failure_timestamp_seconds{{{labels}, reason="usage"}}') > success
    assert ask(f"mbd_step_last_success_timestamp_seconds{{{labels}}}") == success
    assert not (tmp_path / "out-metrics").exists()


def test_the_state_of_the_store_is_scraped_from_the_exporter(scene: MonitoringStack) -> None:
    ask = scene.prometheus.value
    assert ask("mbd_store_up") == 1
    assert ask('mbd_certificates{model="sentiment", kind="certified", state="valid"}') == 1
    assert ask("mbd_log_entries") == 1
    assert ask('mbd:budget_spent:ratio{model="sentiment"}') == pytest.approx(1 / 8, rel=0.01)
    leakage = 'mbd_leakage_ratio{model="sentiment", modality="audio", attack="whitebox", role="%s"}'
    assert (ask(leakage % "before"), ask(leakage % "after"), ask(leakage % "reference")) == (0.86, 0.5, 0.5)
    assert ask('mbd_certificate_reaudit_timestamp_seconds{model="sentiment"} - time()') == pytest.approx(
        90 * 86400, abs=600
    )


def test_an_alert_fires_for_a_missed_deadline_and_resolves(scene: MonitoringStack) -> None:
    long_ago = RequestStore(
        scene.authority.private, scene.authority.request_key, clock=lambda: now() - timedelta(days=40)
    )
    request = long_ago.submit("sentiment", ["audio"], due_days=30)
    scene.prometheus.wait_for_alert("MbdDeadlineMissed")
    assert scene.prometheus.value("mbd_request_oldest_pending_age_seconds") == pytest.approx(40 * 86400, abs=600)
    RequestStore(scene.authority.private, scene.authority.request_key).cancel(request.id)
    scene.prometheus.wait_for_alert("MbdDeadlineMissed", firing=False)


def test_an_alert_fires_for_a_damaged_certificate_and_resolves(scene: MonitoringStack) -> None:
    (stored,) = (one for one in scene.authority.store.list("certificates/") if one.name.endswith("certificate.json"))
    file = scene.authority.folder / "store" / stored.name
    assert stored.name == certificate_name(stored.name.split("/")[1])
    good = file.read_bytes()
    file.write_bytes(good[:-1])
    scene.prometheus.wait_for_alert("MbdVerificationFailed")
    file.write_bytes(good)
    scene.prometheus.wait_for_alert("MbdVerificationFailed", firing=False)


def test_promtool_accepts_the_metrics(scene: MonitoringStack) -> None:
    need("promtool")
    for arguments in (("check", "rules", "rules.yaml"), ("test", "rules", "rules.test.yaml")):
        done = promtool(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    for url in (scene.exporter, scene.gateway):
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as response:
            page = response.read().decode()
        ours = "".join(line for line in page.splitlines(keepends=True) if OURS.match(line))
        assert "mbd_" in ours
        done = promtool("check", "metrics", given=ours)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
