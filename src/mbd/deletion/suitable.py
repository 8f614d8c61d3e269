"""Whether a request can be carried out: method and model, model and data, calibration apart from train and test.

This is decided here, before a method starts; methods do not check it again.
"""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from mbd.errors import DataError, UsageError
from mbd.features.contract import MANIFEST, FeatureSet
from mbd.files import sha256_file
from mbd.formats.model import ModelRecord
from mbd.model.compatible import refuse_other_data
from mbd.params.deletion import DeletionSettings

_BACKBONE = {"surgery": "joint", "certified": "joint", "exact": "lattice"}
_READS = {"surgery": ("calibration",), "certified": ("train", "valid")}
"""the splits that a method works with; exact drops modules without a look at data, and trains anew for subjects"""


def refuse_method(record: ModelRecord, settings: DeletionSettings, subjects: Collection[str]) -> None:
    """Refuse a method that is not made for the model's backbone, or not for single subjects."""
    method, fitting = settings.method, [m for m, backbone in _BACKBONE.items() if backbone == record.backbone]
    if method not in fitting:
        raise UsageError(
            f"the method {method} is for the {_BACKBONE[method]} backbone, and this model is a {record.backbone}",
            key="deletion.method",
            value=method,
            hint=f"set deletion.method={' or '.join(fitting)}, or train with model.backbone={_BACKBONE[method]}",
        )
    if subjects and method != "exact":
        raise UsageError(
            f"the method {method} forgets whole modalities, not those of single subjects",
            key="--subject",
            value=", ".join(subjects),
            hint="train with model.backbone=lattice and delete with deletion.method=exact",
        )


def refuse_data(record: ModelRecord, data: FeatureSet, settings: DeletionSettings, subjects: Collection[str]) -> None:
    """Refuse data that the model was not made from, files that changed since, and calibration rows used elsewhere."""
    refuse_other_data(record, data, data.folder / MANIFEST)
    reads = _READS.get(settings.method, ("train",) if subjects else ())
    _refuse_changed(data, reads)
    if "calibration" in reads:
        _refuse_calibration(data)


def _refuse_changed(data: FeatureSet, splits: Collection[str]) -> None:
    """Compare the bytes that are about to be read with the manifest."""
    listed = {name: digest for name, digest in data.digests().items() if name.split("/")[1] in splits}
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: sha256_file(data.folder / name), listed)
    for (name, digest), now in zip(listed.items(), found, strict=True):
        if now != digest:
            raise DataError(
                "the file is not the one that the manifest lists",
                file=data.folder / name,
                value=f"sha256 {now}, listed {digest}",
                hint="make or fetch the FeatureSet again",
            )


def _refuse_calibration(data: FeatureSet) -> None:
    """Refuse a missing calibration split, or one that shares rows or groups with train or test."""
    if "calibration" not in data.manifest.splits:
        raise DataError(
            "there is no calibration split, from which surgery finds out what to edit",
            file=data.folder / MANIFEST,
            hint="make the FeatureSet with features.calibration.size above 0, and train again",
        )
    own = data.split("calibration")
    for split in ("train", "test"):
        other = data.split(split)
        for what, one, two in (("id", own.ids, other.ids), ("group", own.groups, other.groups)):
            if common := set(one.tolist()) & set(two.tolist()):
                raise DataError(
                    f"the calibration split shares {len(common)} {what}{'s' * (len(common) > 1)} with {split}",
                    file=own.folder,
                    key=what,
                    value=min(common),
                    hint="calibration rows must be apart from train and test rows; make the FeatureSet again",
                )
