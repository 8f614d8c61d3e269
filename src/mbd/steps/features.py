"""Step `features`: read a source, check it, split it, write a FeatureSet and a summary of it."""

from pathlib import Path
from typing import Any

from mbd.evaluation.baseline import ridge_baselines
from mbd.features.check import check_collection
from mbd.features.contract import CalibrationEntry, write_feature_set
from mbd.features.rows import Collection
from mbd.features.sources import read_source
from mbd.features.splits import with_calibration
from mbd.features.summary import availability, label_histogram, label_statistics
from mbd.files import sha256_file, to_json, write_file
from mbd.params import Params
from mbd.steps.step import step_run

NAME = "features"
SUMMARY = "summary.json"


def run(params: Params, out: Path) -> dict[str, Any]:
    """Write the FeatureSet that `params.features` describes to `out`; return its summary."""
    with step_run(NAME, out, {"features": params.features}) as step:
        source = read_source(params.features)
        check_collection(source, params.features)
        collection = with_calibration(source, params.features.calibration, params.features.seed)
        digests = {file: sha256_file(Path(file)) for file in source.files}
        step.inputs |= {f"source {n}": {"path": f, "digest": d} for n, (f, d) in enumerate(digests.items())}
        calibration = collection.splits.get("calibration")
        step.known_digests = write_feature_set(
            step.folder,
            collection,
            label_range=params.features.label_range,
            calibration=CalibrationEntry(
                requested=params.features.calibration.size,
                used=0 if calibration is None else len(calibration),
                carved_from=None if calibration is None or "calibration" in source.splits else "train",
            ),
            provenance={
                "source": params.features.source.kind,
                "seed": str(params.features.seed),
                "files": {Path(file).name: digest for file, digest in digests.items()},
                "notes": dict(collection.notes),
            },
        )
        summary = _summary(collection)
        write_file(step.folder / SUMMARY, to_json(summary))
        write_file(step.folder / "label_histogram.csv", label_histogram(collection, params.features.label_range))
    return summary


def _summary(collection: Collection) -> dict[str, Any]:
    baselines = ridge_baselines(collection)
    return {
        "name": collection.name,
        "task": collection.task,
        "modalities": collection.modalities,
        "rows": {split: len(rows) for split, rows in collection.splits.items()},
        "available_percent": availability(collection),
        "labels": label_statistics(collection),
        "ridge": {name: {k: round(v, 3) for k, v in metrics.items()} for name, metrics in baselines.items()},
        "notes": dict(collection.notes),
    }
