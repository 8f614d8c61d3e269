"""Source `sheet`: one CSV with the columns id, group, split, label, and MODALITY.0, MODALITY.1, … for each modality."""

import csv
from pathlib import Path

import numpy as np

from mbd.plugins import Collection, DataError, FeaturesSettings, Rows, Settings, Source


class SheetSettings(Settings):
    """What can be set as features.source.options."""

    delimiter: str = ","
    """character between two cells"""


def read(params: FeaturesSettings) -> Collection:
    """Read the file named by `features.source.path`."""
    path = Path(params.source.path or "")
    options = SheetSettings.model_validate(params.source.options)
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            lines = list(csv.DictReader(stream, delimiter=options.delimiter))
    except OSError as error:
        raise DataError(f"the sheet cannot be read: {error.strerror}", file=path, key="features.source.path") from error
    columns = [column for column in lines[0] if "." in column]
    modalities = dict.fromkeys(column.partition(".")[0] for column in columns)
    splits = {}
    for split in dict.fromkeys(line["split"] for line in lines):
        own = [line for line in lines if line["split"] == split]
        features = {
            m: np.array([[line[c] for c in columns if c.startswith(f"{m}.")] for line in own], dtype=np.float32)
            for m in modalities
        }
        labels = np.array([line["label"] for line in own], dtype=np.float32)
        groups = [line["group"] for line in own]
        splits[split] = Rows.of([line["id"] for line in own], labels, features, groups=groups)
    return Collection(name=path.stem, task="regression", splits=splits, files=(str(path),))


SHEET = Source(read, recognises=lambda path: path.suffix == ".sheet", settings=SheetSettings)
