"""Rules use metrics that exist; each alert has a severity, a summary, a runbook and a unit test."""

import re
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from mbd.monitoring.metrics import ALL
from tests.deploy.queries import selectors
from tests.monitoring.page import ExporterPage

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
TESTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules.test.yaml").read_text())["tests"]
LABELS = {metric.name: {*metric.labels, "job", "instance", "step", "model"} for metric in ALL}

SERVED = {
    "mbd_http_refused_requests_total",
    "mbd_http_request_duration_seconds",
    "mbd_store_writable",
    "mbd_store_write_failures_total",
    "mbd_webhook_failures_total",
    "mbd_webhook_pending_events",
    "mbd_worker_up",
}
"""metrics of a server that is in use (tests/serving)"""


def anchors() -> set[str]:
    """Return the anchors of the headings in the runbook."""
    headings = re.findall(r"^#+ (.*)$", (REPOSITORY / "docs" / "operations.md").read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_exporter_or_a_step_reports_every_metric(emitted: list[ExporterPage]) -> None:
    output = {name for page in emitted for name in page.names}
    assert output | SERVED == {metric.name for metric in ALL}
    assert not output & SERVED


def test_rules_use_reported_metrics_and_labels(emitted: list[ExporterPage]) -> None:
    output = {name for page in emitted for name in page.names}
    for rule in RULES:
        for name, labels in selectors(rule["expr"]):
            assert name in output | RECORDED | SERVED, rule
            assert labels <= LABELS.get(name, {"reason", "step", "model"}), rule


def test_an_alert_has_a_severity_a_summary_and_a_runbook() -> None:
    for name, alert in ALERTS.items():
        assert alert["labels"]["severity"] in {"warning", "critical"}, name
        assert alert["annotations"]["summary"], name
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert page == "{{ $externalLabels.handbook }}/operations.html", name
        assert anchor in anchors(), name


def test_an_alert_fires_and_resolves_in_a_unit_test() -> None:
    """promtool runs these unit tests."""
    for name in ALERTS:
        runs = [
            [bool(check.get("exp_alerts")) for check in test["alert_rule_test"] if check["alertname"] == name]
            for test in TESTS
        ]
        assert any(run[-3:] == [False, True, False] for run in runs), (name, runs)


NEEDS_PROMTOOL = pytest.mark.skipif(
    which("promtool") is None, reason="promtool comes with Prometheus; the service tests need it"
)


def promtool(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], input=given, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=120
    )


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    "arguments",
    [("check", "rules", "rules.yaml"), ("test", "rules", "rules.test.yaml"), ("check", "config", "prometheus.yml")],
    ids=" ".join,
)
def test_promtool_accepts_rules_and_configuration(arguments: tuple[str, ...]) -> None:
    done = promtool(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_PROMTOOL
def test_promtool_accepts_every_metrics_page(emitted: list[ExporterPage]) -> None:
    for page in emitted:
        done = promtool("check", "metrics", given=page.text)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
