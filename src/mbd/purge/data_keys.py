"""The data keys of encrypted copies: an encrypted copy is readable as long as all its keys exist.

Encrypted copies of the old weights need not be searched for. They become unreadable everywhere once one of their keys
is destroyed, so the folder of the keys is searched instead. Keys are destroyed only if `purge.keys` is true, because
all models of the lineage that take the modality become unreadable, not only the old ones. After a deletion of single
subjects keys are never destroyed: the new model needs the same keys.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mbd.errors import MbdError
from mbd.formats.purge import Copy, Obstacle
from mbd.formats.shredding import KINDS, KeyEntry, facts_of, read_shredding
from mbd.formats.statement import DeletionStatement, KeyKind, ShreddingFacts
from mbd.params import Params
from mbd.purge.contents import ReportObstacle, Targets
from mbd.purge.places import Unsearchable
from mbd.shredding.keys import Keyring

KIND = "data keys"
_REASON = "keys of encrypted copies still exist"
_DESTROY = (
    "encrypt what must stay readable under another shredding.lineage; then purge again with purge.keys=true, "
    "or after `mbd shred destroy`"
)
_OF_SUBJECTS = (
    "encrypt the new model and the data under another shredding.lineage, destroy the keys of this one "
    "(`mbd shred destroy --lineage`), and purge again"
)


@dataclass(frozen=True)
class DataKeys:
    """The keys of the deleted modalities."""

    folder: Path
    lineages: tuple[str, ...]
    modalities: tuple[str, ...]
    kinds: tuple[KeyKind, ...]
    """kinds of keys to destroy"""
    keyring: Keyring | None
    """destroys the keys; None: keys are only reported"""
    reason: str
    """recorded with the destruction, and shown when a later decryption fails"""
    hint: str = _DESTROY
    made_before: datetime | None = None
    """ignore keys that were created later: they protect no old copy"""
    kind: str = KIND

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.Place.where`."""
        return str(self.folder)

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.Place.find`."""
        for key in self._keys(self.kinds):
            if key.destroyed is None or key.destroyed.done is None:
                yield Copy(name=f"{key.name.kind}/{key.name.modality}/{key.name.lineage}", what="data key", sha256=None)

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.Place.remove`."""
        return {copy: obstacle for copy in copies if (obstacle := self._destroy(copy))}

    def facts(self) -> ShreddingFacts | None:
        """Return the facts about the keys of these modalities, of both kinds."""
        return facts_of(self.folder, self._keys(KINDS))

    def _keys(self, kinds: tuple[KeyKind, ...]) -> tuple[KeyEntry, ...]:
        record = read_shredding(self.folder)
        entries = (key for lineage in self.lineages for key in record.of(lineage, self.modalities, kinds))
        return tuple(key for key in entries if self.made_before is None or key.created <= self.made_before)

    def _destroy(self, copy: Copy) -> Obstacle | None:
        kind, modality, lineage = copy.name.split("/", 2)
        if self.keyring is None:
            return Obstacle(reason=_REASON, detail=f"{modality} ({kind} of {lineage}) in {self.folder}", hint=self.hint)
        try:
            self.keyring.destroy(lineage, (modality,), tuple(known for known in KINDS if known == kind), self.reason)
        except (MbdError, OSError) as error:
            detail = f"{copy.name} in {self.folder}: {error}"
            return Obstacle(reason=_REASON, detail=detail, hint="fix this, then purge again")
        return None


def data_keys(
    params: Params, certificate: str, statement: DeletionStatement, *, features: bool = False
) -> DataKeys | Unsearchable | None:
    """Return the place that holds the keys of the modalities a certificate deleted.

    Args:
        params: all parameters.
        certificate: digest of the certificate.
        statement: its statement.
        features: whether copies of the feature files must become unreadable as well.

    Returns:
        The place, or None if there never were such keys.

    """
    settings, predicate = params.shredding, statement.predicate
    folder, subjects = Path(settings.keys), predicate.deleted.scope == "subjects"
    if settings.enabled and not folder.is_dir():
        return Unsearchable(
            KIND, str(folder), "the folder does not exist", "mount it, or correct shredding.keys; then purge again"
        )
    place = DataKeys(
        folder=folder,
        lineages=tuple(dict.fromkeys([settings.lineage or predicate.lineage.data_name, predicate.lineage.data_name])),
        modalities=tuple(predicate.deleted.modalities),
        kinds=KINDS if features else ("models",),
        keyring=Keyring.of(settings) if params.purge.keys and not subjects else None,
        reason=f"purge of certificate {certificate}",
        hint=_OF_SUBJECTS if subjects else _DESTROY,
        made_before=predicate.issued if subjects else None,
    )
    return place if place.facts() else None
