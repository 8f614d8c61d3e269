"""Naming of metrics: base units, bounded labels, a help text for each."""

import re

from mbd.monitoring.metrics import ALL

BOUNDED = {
    "release",
    "model",
    "modality",
    "method",
    "kind",
    "state",
    "verdict",
    "step",
    "reason",
    "phase",
    "attack",
    "role",
    "metric",
    "regime",
    "corrupted",
    "what",
    "place",
    "version",
    "python",
    "route",
    "pipeline",
    "status",
}
COUNTED = {
    "modalities",
    "references",
    "usable",
    "requests",
    "certificates",
    "failures",
    "entries",
    "tombstones",
    "files",
    "places",
    "parameters",
    "info",
    "up",
    "events",
    "rows",
    "ready",
    "writable",
    "total",
}
UNITS = {"seconds", "ratio", "epsilon", "error"}


def test_every_metric_has_a_unique_name() -> None:
    assert len({metric.name for metric in ALL}) == len(ALL) > 30


def test_names_end_in_what_is_counted_or_in_a_base_unit() -> None:
    for metric in ALL:
        assert re.fullmatch(r"mbd(_[a-z]+)+", metric.name)
        assert metric.name.rpartition("_")[2] in COUNTED | UNITS, metric.name
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert not metric.name.endswith("timestamp_seconds") or "hen" in metric.help, metric.name


def test_labels_have_bounded_values_and_help_texts_are_sentences() -> None:
    for metric in ALL:
        assert set(metric.labels) <= BOUNDED, metric.name
        assert metric.help[0].isupper() and metric.help.endswith("."), metric.name
