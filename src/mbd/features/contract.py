"""The FeatureSet: a folder that every later step reads, whatever the features came from.

    manifest.json                       name, task, modalities, splits, digests, provenance
    splits/SPLIT/_rows.safetensors      id and group (UTF-8, zero-padded), label
    splits/SPLIT/MODALITY.safetensors   features, available; lengths (sequences, token ids), attribute if there is one

One file for each split and modality: the bytes of one modality can be erased alone, and all that is known of
it (availability and private attribute too) goes with them.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mbd import tombstones
from mbd.errors import DataError, UsageError
from mbd.features.rows import Collection, Rows
from mbd.files import sha256_file, write_file
from mbd.formats.features import MANIFEST, CalibrationEntry, Manifest, Shape, SplitEntry
from mbd.tensors import Array, Tensors, open_tensors, save_tensors


def write_splits(folder: Path, collection: Collection) -> dict[str, str]:
    """Write the tensor files of all splits into `folder`; return the SHA-256 of each by relative path."""
    for split in collection.splits:
        (folder / "splits" / split).mkdir(parents=True)

    def write(part: tuple[str, dict[str, Array]]) -> tuple[str, str]:
        name, tensors = part
        return name, save_tensors(folder / name, tensors)

    parts = [part for split, rows in collection.splits.items() for part in files_of(split, rows)]
    with ThreadPoolExecutor() as pool:
        return dict(pool.map(write, parts))


def write_manifest(
    folder: Path,
    collection: Collection,
    digests: Mapping[str, str],
    *,
    label_range: tuple[float, float],
    calibration: CalibrationEntry,
    provenance: Mapping[str, Any],
) -> None:
    """Write the manifest of the splits that :func:`write_splits` wrote with these `digests`."""
    manifest = Manifest(
        format="urn:missing-by-design:feature-set:v1",
        name=collection.name,
        task=collection.task,
        classes=collection.classes,
        label_range=label_range if collection.task == "regression" else None,
        modalities=collection.shapes,
        splits={
            split: SplitEntry(
                rows=len(rows),
                groups=len(np.unique(rows.groups)),
                files={name: digest for name, digest in digests.items() if name.startswith(f"splits/{split}/")},
            )
            for split, rows in collection.splits.items()
        },
        calibration=calibration,
        provenance=dict(provenance),
    )
    write_file(folder / MANIFEST, manifest.to_json())


def files_of(split: str, rows: Rows) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield the tensor files of a split: relative path and tensors."""
    yield (
        f"splits/{split}/_rows.safetensors",
        {"id": _to_bytes(rows.ids), "group": _to_bytes(rows.groups), "label": rows.labels},
    )
    for modality, matrix in rows.features.items():
        tensors = {"features": matrix, "available": rows.available[modality]}
        if modality in rows.lengths:
            tensors["lengths"] = rows.lengths[modality].astype(np.int64)
        if modality in rows.attributes:
            tensors["attribute"] = rows.attributes[modality].astype(np.int8)
        yield f"splits/{split}/{modality}.safetensors", tensors


# numpy makes a Python string of each name that it encodes or decodes, but casts ASCII as it is.
def _to_bytes(names: Array) -> Array:
    try:
        encoded = names.astype(f"S{max(int(np.char.str_len(names).max(initial=0)), 1)}")
    except UnicodeEncodeError:
        encoded = np.char.encode(names, "utf-8")
    return encoded.view(np.uint8).reshape(len(encoded), encoded.dtype.itemsize)


def _from_bytes(matrix: Array) -> Array:
    encoded = np.ascontiguousarray(matrix).view(f"S{matrix.shape[1]}").ravel()
    try:
        return encoded.astype(np.str_)
    except UnicodeDecodeError:
        return np.char.decode(encoded, "utf-8")


