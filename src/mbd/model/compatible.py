"""Whether a model and a FeatureSet belong together.

They do if both have the same task and classes, and if the data has every modality that the model takes, with the same
shape. What else the data has (a modality that was revoked, or that the model never saw) stays closed.
"""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.features import MANIFEST, Shape
from mbd.formats.model import ModelRecord


def open_for(record: ModelRecord, folder: Path) -> FeatureSet:
    """Open a FeatureSet with the modalities of a model and no others."""
    data = FeatureSet.open(folder)
    manifest, file = data.manifest, folder / MANIFEST
    if manifest.task != record.task:
        raise DataError(
            f"the model is made for {record.task}, and the data for {manifest.task}", file=file, hint=_OTHER_DATA
        )
    if manifest.classes != record.classes:
        raise DataError(
            "the model and the data have different classes",
            file=file,
            value=f"model {', '.join(record.classes)}; data {', '.join(manifest.classes)}",
            hint=_OTHER_DATA,
        )
    shapes = record.shapes
    for name in record.inputs:
        shape, found = shapes[name], data.shapes.get(name)
        if found is None or not _fits(shape, found):
            raise DataError(
                f"the model takes {name} with {_described(shape)}, and the data has "
                + (_described(found) if found else f"no {name}: only {', '.join(data.modalities)}"),
                file=file,
                key=name,
                hint=_OTHER_DATA,
            )
    return FeatureSet.open(folder, without=tuple(m for m in data.modalities if m not in record.inputs))


def _fits(shape: Shape, found: Shape) -> bool:
    """Say whether a model that takes `shape` can be given `found`: how numbers are stored does not matter."""
    return (shape.kind, shape.size) == (found.kind, found.size) and (found.vocabulary or 0) <= (shape.vocabulary or 0)


def _described(shape: Shape) -> str:
    if shape.kind == "vector":
        return f"{shape.width} columns"
    return f"{shape}" + (f" and {shape.vocabulary} token ids" if shape.vocabulary else "")


def refuse_other_data(record: ModelRecord, data: FeatureSet, file: Path) -> None:
    """Refuse data that a model was not made from.

    Calibration rows do not count: they belong to the deletion, training never reads them, and others serve as well.

    Args:
        record: the model's.
        data: its modalities are compared, whatever else the model was made from.
        file: what the error names, a model's record or the data's manifest.
    """
    listed = data.digests()
    for name, digest in record.data.files.items():
        path = PurePosixPath(name)
        if "calibration" in path.parts or path.stem not in ("_rows", *data.modalities):
            continue
        if listed.get(name) != digest:
            raise DataError(
                f"the model was made from other data ({record.data.name})",
                file=file,
                key=name,
                value=f"sha256 {listed.get(name, 'missing')} in {data.folder}, the model was made from {digest}",
                hint="give the FeatureSet that the model was trained on",
            )


def refuse_foreign(record: ModelRecord, names: Iterable[str]) -> None:
    """Refuse a modality that was revoked or that the model never had."""
    for name in names:
        if name in record.revoked:
            problem = f"the modality {name} was revoked: this model takes no {name} input"
        elif name not in record.modalities:
            problem = f"the model has no modality {name}"
        else:
            continue
        raise UsageError(problem, key=name, hint=f"it takes {', '.join(record.inputs)}")


_OTHER_DATA = "give the data that the model was made for, or another model"
