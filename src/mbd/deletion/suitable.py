"""Whether a deletion is possible: method and model, model and data, calibration apart from train and test.

This is decided here, before a method starts; methods do not check it again.
"""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from mbd.deletion.methods import methods_for
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.files import sha256_file
from mbd.formats.features import MANIFEST
from mbd.formats.model import ModelRecord
from mbd.model.compatible import refuse_other_data
from mbd.registry import BACKBONES, METHODS


def refuse_method(name: str, record: ModelRecord, subjects: Collection[str]) -> None:
    """Refuse a method that does not work on the model's backbone, or does not delete single subjects."""
    method, suitable = METHODS.get(name), methods_for(record.backbone)
    if name not in suitable:
        others = [other for other in BACKBONES.builtin if method.fits(BACKBONES.get(other))]
        raise UsageError(
            f"the method {name} is for the {' or '.join(others)} backbone, and this model is a {record.backbone}",
            key="deletion.method",
            value=name,
            hint=(f"set deletion.method={' or '.join(suitable)}, or " if suitable else "")
            + f"train with model.backbone={' or '.join(others)}",
        )
    if subjects and method.reads_for_subjects is None:
        raise UsageError(
            f"the method {name} deletes whole modalities, not those of single subjects",
            key="--subject",
            value=", ".join(subjects),
            hint="set deletion.method="
            + " or ".join(one for one in suitable if METHODS.get(one).reads_for_subjects is not None),
        )


def refuse_data(name: str, record: ModelRecord, data: FeatureSet, subjects: Collection[str]) -> None:
    """Refuse data that the model was not made from, files that changed since, and calibration rows used elsewhere."""
    refuse_other_data(record, data, data.folder / MANIFEST)
    method = METHODS.get(name)
    reads = (method.reads_for_subjects or ()) if subjects else method.reads
    _refuse_changed(data, reads)
    if "calibration" in reads:
        _refuse_calibration(data)


def _refuse_changed(data: FeatureSet, splits: Collection[str]) -> None:
    """Compare the bytes that are about to be read with the manifest."""
    listed = {name: digest for name, digest in data.digests().items() if name.split("/")[1] in splits}
    with ThreadPoolExecutor() as pool:
        digests = pool.map(lambda name: sha256_file(data.folder / name), listed)
    for (name, digest), now in zip(listed.items(), digests, strict=True):
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
            "there is no calibration split; surgery needs one to choose what to edit",
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