@dataclass(frozen=True)
class Split:
    """One split of a FeatureSet; every array is read from disk when it is looked at."""

    folder: Path
    entry: SplitEntry
    modalities: tuple[str, ...]

    def __len__(self) -> int:
        return self.entry.rows

    @cached_property
    def _rows(self) -> Tensors:
        return open_tensors(self.folder / "_rows.safetensors")

    @cached_property
    def _modality(self) -> dict[str, Tensors]:
        return {m: open_tensors(self.folder / f"{m}.safetensors") for m in self.modalities}

    @cached_property
    def ids(self) -> Array:
        """Id of each row."""
        return _from_bytes(self._rows["id"])

    @cached_property
    def groups(self) -> Array:
        """Video or speaker of each row."""
        return _from_bytes(self._rows["group"])

    @property
    def labels(self) -> Array:
        """Label of each row."""
        return self._rows["label"]

    @property
    def features(self) -> dict[str, Array]:
        """The array of each modality."""
        return {m: tensors["features"] for m, tensors in self._modality.items()}

    @property
    def available(self) -> dict[str, Array]:
        """For each modality, which rows have it."""
        return {m: tensors["available"] for m, tensors in self._modality.items()}

    @property
    def attributes(self) -> dict[str, Array]:
        """The private attribute of each modality that has one."""
        return {m: tensors["attribute"] for m, tensors in self._modality.items() if "attribute" in tensors}

    @property
    def lengths(self) -> dict[str, Array]:
        """The true lengths of each modality that is a sequence or token ids."""
        return {m: tensors["lengths"] for m, tensors in self._modality.items() if "lengths" in tensors}

    def take(self, index: Array | slice) -> Rows:
        """Read the rows at `index` (positions, a slice or a mask), and nothing else."""
        rows = self.mapped().take(np.arange(len(self))[index])
        for tensors in (self._rows, *self._modality.values()):
            tensors.release()
        return rows

    def mapped(self) -> Rows:
        """Return the whole split, whose arrays are read from disk when they are looked at."""
        return Rows(self.ids, self.groups, self.labels, self.features, self.available, self.attributes, self.lengths)

    def load(self) -> Rows:
        """Read the whole split; large arrays lie in the temporary folder afterwards (:func:`mbd.blocks.take_rows`)."""
        return self.take(slice(None))


@dataclass(frozen=True)
class FeatureSet:
    """An open FeatureSet folder."""

    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path | str, *, without: tuple[str, ...] = (), verify: bool = False) -> "FeatureSet":
        """Open a folder, as if it had no modality in `without`; with `verify`, compare every digest."""
        folder = Path(folder)
        manifest = Manifest.read(folder / MANIFEST, "manifest of a FeatureSet", "`mbd features --out DIR` makes one")
        unknown = [m for m in without if m not in manifest.modalities]
        if unknown:
            raise DataError(
                f"the data has no modality {unknown[0]!r}",
                file=folder / MANIFEST,
                hint=f"it has {', '.join(manifest.modalities)}",
            )
        kept = {m: d for m, d in manifest.modalities.items() if m not in without}
        feature_set = cls(folder, manifest.model_copy(update={"modalities": kept}))
        if verify:
            feature_set.verify()
        return feature_set

    @property
    def modalities(self) -> dict[str, int]:
        """Name and dimension (numbers at each position) of each modality."""
        return {m: shape.width for m, shape in self.shapes.items()}

    @property
    def shapes(self) -> dict[str, Shape]:
        """Name and shape of each modality."""
        return self.manifest.modalities

    def require_vectors(self, backbone: str) -> None:
        """Refuse data with other shapes than vectors for a backbone that takes nothing else."""
        for modality, shape in self.shapes.items():
            if shape.kind != "vector":
                raise UsageError(
                    f"the backbone {backbone} takes vectors, and {modality} is a {shape}",
                    file=self.folder / MANIFEST,
                    key=modality,
                    value=str(shape),
                    hint="make the features again with features.source.sequences=mean (the mean frame of each "
                    "sequence), or train a module: model.backbone=PACKAGE.MODULE:FACTORY, docs/models.md",
                )

    def split(self, name: str) -> Split:
        """Return a split by name."""
        try:
            entry = self.manifest.splits[name]
        except KeyError:
            raise DataError(
                f"there is no split {name!r}",
                file=self.folder / MANIFEST,
                hint=f"there is {', '.join(self.manifest.splits)}",
            ) from None
        used = self.digests()
        tombstones.refuse(
            [digest for file, digest in entry.files.items() if file in used],
            self.folder / "splits" / name,
            "work without the revoked modality",
        )
        return Split(self.folder / "splits" / name, entry, tuple(self.modalities))

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of the files in use, by relative path."""
        used = {"_rows", *self.modalities}
        return {
            name: digest
            for entry in self.manifest.splits.values()
            for name, digest in entry.files.items()
            if Path(name).stem in used
        }

    def verify(self) -> None:
        """Compare the digest of every file in use with the manifest."""
        expected = self.digests()
        for name in expected:
            open_tensors(self.folder / name)
        with ThreadPoolExecutor() as pool:
            digests = dict(zip(expected, pool.map(lambda name: sha256_file(self.folder / name), expected), strict=True))
        for name, digest in expected.items():
            if digests[name] != digest:
                raise DataError(
                    "the file is not the one that the manifest lists",
                    file=self.folder / name,
                    value=f"sha256 {digests[name]}, listed {digest}",
                    hint="make or fetch the FeatureSet again",
                )
