"""The dashboard: every panel queries metrics that exist."""

import json
from pathlib import Path
from typing import Any

from mbd.monitoring.metrics import ALL
from tests.deploy.queries import selectors
from tests.deploy.test_prometheus import RECORDED
from tests.monitoring.page import ExporterPage

BOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "deploy" / "grafana" / "dashboard.json").read_text(encoding="utf-8")
)
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
LABELS = {metric.name: {*metric.labels, "step", "model"} for metric in ALL}
ONLY_STEPS = {
    "mbd_deletion_edited_parameters",
    "mbd_deletion_guarantee_epsilon",
    "mbd_evaluation_mean_absolute_error",
    "mbd_evaluation_ratio",
    "mbd_push_last_failure_timestamp_seconds",
    "mbd_step_duration_seconds",
    "mbd_step_phase_duration_seconds",
}
"""metrics that only steps report, because their source is not in the store"""


def queries() -> list[str]:
    variables = [one["query"]["query"] for one in BOARD["templating"]["list"] if one["type"] == "query"]
    return variables + [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_the_exporter_reports_every_metric_except_those_of_steps(emitted: list[ExporterPage]) -> None:
    asked = {name for query in queries() for name, _ in selectors(query)}
    exporter, *steps = emitted
    assert asked - RECORDED - ONLY_STEPS <= exporter.names
    assert {name for page in steps for name in page.names} >= ONLY_STEPS
    assert asked >= ONLY_STEPS


def test_labels_exist() -> None:
    for query in queries():
        for name, labels in selectors(query):
            assert labels <= LABELS.get(name, {"model", "modality"}), query


def test_a_panel_has_a_title_a_query_and_the_chosen_source() -> None:
    for panel in PANELS:
        assert panel["title"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}, panel["title"]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
