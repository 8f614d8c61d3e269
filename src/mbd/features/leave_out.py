"""A FeatureSet without the recordings of some persons in some modalities: what later training and evaluation read.

In every split the rows of these persons (groups) lose the modality: no number, length or attribute of it is left, and
`available` says so. Files that hold nothing of them are linked, not copied, so they keep their digests.

The rows stay, also one that has no modality left: training, evaluation and attacks pass over such rows. Which rows
there are must not depend on what is left out. Folds follow from them, and a reference, of which a further modality is
not read at all, could not know which rows to drop.
"""

import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mbd.features.contract import FeatureSet, files_of
from mbd.features.rows import Rows
from mbd.files import write_file
from mbd.formats.features import MANIFEST, SplitEntry
from mbd.tensors import Array, save_tensors


def leave_out(folder: Path, out: Path, recordings: Mapping[str, Collection[str]], without: tuple[str, ...] = ()) -> int:
    """Write a FeatureSet to `out`, an empty private folder, without recordings; return how many there were.

    `recordings` are persons (groups) by modality. Of modalities in `without` no file is read or written; the manifest
    goes on listing them.
    """
    data, splits, count = FeatureSet.open(folder, without=without), {}, 0
    listed = FeatureSet.open(folder).manifest
    used = data.digests()
    for name, entry in data.manifest.splits.items():
        split = data.split(name)
        known = ((m, persons) for m, persons in recordings.items() if m in data.modalities)
        theirs = {m: np.isin(split.groups, list(persons)) & split.available[m] for m, persons in known}
        count += sum(int(bits.sum()) for bits in theirs.values())
        (out / "splits" / name).mkdir(parents=True)
        if any(bits.any() for bits in theirs.values()):
            splits[name] = _rewritten(name, entry, split.load(), theirs, folder, out)
        else:
            splits[name] = entry
            for file in (file for file in entry.files if file in used):
                _link(folder / file, out / file)
    write_file(out / MANIFEST, listed.model_copy(update={"splits": splits}).to_json())
    return count


def _rewritten(
    name: str, entry: SplitEntry, rows: Rows, theirs: Mapping[str, Array], folder: Path, out: Path
) -> SplitEntry:
    """Write a split without recordings; return its entry in the manifest."""
    left: dict[str, Any] = {
        part: dict(getattr(rows, part)) for part in ("features", "available", "attributes", "lengths")
    }
    for part in left.values():
        for modality in theirs.keys() & part.keys():
            part[modality] = np.array(part[modality])
            part[modality][theirs[modality]] = 0
    files = dict(entry.files)
    for file, tensors in files_of(name, replace(rows, **left)):
        if Path(file).stem in theirs:
            files[file] = save_tensors(out / file, tensors)
        else:
            _link(folder / file, out / file)
    return entry.model_copy(update={"files": files})


def _link(source: Path, goal: Path) -> None:
    try:
        os.link(source, goal)
    except OSError:  # another device, or a file system without links
        shutil.copyfile(source, goal)
