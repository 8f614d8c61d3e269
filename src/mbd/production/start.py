"""What a deletion starts from: the current release of a name, the data that it was made from, and its reference.

`mbd request run` and the pipeline `delete` start here. The release is that of the log (:mod:`mbd.production.releases`);
its data are those of the registered revision, without the recordings that persons have revoked; the reference is the
registered one. Only where none is registered is a reference trained, and the log of the step says so.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mbd.deletion.cut import requested
from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.model import ModelRecord
from mbd.model.checkpoint import load_model
from mbd.params import Params
from mbd.production.releases import BaseModel, find_base
from mbd.steps import features, train
from mbd.steps.revoked import Revoked, respected_by_current

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """Where a deletion starts: the current release, its record and its data, and a private folder to work in."""

    params: Params
    base: BaseModel
    model: Path
    record: ModelRecord
    data: Path
    work: Path


@dataclass(frozen=True)
class FetchedRelease:
    """The current release in a folder, and what is deleted from it."""

    base: BaseModel
    record: ModelRecord
    modalities: tuple[str, ...]
    """what was asked for, and what is revoked for the name and this release takes all the same"""

    @property
    def respected(self) -> Revoked:
        """The persons without whose recordings the release was made."""
        return respected_by_current(self.base.history, self.base.params)


def fetch_release(params: Params, url: str, out: Path, modalities: Sequence[str], *, person: bool) -> FetchedRelease:
    """Fetch the current release of `certificate.model` to `out`, to delete modalities from it, or those of persons.

    Raises:
        UsageError: The log has no release of the name, or these modalities cannot be deleted from it.
    """
    base = find_base(params, url, None)
    record = load_model(base.fetch(out))[0]
    if gone := [m for m in modalities if m in record.revoked]:
        raise UsageError(
            f"{', '.join(gone)} was deleted from {params.certificate.model} before",
            key="modalities",
            value=", ".join(modalities),
            hint=f"`mbd models show {params.certificate.model}` names the certificate",
        )
    return FetchedRelease(base, record, tuple(modalities) if person else asked(base, record, modalities))


def asked(base: BaseModel, record: ModelRecord, modalities: Sequence[str]) -> tuple[str, ...]:
    """Return what is deleted on a request: its modalities, and what is revoked and the release takes all the same."""
    return requested(record, [*base.returned(record.inputs), *modalities])


@contextmanager
def release_data(base: BaseModel, record: ModelRecord, given: Path | None, work: Path) -> Iterator[Path]:
    """Within: the data that a release was made from, `given` or brought into `work`, without what persons revoked."""
    folder = given
    if folder is None:
        folder = work / "features"
        features.bring(base.params, folder, base.revision, _LOG.warning)
    with respected_by_current(base.history, base.params).left_out(folder, not_taken(record, folder)) as data:
        yield data


def not_taken(record: ModelRecord, features_folder: Path) -> tuple[str, ...]:
    """Return the modalities of a FeatureSet that a model does not take: of these no file is read."""
    return tuple(m for m in FeatureSet.open(features_folder).modalities if m not in record.inputs)


def obtain_reference(
    base: BaseModel,
    record: ModelRecord,
    modalities: Sequence[str],
    data: AbstractContextManager[Path],
    out: Path,
) -> bool:
    """Write the model that never saw these modalities to `out`: the registered one, or one that is trained now.

    Args:
        base: The current release.
        record: Its record.
        modalities: What is deleted from it.
        data: Within: the data of the release. It is entered only to train.
        out: Folder to write.

    Returns:
        Whether it had to be trained.
    """
    if base.fetch_reference([m for m in record.inputs if m not in modalities], out):
        _LOG.info("the registered reference without %s is used; nothing is trained", ", ".join(modalities))
        return False
    _LOG.warning("no reference without %s is registered, so one is trained", ", ".join(modalities))
    with data as folder:
        gone = (m for m in FeatureSet.open(folder).modalities if m in record.revoked)
        train.run(base.params, folder, out, without=(*gone, *modalities))
    return True
