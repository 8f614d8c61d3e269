"""Step `features`: read a source, check it, split it, write a FeatureSet and a summary of it.

A FeatureSet that a DVC repository has already can be brought here instead (:func:`run_revision`): the same bytes, so
the same digests at both ends.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError
from mbd.evaluation.ridge import ridge_baselines
from mbd.features.availability import MANY_MODALITIES
from mbd.features.check import check_collection
from mbd.features.contract import FeatureSet, write_manifest, write_splits
from mbd.features.corruption import corrupt, corrupted_rows
from mbd.features.revision import Prepare, as_it_is, fetch_revision
from mbd.features.rows import Collection, Rows
from mbd.features.sources import kind_of, read_source
from mbd.features.splits import with_calibration
from mbd.files import STEP_FILE, read_json, sha256_file, to_json, write_file
from mbd.formats.features import MANIFEST, CalibrationEntry
from mbd.formats.files import METRICS
from mbd.markdown import ShownInNotebooks
from mbd.outputs import StepRun, step_run
from mbd.params import Params
from mbd.params.features import FeaturesSettings
from mbd.report.text import table
from mbd.shredding.vault import made_plain
from mbd.tensors import Array

NAME = "features"
SUMMARY = "summary.json"
HISTOGRAM = "label_histogram.csv"
_BINS = 13
"""of scores in the histogram of labels"""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeaturesSummary(ShownInNotebooks):
    """What is in a FeatureSet; `summary.json` has the same."""

    name: str
    task: str
    modalities: Mapping[str, int | str]
    """name → dimension of a vector, else its shape"""
    rows: Mapping[str, int]
    """split → number of rows"""
    groups: Mapping[str, int]
    """split → number of groups (speakers or videos) that its rows are of"""
    available_percent: Mapping[str, Mapping[str, float]]
    """split → modality → share of the rows that have it"""
    labels: Mapping[str, Mapping[str, Any]]
    ridge: Mapping[str, Mapping[str, float]]
    """baseline → metric → value on the test split"""
    notes: Mapping[str, Any]

    def to_text(self) -> str:
        """Return it as tables for a terminal."""
        dims = ", ".join(f"{name} {dim}" for name, dim in self.modalities.items())
        header = ["split", "rows", "groups", *(f"% with {m}" for m in self.modalities)]
        rows = [
            [split, n, self.groups[split], *self.available_percent[split].values()] for split, n in self.rows.items()
        ]
        parts = [
            f"{self.name}: {self.task}, {dims}",
            table(header, rows),
            _by_row("labels", self.labels),
            _by_row("ridge on test", self.ridge),
        ]
        if self.notes:
            parts.append("\n".join(f"note: {name}: {_note(value)}" for name, value in self.notes.items()))
        return "\n\n".join(parts)


def _by_row(title: str, values: Mapping[str, Mapping[str, object]]) -> str:
    columns = list(dict.fromkeys(key for row in values.values() for key in row))
    return table([title, *columns], [[name, *(row.get(c, "–") for c in columns)] for name, row in values.items()])


def _note(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def run(params: Params, out: Path, to_revoke: str | None = None) -> FeaturesSummary:
    """Write the FeatureSet that `params.features` describes to `out`; return its summary.

    Data without `to_revoke`, the modality that a later step will revoke (`requests.modality`), are refused.
    """
    with step_run(NAME, out, {"features": params.features}) as step:
        collection = convert(params.features, step, to_revoke)
        summary = _summary(collection)
        write_file(step.folder / SUMMARY, to_json(asdict(summary)))
        write_file(step.folder / METRICS, to_json({"ridge": summary.ridge}))
        write_file(step.folder / HISTOGRAM, label_histogram(collection, params.features.label_range))
        step.look_at = SUMMARY
    return summary


def run_revision(
    out: Path, repository: str, rev: str, path: str, remote: str | None = None, prepare: Prepare = as_it_is
) -> FeaturesSummary:
    """Write the FeatureSet at `path` of a DVC repository's revision to `out`, made plain; return its summary."""
    with step_run(NAME, out, {}) as step:
        revision = fetch_revision(repository, rev, path, step.folder, remote, prepare)
        step.inputs["revision"] = {
            "repository": revision.repository,
            "commit": revision.commit,
            "path": revision.path,
            "digest": revision.manifest_digest,
            "step": _origin(step.folder / STEP_FILE),
        }
        feature_set = FeatureSet.open(step.folder, without=revision.unreadable)
        step.known_digests = feature_set.digests()
        step.look_at = SUMMARY if (step.folder / SUMMARY).is_file() else MANIFEST
        return _summary(_loaded(feature_set))


def bring(params: Params, out: Path, commit: str | None, warn: Callable[[str], object]) -> FeaturesSummary:
    """Bring the FeatureSet of the parameters to `out`: made again from its source, or that of a DVC revision.

    That is `commit` (default: `platform.features.rev`) of `platform.features.repository`, if there is one. `warn` gets
    a sentence where data is left out because its key was destroyed.
    """
    revision = params.platform.features
    if revision.repository is None:
        return run(params, out)
    prepare = made_plain(params.shredding, warn)
    return run_revision(out, revision.repository, commit or revision.rev, revision.path, revision.remote, prepare)


def _origin(record: Path) -> Any:  # noqa: ANN401 -- kept as it is
    """Return the `step.json` that came with the FeatureSet, and remove it: this step writes its own."""
    try:
        return read_json(record)
    except (OSError, ValueError):
        return None
    finally:
        record.unlink(missing_ok=True)


def _loaded(feature_set: FeatureSet) -> Collection:
    manifest = feature_set.manifest
    return Collection(
        name=manifest.name,
        task=manifest.task,
        splits={name: feature_set.split(name).load() for name in manifest.splits},
        classes=manifest.classes,
        notes=manifest.provenance.get("notes", {}),
        vocabularies={m: s.vocabulary for m, s in manifest.modalities.items() if s.vocabulary},
    )


