"""Which files of a folder are encrypted, and with which keys.

    FeatureSet   splits/SPLIT/MODALITY.safetensors   the key of MODALITY (`_rows`: ids, groups and labels)
    model        *.safetensors                       the keys of all modalities that it takes

Other files (manifest, records, metrics) hold no features and no weights and are not encrypted. A folder is a
FeatureSet, a model, or contains several models (seeds).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mbd.errors import DataError
from mbd.formats.features import MANIFEST, Manifest
from mbd.formats.model import ModelRecord
from mbd.model.checkpoint import RECORD
from mbd.shredding.cipher import CipherSubject

SUFFIX = ".mbdx"
_TENSORS = ".safetensors"


@dataclass(frozen=True)
class Unit:
    """A FeatureSet or a model, encrypted or not."""

    folder: Path
    record: Manifest | ModelRecord
    lineage: str

    def plain(self) -> list[Path]:
        """Return the plain files that would be encrypted."""
        return sorted(self.folder.rglob(f"*{_TENSORS}"))

    def encrypted(self) -> list[Path]:
        """Return the encrypted files."""
        return sorted(self.folder.rglob(f"*{SUFFIX}"))

    def subject(self, file: Path) -> CipherSubject:
        """Return the subject of a file, given its plain or encrypted path."""
        name = file.relative_to(self.folder).as_posix().removesuffix(SUFFIX)
        if isinstance(self.record, ModelRecord):
            return CipherSubject(name=name, lineage=self.lineage, kind="models", modalities=tuple(self.record.inputs))
        return CipherSubject(name=name, lineage=self.lineage, kind="features", modalities=(Path(name).stem,))


def units(folder: Path, lineage: str | None = None) -> list[Unit]:
    """Return the FeatureSets and models in a folder; `lineage` replaces the name of their data."""
    found = sorted(_read(folder, lineage), key=lambda unit: unit.folder)
    if not found:
        raise DataError(
            "this is neither a FeatureSet nor a model folder",
            file=folder,
            hint=f"give a folder with a {MANIFEST} or a {RECORD} in it",
        )
    for inner in found:
        if outer := next((unit for unit in found if unit.folder in inner.folder.parents), None):
            raise DataError("a FeatureSet or model is inside another one", file=inner.folder, value=outer.folder)
    return found


def _read(folder: Path, lineage: str | None) -> Iterator[Unit]:
    for file in folder.rglob(MANIFEST):
        manifest = Manifest.read(file, "manifest of a FeatureSet", "`mbd features --out DIR` makes one")
        yield Unit(file.parent, manifest, lineage or manifest.name)
    for file in folder.rglob(RECORD):
        model = ModelRecord.read(file, "model record (model.json)", "`mbd train` makes a model folder")
        yield Unit(file.parent, model, lineage or model.data.name)
