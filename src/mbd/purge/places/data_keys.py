"""The keys of encrypted copies: as long as a key is there, whoever has such a copy can read it.

Encrypted copies of the old weights need not be searched for. They are unreadable, wherever they are, as soon as one of
the keys that they need is gone; so the folder of the keys is the place to look at. A key is destroyed here only where
`purge.keys` says so: all models of the lineage that took the modality become unreadable with it, and not the old ones
alone. Where single subjects were forgotten it never is: the new model needs the same keys.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mbd.errors import MbdError
from mbd.formats.shredding import KINDS, KeyEntry, Kind, ShreddingFacts, facts_of, read_shredding
from mbd.formats.statement import DeletionStatement
from mbd.params import Params
from mbd.purge.places.elsewhere import Unsearchable
from mbd.purge.places.place import Copy, Obstacle, Tell
from mbd.purge.targets import Targets
from mbd.shredding.keys import Keyring

KIND = "data keys"
_REASON = "keys of encrypted copies are still there"
_DESTROY = (
    "encrypt what has to stay readable under another shredding.lineage; then purge again with purge.keys=true, "
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
    kinds: tuple[Kind, ...]
    """those whose copies must go"""
    keyring: Keyring | None
    """to destroy them with; None: they are not to be destroyed here"""
    reason: str
    """why they are destroyed, for whoever wants to decrypt later"""
    hint: str = _DESTROY
    made_before: datetime | None = None
    """keys that were made later protect no old copy"""
    kind: str = KIND

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.place.Place.where`."""
        return str(self.folder)

    def find(self, targets: Targets, tell: Tell) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.place.Place.find`."""
        for key in self._keys(self.kinds):
            if key.destroyed is None or key.destroyed.done is None:
                yield Copy(f"{key.name.kind}/{key.name.modality}/{key.name.lineage}", "data key", None)

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.place.Place.remove`."""
        return {copy: obstacle for copy in copies if (obstacle := self._destroy(copy))}

    def facts(self) -> ShreddingFacts | None:
        """Return what can be stated of these modalities' keys, of both kinds."""
        return facts_of(self.folder, self._keys(KINDS))

    def _keys(self, kinds: tuple[Kind, ...]) -> tuple[KeyEntry, ...]:
        record = read_shredding(self.folder)
        found = (key for lineage in self.lineages for key in record.of(lineage, self.modalities, kinds))
        return tuple(key for key in found if self.made_before is None or key.created <= self.made_before)

    def _destroy(self, copy: Copy) -> Obstacle | None:
        kind, modality, lineage = copy.name.split("/", 2)
        if self.keyring is None:
            return Obstacle(_REASON, f"{modality} ({kind} of {lineage}) in {self.folder}", self.hint)
        try:
            self.keyring.destroy(lineage, (modality,), tuple(one for one in KINDS if one == kind), self.reason)
        except (MbdError, OSError) as error:
            return Obstacle(_REASON, f"{copy.name} in {self.folder}: {error}", "mend that; purge again")
        return None


def data_keys(
    params: Params, certificate: str, statement: DeletionStatement, *, features: bool = False
) -> DataKeys | Unsearchable | None:
    """Return the place with the keys of what a certificate deleted; None if there never were any.

    `features`: whether no copy of the deleted modalities' feature files may be read any more, either.
    """
    settings, predicate = params.shredding, statement.predicate
    folder, subjects = Path(settings.keys), predicate.deleted.scope == "subjects"
    if settings.enabled and not folder.is_dir():
        return Unsearchable(KIND, str(folder), "it is not there", "mount it, or correct shredding.keys; purge again")
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
