"""The sections that commands need which only read a store: those who verify load nothing about models and training."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mbd.params.base import Settings
from mbd.params.certificate import CertificateSettings
from mbd.params.operations import MonitoringSettings, PurgeSettings, StoreSettings
from mbd.params.shredding import ShreddingSettings
from mbd.params.tree import read_tree, validate_tree

if TYPE_CHECKING:
    from mbd.params.resolve import Params


class ReaderParams(Settings):
    """Sections of :class:`~mbd.params.Params`."""

    certificate: CertificateSettings = CertificateSettings()
    store: StoreSettings = StoreSettings()
    purge: PurgeSettings = PurgeSettings()
    shredding: ShreddingSettings = ShreddingSettings()
    monitoring: MonitoringSettings = MonitoringSettings()


def load_reader_params(file: Path | None = None, settings: Iterable[str] = ()) -> "ReaderParams | Params":
    """Return what :func:`~mbd.params.load_params` does; where nothing else is set, of these sections alone."""
    tree, file = read_tree(file, settings)
    if set(tree) <= set(ReaderParams.model_fields):
        return validate_tree(tree, file, ReaderParams)
    from mbd.params.resolve import Params  # noqa: PLC0415 -- all other sections

    return validate_tree(tree, file, Params)
