"""Step `purge`: from a certificate to the proof that no copy of the old weights (and of m*'s features) is left.

In this order, so that it can be killed anywhere and run again:

    1. what must go is found out, and kept in the private folder for a later run
    2. every place is searched, and what is found is removed
    3. every place is listed again
    4. purge.json and the tombstones are stored, and the statement that names them is signed, logged and published

What is removed follows from the certificate, from what the operator gives, and from tombstones that signed statements
name. Files of a current release are never removed.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mbd.certificate.publish import announce
from mbd.errors import MbdError, UsageError
from mbd.files import write_file
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import Receipt
from mbd.formats.purge import PURGE, PurgeRecord, Target
from mbd.formats.statement import DeletionStatement
from mbd.history.entries import CertificateEntry, read_entry
from mbd.history.history import History
from mbd.history.replay import read_history
from mbd.history.tombstones import Tombstones, begin, begun, keep_list, store_tombstones, update_list
from mbd.monitoring.record_samples import purge_scan_samples
from mbd.outputs import step_run
from mbd.params import Params
from mbd.purge.contents import Targets
from mbd.purge.data_keys import DataKeys, data_keys
from mbd.purge.discovery import (
    complete,
    feature_files,
    feature_sets,
    imported_from,
    needed_by_others,
    old_weights,
    published_models,
    snapshots,
)
from mbd.purge.inventory import PlaceInventory, Scan, remove_all, scan_all, take_inventory
from mbd.purge.places import Place, Unsearchable
from mbd.purge.proof import Purged, purge_record, purge_statement
from mbd.purge.workspace import workspace
from mbd.records import now
from mbd.steps.metrics_reporting import add_samples
from mbd.steps.publish import open_publisher
from mbd.steps.step import reads
from mbd.storage import open_private, open_store
from mbd.trust.trust_file import read_trust

NAME = "purge"


class IncompletePurgeError(MbdError):
    """Copies are left, or could not be searched for."""


@dataclass(frozen=True)
class PurgePlan:
    """What a purge is going to do."""

    purged: Purged
    places: tuple[Place, ...]

    def inventory(self) -> list[PlaceInventory]:
        """Look into every place, and change nothing."""
        return take_inventory(self.places, self.purged.targets)


@dataclass(frozen=True)
class Done:
    """What a purge has done."""

    record: PurgeRecord
    statement: str
    """SHA-256 of the envelope of the published statement"""
    proof: Path


def refuse_incomplete(record: PurgeRecord) -> None:
    """Raise an IncompletePurgeError if a copy is left, or a place could not be searched."""
    if open_places := [place for place in record.places if not place.gone]:
        raise IncompletePurgeError(
            "the purge is not complete: a copy is left, or a place could not be searched",
            value=", ".join(f"{place.kind} {place.where}" for place in open_places),
            hint="see the obstacles listed for these places, remove them, and run the purge again",
        )


@reads("deletion")
def plan(
    params: Params,
    receipt: Path | None,
    store: str,
    deletion: Path | None = None,
    *,
    certificate: str | None = None,
    root: Path | None = None,
) -> PurgePlan:
    """Find out what must go and where it may lie; nothing is changed yet.

    The certificate is named by the receipt of its publication, or by its SHA-256 or the start of it. `deletion` is the
    model after the deletion, where the issuer's private file is missing; `root` is the top folder of the workspace.
    """
    opened, trust = open_store(store, params.store), read_trust(Path(params.certificate.trust))
    if receipt is not None:
        certificate = Receipt.read(receipt, "receipt", "`mbd publish --out` writes it").certificate
    elif certificate is None:
        raise UsageError("it is not known what to purge", key="--certificate", hint="or give --receipt")
    certified = read_entry(opened, certificate, trust, now())
    modalities = certified.statement.predicate.deleted.modalities
    whole = modalities if params.purge.features else ()
    purge_workspace = workspace(params, store, root=root, modalities=whole)
    before = store_tombstones(params, store)
    targets = Targets(
        old_weights(certified.digest, certified.statement, deletion, Path(params.certificate.private)),
        before.released.union(certified.statement.digests.values()),
    )
    further = [
        *before.of(certified.digest),
        *begun(params, certified.digest),
        *(Target(sha256=digest, what="export") for digest in params.purge.also),
    ]
    sets = feature_sets(purge_workspace) if whole else []
    further += feature_files(certified.statement, opened, sets) if whole else []
    further += snapshots(purge_workspace, modalities)
    history = read_history(opened, trust)
    further += _registered(history, certified)
    for target in (*further, *(known for known in before if targets.by_sha256(known.sha256))):
        targets.add(target)
    for target in list(imported_from(purge_workspace, targets)):
        targets.add(target)
    _refuse_released(targets, before, certified.statement)
    registered = {registration.weights for registration in history.registrations.values()}
    complete(targets, purge_workspace, opened, certified.statement, registered)
    excepted = needed_by_others(targets, Targets(before), purge_workspace, sets, published_models(opened, trust, now()))
    targets = targets.without(needed.sha256 for needed in excepted)
    refs = purge_workspace.history.refs_naming(targets)
    # Feature files that another model needs must stay readable where they are encrypted, too.
    keys = data_keys(params, certified.digest, certified.statement, features=bool(whole) and not excepted)
    places = (*purge_workspace.places, *_source(params, purge_workspace.root), *([keys] if keys else []))
    return PurgePlan(Purged(certified.digest, whole, targets, excepted, refs), places)


def _registered(history: History, certified: CertificateEntry) -> Iterator[Target]:
    """Yield the weights, registered under the name before, that have seen what was deleted: models and references.

    Those of a registration that was trained without the persons' recordings, or whose weights never depended on them,
    have not.
    """
    gone, kept = set(certified.facts.modalities), certified.statement.digests[WEIGHTS]
    of_persons = certified.facts.scope == "subjects"
    for registration in history.model(certified.facts.model).registrations:
        free = of_persons and (certified.digest in registration.left_out or registration.weights == kept)
        if registration.index < certified.facts.index and not free:
            seen = [
                (registration.sees, registration.weights),
                *((reference.inputs, reference.weights) for reference in registration.references),
            ]
            weights = {digest for modalities, digest in seen if gone.intersection(modalities)} - {kept}
            yield from (Target(sha256=digest, what="weights") for digest in sorted(weights))


def run(params: Params, planned: PurgePlan, store: str, out: Path | None = None) -> Done:
    """Carry out a plan; return the proof, which lists what could not be done."""
    publisher, purged = open_publisher(params, store), planned.purged
    publisher.complete()
    listed = begin(params, purged.certificate, purged.targets)
    update_list(params, purged.targets)
    removal = remove_all(planned.places, purged.targets, archives=params.purge.archives)
    fresh = take_inventory(planned.places, purged.targets)
    destroyed = next((place.facts() for place in planned.places if isinstance(place, DataKeys)), None)
    record = purge_record(replace(purged, shredding=destroyed), removal, fresh, now())
    proof = _keep(record, Path(params.certificate.private))
    tombstones = keep_list(open_private(store, params.store), listed)
    statement = announce(purge_statement(record, tombstones), params.certificate, publisher)
    if out is not None:
        with step_run(NAME, out, {"purge": params.purge}) as step:
            write_file(step.folder / PURGE, record.to_bytes(), mode=0o600)
            step.look_at = PURGE
    return Done(record, statement, proof)


def scan(params: Params, store: str, *, root: Path | None = None) -> Scan:
    """Look for everything that has a tombstone in the store; bring the local list of them up to date."""
    tombstones = store_tombstones(params, store)
    targets = Targets(tombstones, tombstones.released)
    update_list(params, targets)
    places = workspace(params, store, root=root).places
    scanned = scan_all(places, targets, tombstones.problems)
    samples = purge_scan_samples(
        now(),
        tombstones=scanned.tombstones,
        searched=[place.kind for place in places],
        resurrected=[copy.kind for copy in scanned.resurrections],
        blind=[place.kind for place in scanned.blind],
    )
    add_samples(samples)
    return scanned


def remove_resurrections(params: Params, store: str, *, root: Path | None = None) -> Scan:
    """Remove everything that has a tombstone in the store, and scan again."""
    tombstones = store_tombstones(params, store)
    targets = Targets(tombstones, tombstones.released)
    remove_all(workspace(params, store, root=root).places, targets, archives=params.purge.archives)
    return scan(params, store, root=root)


def _refuse_released(targets: Targets, tombstones: Tombstones, statement: DeletionStatement) -> None:
    for sha256 in (*statement.digests.values(), *tombstones.released):
        if targets.by_sha256(sha256):
            raise UsageError(
                "a file of a released model is among what should be purged",
                key="purge.also",
                value=sha256,
                hint="list only files that hold something of the revoked modality",
            )


def _source(params: Params, root: Path) -> list[Place]:
    """Return the data that the features were made from, if they must go and it is there: it holds them as well."""
    source = params.features.source
    if not params.purge.features or not source.path or not (root / source.path).exists():
        return []
    problem = "it holds the modality among others, and only its owner can take it out"
    return [Unsearchable("data source", str(source.path), problem, "take the modality out of it, or remove it")]


def _keep(record: PurgeRecord, private: Path) -> Path:
    """Keep the proof where only its owner can read it, under its digest: each statement has a proof of its own."""
    content = record.to_bytes()
    private.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = private / f"purge-{hashlib.sha256(content).hexdigest()}.json"
    write_file(file, content, mode=0o600)
    return file
