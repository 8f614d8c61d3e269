"""The proof of a purge: `purge.json` with the result for each place, and the signed statement about the certificate.

    complete    a new search of every place finds nothing, and no file was kept for another model
    partial     some places are clean; others are not, could not be searched, or hold files that other models need
    none        no place is known to be clean

`purge.json` holds digests and addresses and is kept private. The statement in the log holds numbers, kinds of places,
the claim, and the SHA-256 of `purge.json` and of the list of purged files.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mbd.formats.files import CERTIFICATE
from mbd.formats.predicate import Erasure, ErasureClaim
from mbd.formats.purge import Needed, PlaceRecord, PurgeRecord
from mbd.formats.statement import PurgeReport, PurgeStatement, ShreddingFacts, subjects_of
from mbd.purge.contents import Targets
from mbd.purge.inventory import PlaceInventory
from mbd.trust.commitments import SALT_BYTES

_SEARCHED = (
    "Files were compared by their digests; archives (zip, tar, gzip, bzip2, xz) were opened; tensors in safetensors, "
    "npz, npy and torch's zip files were compared by their bytes. Encrypted archives, and changed tensors, are not "
    "recognised. Objects named by their digests, in the store and in DVC remotes, were compared by these; other "
    "objects in buckets and registries were opened where their names end like such files."
)


@dataclass(frozen=True)
class Purged:
    """The subject of a purge."""

    certificate: str
    modalities: tuple[str, ...]
    targets: Targets
    excepted: Sequence[Needed]
    refs: tuple[str, ...]
    shredding: ShreddingFacts | None = None


def purge_record(
    purged: Purged, removal: list[PlaceInventory], fresh: list[PlaceInventory], issued: datetime
) -> PurgeRecord:
    """Combine the removal with a new search of the same places."""
    places = tuple(_place(done, now) for done, now in zip(removal, fresh, strict=True))
    return PurgeRecord(
        certificate=purged.certificate,
        erasure=_erasure(purged, places),
        modalities=purged.modalities,
        targets=tuple(purged.targets),
        excepted=tuple(purged.excepted),
        places=places,
        refs=purged.refs,
        shredding=purged.shredding,
        issued=issued,
        salt=secrets.token_hex(SALT_BYTES),
    )


def purge_statement(record: PurgeRecord, tombstones: str) -> PurgeStatement:
    """Return the statement that is published about a purge; `tombstones` is the digest of its list."""
    kinds = [target.what for target in record.targets]
    return PurgeStatement(
        subject=subjects_of({CERTIFICATE: record.certificate}),
        predicate=PurgeReport(
            erasure=record.erasure,
            targets={kind: kinds.count(kind) for kind in sorted(set(kinds))},
            modalities=record.modalities,
            excepted=len(record.excepted),
            places=tuple(place.report for place in record.places),
            shredding=record.shredding,
            proof=hashlib.sha256(record.to_bytes()).hexdigest(),
            tombstones=tombstones,
            issued=record.issued,
        ),
    )


def _place(removal: PlaceInventory, fresh: PlaceInventory) -> PlaceRecord:
    # A new search cannot show that hard links elsewhere are gone, so obstacles of the removal count as well.
    obstacles = list(dict.fromkeys([*fresh.obstacles, *removal.obstacles]))
    return PlaceRecord(
        kind=removal.place.kind,
        where=removal.place.where,
        found=removal.found,
        removed=removal.found - removal.stayed,
        left=fresh.found,
        gone=not fresh.found and not any(obstacle.blocking for obstacle in obstacles),
        reasons=tuple(dict.fromkeys(obstacle.reason for obstacle in obstacles)),
        copies=tuple(removal.copies),
        obstacles=tuple(obstacles),
    )


def _erasure(purged: Purged, places: Sequence[PlaceRecord]) -> Erasure:
    unclean = [place for place in places if not place.gone]
    claim: ErasureClaim = "partial"
    if not unclean and not purged.excepted:
        claim = "complete"
    elif len(unclean) == len(places):
        claim = "none"
    features = f" and the feature files of {', '.join(purged.modalities)}" if purged.modalities else ""
    removed = sum(place.removed for place in places)
    sentences = [f"The weights before the deletion{features} were searched for in {len(places)} places."]
    sentences.append(_SEARCHED)
    if unknown := sum(target.what in ("weights", "features") and not target.tensors for target in purged.targets):
        sentences.append(f"The tensors of {unknown} files are not known; these were compared by their digests only.")
    sentences.append(f"{removed} copies were removed in this run; {len(places) - len(unclean)} places are clean.")
    for reason in dict.fromkeys(o.reason for place in places for o in place.obstacles if not o.blocking):
        sentences.append(f"Listed, not opened: {reason}.")
    for kind, reasons in {place.kind: place.reasons for place in unclean}.items():
        sentences.append(f"Not clean: {kind} ({'; '.join(reasons) or 'copies are left'}).")
    if purged.excepted:
        sentences.append(f"{len(purged.excepted)} feature files stay because other models need them.")
    if purged.shredding and purged.shredding.destroyed:
        keys = ", ".join(dict.fromkeys(f"{key.modality} ({key.kind})" for key in purged.shredding.destroyed))
        sentences.append(
            f"Data keys were destroyed: {keys}. Copies that are encrypted with them cannot be read anywhere."
        )
    sentences.append("Copies out of reach (other clones, backups) that are not encrypted are not covered.")
    return Erasure(claim=claim, note=" ".join(sentences))
