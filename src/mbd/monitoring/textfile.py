"""Samples in a file that a node exporter (textfile collector) reads, one for each step and model.

What is new takes the place of the metrics of the same name; the others stay. So the note of a failure leaves the last
success as it was, just as with a Pushgateway.
"""

from pathlib import Path

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from mbd.files import write_file
from mbd.monitoring.metrics import ALL
from mbd.monitoring.samples import Samples

_BY_NAME = {metric.name: metric for metric in ALL}


def write_textfile(folder: Path, group: dict[str, str], samples: Samples) -> Path:
    """Add samples to the file of their group in `folder`; return the file."""
    file = folder / ("mbd-" + "-".join(group.values()) + ".prom")
    merged, new = Samples(), {family.name for family in samples.collect()}
    for family in _there(file):
        if family.name in _BY_NAME and family.name not in new:
            for sample in family.samples:
                merged.set(_BY_NAME[family.name], sample.value, **sample.labels)
    merged.update([samples])
    write_file(file, merged.text())
    return file


def _there(file: Path) -> list[Family]:
    """Return what a file says; nothing if there is none, or none that can be read."""
    try:
        return list(text_string_to_metric_families(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []
