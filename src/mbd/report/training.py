"""What a training came to, for the terminal."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from mbd.report.text import table


def training_summary(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return the metrics of one model, or of several seeds with their mean and deviation."""
    first = summaries[0]
    modalities = ", ".join(f"{name} {dim}" for name, dim in first["modalities"].items())
    without = f", without {', '.join(first['without'])}" if first["without"] else ""
    names = list(first["metrics"]["test"])
    lines = [f"{first['backbone']}: {first['task']}, {modalities}{without}; {first['parameters']:,} numbers", ""]
    rows = [
        [f"{split}, seed {summary['seed']}", *(summary["metrics"][split][name] for name in names)]
        for split in first["metrics"]
        for summary in summaries
    ]
    if len(summaries) > 1:
        for split in first["metrics"]:
            values = [[summary["metrics"][split][name] for summary in summaries] for name in names]
            rows.append([f"{split}, mean", *(f"{mean(v):.2f} ± {stdev(v):.2f}" for v in values)])
    return "\n".join([*lines, table(["", *names], rows)])