def convert(params: FeaturesSettings, step: StepRun, to_revoke: str | None = None) -> Collection:
    """Read and check the source, damage rows if asked to, carve a calibration split if it has none, and write it."""
    source = read_source(params)
    check_collection(source, params)
    _check_modalities(source, to_revoke)
    collection = with_calibration(_with_damage(source, params), params.calibration, params.seed)
    with ThreadPoolExecutor() as pool:
        reading = {file: pool.submit(sha256_file, Path(file)) for file in source.files}
        step.known_digests = write_splits(step.folder, collection)
        sources = {file: digest.result() for file, digest in reading.items()}
    step.inputs |= {f"source {n}": {"path": f, "digest": d} for n, (f, d) in enumerate(sources.items())}
    top = os.path.commonpath([Path(file).parent for file in sources]) if sources else ""
    calibration = collection.splits.get("calibration")
    write_manifest(
        step.folder,
        collection,
        step.known_digests,
        label_range=params.label_range,
        calibration=CalibrationEntry(
            requested=params.calibration.size,
            used=0 if calibration is None else len(calibration),
            carved_from=None if calibration is None or "calibration" in source.splits else "train",
        ),
        provenance={
            "source": kind_of(params.source),
            "seed": str(params.seed),
            "files": {Path(file).relative_to(top).as_posix(): digest for file, digest in sources.items()},
            "notes": dict(collection.notes),
        },
    )
    return collection


def _check_modalities(source: Collection, to_revoke: str | None) -> None:
    """Refuse data without the modality that is to be revoked; warn where every set of modalities is too many."""
    names = ", ".join(source.modalities)
    if to_revoke is not None and to_revoke not in source.modalities:
        raise DataError(
            f"the data have no modality {to_revoke!r}, and it is the one to revoke",
            file=", ".join(source.files) or None,
            key="requests.modality",
            value=to_revoke,
            hint=f"the data have {names}: set requests.modality in params.yaml to the one to revoke",
        )
    if len(source.modalities) > MANY_MODALITIES:
        _LOG.warning(
            "%d modalities have %s sets: a lattice trains a module for each, and evaluations show each modality alone, "
            "all but one, and all; features.source.modalities takes only some",
            len(source.modalities),
            f"{2 ** len(source.modalities) - 1:,}",
        )


def _with_damage(source: Collection, params: FeaturesSettings) -> Collection:
    """Damage the vectors of the split named by `features.damage`, unless the source has damaged what they are from."""
    split, corruption = params.damage.split, params.damage.corruption
    if split is None or "damage" in source.notes:
        return source
    rows = source.splits[split]
    count = int(corrupted_rows(len(rows), corruption.share, params.seed).sum())
    return replace(
        source,
        splits={**source.splits, split: corrupt(rows, corruption, params.seed)},
        notes={**source.notes, "damage": params.damage.note("features", count)},
    )


def _summary(collection: Collection) -> FeaturesSummary:
    baselines = ridge_baselines(collection)
    return FeaturesSummary(
        name=collection.name,
        task=collection.task,
        modalities={m: s.width if s.kind == "vector" else str(s) for m, s in collection.shapes.items()},
        rows={split: len(rows) for split, rows in collection.splits.items()},
        groups={split: len(np.unique(rows.groups)) for split, rows in collection.splits.items()},
        available_percent=availability(collection),
        labels=label_statistics(collection),
        ridge={name: {k: round(v, 3) for k, v in metrics.items()} for name, metrics in baselines.items()},
        notes=dict(collection.notes),
    )


def label_statistics(collection: Collection) -> dict[str, Any]:
    """Return, for each split, the labels' statistics (regression) or counts by class (classification)."""
    if collection.task == "classification":
        return {
            split: dict(zip(collection.classes, _class_counts(collection, rows).tolist(), strict=True))
            for split, rows in collection.splits.items()
        }
    return {
        split: {
            "mean": round(float(rows.labels.mean()), 4),
            "std": round(float(rows.labels.std()), 4),
            "min": round(float(rows.labels.min()), 4),
            "max": round(float(rows.labels.max()), 4),
            "non_negative_percent": round(float(100 * (rows.labels >= 0).mean()), 2),
            "zero": int((rows.labels == 0).sum()),
        }
        for split, rows in collection.splits.items()
    }


def _class_counts(collection: Collection, rows: Rows) -> Array:
    return np.bincount(rows.labels, minlength=len(collection.classes))


def label_histogram(collection: Collection, label_range: tuple[float, float]) -> str:
    """Return the share of labels in each bin or class, a column for each split, as CSV for a plot."""
    if collection.task == "classification":
        names: Sequence[str] = collection.classes
        counts = [_class_counts(collection, rows) for rows in collection.splits.values()]
    else:
        edges = np.linspace(*label_range, _BINS + 1)
        names = [f"{middle:.2f}" for middle in (edges[:-1] + edges[1:]) / 2]
        counts = [np.histogram(rows.labels, bins=edges)[0] for rows in collection.splits.values()]
    shares = np.array([count / count.sum() for count in counts]).T
    lines = [f"{name},{','.join(f'{share:.4f}' for share in row)}" for name, row in zip(names, shares, strict=True)]
    return "\n".join([f"label,{','.join(collection.splits)}", *lines]) + "\n"


def availability(collection: Collection) -> dict[str, dict[str, float]]:
    """Return the percentage of rows that have each modality, for each split."""
    return {
        split: {m: round(float(100 * bits.mean()), 2) for m, bits in rows.available.items()}
        for split, rows in collection.splits.items()
    }
