"""Where features come from: one module for each built-in source; packages add others (`mbd.sources`)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from mbd.errors import DataError, naming
from mbd.features.rows import Collection
from mbd.params.features import FeaturesSettings, SourceSettings
from mbd.registry import SOURCES

_OTHER_FILES = {
    (".xlsx", ".xls", ".ods"): "it looks like a spreadsheet: save it as CSV",
    (".json", ".jsonl"): "it looks like JSON: save it as CSV or parquet",
    (".npy",): "it looks like one array: save the arrays of all splits and modalities with numpy.savez",
    (".pt", ".pth", ".ckpt", ".safetensors"): "it looks like the weights of a model: `mbd import --weights` takes them",
    (".wav", ".mp3", ".mp4", ".avi", ".png", ".jpg"): "it looks like raw media: list such files in a CSV (kind media)",
}
"""suffixes of files that are no feature data → what to do about them"""


@dataclass(frozen=True)
class Source:
    """A kind of feature data: how it is recognised and read."""

    read: Callable[[FeaturesSettings], Collection]
    """reads what `features.source` describes"""
    recognises: Callable[[Path], bool] | None = None
    """whether a path looks like this kind of data; None: it reads no path"""
    settings: type[BaseModel] | None = None
    """of `features.source.options`; built-in sources have sections of their own"""


def read_source(params: FeaturesSettings) -> Collection:
    """Read the source that the parameters name; errors name its path, unless they name another file."""
    with naming(params.source.path and Path(params.source.path)):
        return SOURCES.get(kind_of(params.source)).read(params)


def kind_of(source: SourceSettings) -> str:
    """Return the kind of a source: as set, else what its path looks like.

    Raises:
        DataError: No kind, or more than one, recognises the path; or one recognises it, but not the kind that is set.

    """
    if source.path is None:
        return source.kind or "synthetic"
    path = Path(source.path)
    fitting = [name for name in SOURCES.names() if _recognises(name, path)] if path.exists() else []
    if source.kind in fitting or (source.kind and not fitting):
        return source.kind
    if not source.kind and len(fitting) == 1:
        return fitting[0]
    if not path.exists():
        raise DataError(
            "the file is missing",
            file=path,
            key="features.source.path",
            hint=f"a path is taken from the current folder, {Path.cwd()}",
        )
    raise DataError(
        f"this is not of the kind {source.kind}" if source.kind else "what kind of data this is cannot be recognised",
        file=path,
        key="features.source.kind",
        hint=f"it looks like {' or '.join(fitting)}: set features.source.kind={fitting[0]}"
        if fitting
        else _other_file(path),
    )


def _other_file(path: Path) -> str:
    for suffixes, hint in _OTHER_FILES.items():
        if path.suffix.lower() in suffixes:
            return hint
    kinds = ", ".join(name for name in SOURCES.names() if name != "synthetic")
    return f"set it to one of {kinds}; docs/feature-data.md shows a file of each"


def choose_modalities(wanted: tuple[str, ...] | None, there: Iterable[str], more: str = "") -> tuple[str, ...]:
    """Return the modalities of `features.source.modalities`, by default all that are there; refuse any other.

    `more` is what else to say of it in the error.
    """
    known = tuple(there)
    for modality in wanted or ():
        if modality not in known:
            raise DataError(
                f"the file has no modality {modality!r}{more}",
                key="features.source.modalities",
                hint=f"it has {', '.join(known) or 'none'}",
            )
    return known if wanted is None else wanted


def _recognises(kind: str, path: Path) -> bool:
    try:
        recognises = SOURCES.get(kind).recognises
    except ModuleNotFoundError:  # a source whose packages are not installed
        return False
    return recognises is not None and recognises(path)
