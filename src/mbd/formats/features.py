"""`manifest.json` of a FeatureSet, and the reference by which Kubeflow steps pass a FeatureSet on."""

from typing import Any, Literal

from mbd.names import Name, RelativePath
from mbd.params.features import Task
from mbd.records import Digest, Record

MANIFEST = "manifest.json"


class SplitEntry(Record):
    """Size of a split, and the SHA-256 of its files by name."""

    rows: int
    groups: int
    files: dict[RelativePath, str]


class CalibrationEntry(Record):
    """How the calibration split was made."""

    requested: int
    used: int
    carved_from: str | None


class Manifest(Record):
    """The contents of `manifest.json`."""

    format: Literal["urn:missing-by-design:feature-set:v1"]
    name: str
    task: Task
    classes: tuple[str, ...]
    label_range: tuple[float, float] | None
    modalities: dict[Name, int]
    splits: dict[Name, SplitEntry]
    calibration: CalibrationEntry
    provenance: dict[str, Any]


class FeatureReference(Record):
    """Where a FeatureSet comes from, and what it must be."""

    format: Literal["urn:missing-by-design:feature-reference:v1"] = "urn:missing-by-design:feature-reference:v1"
    name: str
    digest: Digest
    """SHA-256 of the canonical list of its files' digests"""
    repository: str | None
    """DVC repository; null: made from features.source of the parameters"""
    commit: str | None
    path: str | None
    remote: str | None
