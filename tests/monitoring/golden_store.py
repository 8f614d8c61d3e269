"""A store with its own keys, filled with certificates copied from the golden ones: no model is trained."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Self

from mbd.certificate.compose import compose_revocation
from mbd.certificate.publish import Publisher, publish_statement
from mbd.formats.files import CERTIFICATE, MODEL, WEIGHTS
from mbd.formats.layout import certificate_name, object_name
from mbd.formats.leakage import LEAKAGE, LeakageRecord, summarise
from mbd.formats.predicate import DigestOrCommitment, Erasure
from mbd.formats.purge import Target, TombstoneList
from mbd.formats.registration import RegisteredData, Registration
from mbd.formats.statement import (
    AnyStatement,
    DeletionStatement,
    PurgeReport,
    PurgeStatement,
    Reaudit,
    ReauditStatement,
    RegistrationStatement,
    parse_payload,
    subjects_of,
    to_payload,
)
from mbd.history.tombstones import keep_list
from mbd.log.append import append_leaf
from mbd.log.reader import Log
from mbd.log.tiles import claim_name
from mbd.monitoring.store_monitor import StoreMonitor
from mbd.monitoring.store_scanner import StoreScanner
from mbd.params.operations import StoreSettings
from mbd.production.request_store import RequestStore
from mbd.records import now
from mbd.storage.store import Store
from mbd.trust.envelope import PAYLOAD_TYPE, Envelope, certificate_digest, sign
from mbd.trust.keys import LOG, TRUST, load_signer, make_keys
from mbd.trust.trust_file import read_trust, write_trust
from tests.certificate.keyed_store import KeyedStore

GOLDEN = Path(__file__).parents[1] / "golden" / "certificates" / "v1"


@cache
def golden(kind: str) -> DeletionStatement:
    """Return the statement of a golden certificate."""
    statement = parse_payload(Envelope.parse((GOLDEN / kind / "bundle" / CERTIFICATE).read_bytes()).content)
    assert isinstance(statement, DeletionStatement)
    return statement


def golden_leakage(kind: str) -> LeakageRecord:
    """Return `leakage.json` of a golden certificate."""
    return LeakageRecord.read(GOLDEN / kind / "bundle" / LEAKAGE, "leakage record")


def purge_statement(private: Store, certificate: str, digests: Sequence[str]) -> PurgeStatement:
    """Return the statement that these files were purged, and keep the list of them that it names."""
    targets = tuple(Target(sha256=digest, what="weights") for digest in digests)
    listed = keep_list(private, TombstoneList(certificate=certificate, targets=targets, salt="0" * 64))
    predicate = PurgeReport(
        erasure=Erasure(claim="complete", note=""),
        targets={"weights": len(targets)},
        modalities=(),
        excepted=0,
        places=(),
        proof="0" * 64,
        tombstones=listed,
        issued=now(),
    )
    return PurgeStatement(subject=subjects_of({CERTIFICATE: certificate}), predicate=predicate)


@dataclass(frozen=True)
class GoldenStore(KeyedStore):
    """Keys and a store."""

    @classmethod
    def open(cls, folder: Path) -> Self:
        make_keys(folder / "keys", "signer")
        trust = read_trust(folder / "keys" / TRUST)
        long_valid = tuple(key.model_copy(update={"valid_from": now() - timedelta(days=999)}) for key in trust.keys)
        write_trust(folder / "keys" / TRUST, trust.model_copy(update={"keys": long_valid}))
        (folder / "store").mkdir()
        return cls(folder)

    @property
    def request_store(self) -> RequestStore:
        return RequestStore(self.private, self.request_key)

    def publish(self, statement: AnyStatement, by: type[Publisher] = Publisher) -> str:
        """Sign, log and publish a statement; return its digest."""
        log, envelope = load_signer(f"file:{self.folder}/keys/{LOG}.pem"), self.signed(statement)
        publish_statement(by(self.store, StoreSettings(), log, self.trust), envelope)
        return certificate_digest(envelope)

    def signed(self, statement: AnyStatement) -> bytes:
        """Return the envelope of a statement."""
        signer = load_signer(f"file:{self.folder}/keys/signer.pem")
        return sign(to_payload(statement), PAYLOAD_TYPE, [signer]).to_bytes()

    def publish_many(self, statements: Iterable[AnyStatement]) -> None:
        """Sign, log and publish statements, quickly: without proofs, and with one checkpoint for many of them."""
        signer = load_signer(f"file:{self.folder}/keys/signer.pem")
        log, size = load_signer(f"file:{self.folder}/keys/{LOG}.pem"), Log(self.store, self.trust).size
        leaf = b""
        for place, statement in enumerate(statements, start=size):
            envelope = sign(to_payload(statement), PAYLOAD_TYPE, [signer])
            leaf = bytes.fromhex(envelope.digest)
            self.store.create(certificate_name(envelope.digest), envelope.to_bytes())
            self.store.create(claim_name(place), leaf)
        append_leaf(self.store, leaf, log, self.trust)

    def revocations(self, certificate: str, stop: int, start: int = 0) -> Iterator[AnyStatement]:
        """Yield different revocations of a certificate."""
        return (compose_revocation(certificate, f"reason {number}", now()) for number in range(start, stop))

    def certificate(self, kind: str = "surgery", *, days: float = 90, **changes: Any) -> str:
        """Publish a certificate of a kind, with the next re-audit due in `days`."""
        return self.publish(self.dated(kind, days=days, **changes))

    def registration(self, kind: str = "exact", **changes: Any) -> str:
        """Register the model of a golden certificate, as if it was trained like that; `changes` go on top."""
        statement = golden(kind)
        predicate = Registration(
            model=statement.predicate.model,
            issuer=statement.predicate.issuer,
            backbone=statement.predicate.structure.backbone,
            inputs=statement.predicate.structure.inputs,
            sees=tuple(statement.predicate.structure.inputs),
            data=RegisteredData(name="golden", content=DigestOrCommitment(commitment="0" * 64), dvc_revision=None),
            left_out=(),
            references=(),
            evaluation=None,
            promoted=True,
            reason="for the test",
            previous=None,
            git_commit=None,
            image_digest=None,
            run_id=None,
            issued=now(),
        )
        digests = {name: statement.digests[name] for name in (WEIGHTS, MODEL)}
        changed = predicate.model_copy(update=changes)
        return self.publish(RegistrationStatement(subject=subjects_of(digests), predicate=changed))

    def dated(self, kind: str, *, days: float = 90, **changes: Any) -> DeletionStatement:
        """Return a golden certificate as if it was issued now."""
        statement, at = golden(kind), now()
        changes = {"issued": at, "reaudit_by": at + timedelta(days=days), "supersedes": None} | changes
        predicate = statement.predicate.model_copy(update=changes)
        return statement.model_copy(update={"predicate": predicate})

    def files(self, *kinds: str) -> None:
        """Publish the files that golden certificates are about."""
        for kind in kinds:
            for name, sha256 in golden(kind).digests.items():
                source = GOLDEN / kind / ("model" if name in {WEIGHTS, MODEL} else "bundle") / name
                self.store.create(object_name(sha256), source)

    def purge(self, certificate: str, *digests: str) -> str:
        """Publish the statement that these files were purged."""
        return self.publish(purge_statement(self.private, certificate, digests))

    def revoke(self, certificate: str) -> str:
        return self.publish(compose_revocation(certificate, "for the test", now()))

    def audit(self, certificate: str, *, days: float = 200, kind: str = "surgery", **changes: Any) -> str:
        """Publish a re-audit of a certificate."""
        leakage = golden_leakage(kind).model_copy(update=changes)
        content = leakage.to_bytes()
        digest = hashlib.sha256(content).hexdigest()
        self.store.create(object_name(digest), content)
        due = now() + timedelta(days=days)
        predicate = Reaudit(audit=summarise(leakage), leakage=digest, issued=now(), reaudit_by=due)
        return self.publish(ReauditStatement(subject=subjects_of({CERTIFICATE: certificate}), predicate=predicate))

    def scanner(self) -> StoreScanner:
        return StoreScanner(self.store, self.private, self.trust_file)

    def monitor(self) -> StoreMonitor:
        return StoreMonitor(self.scanner(), 0.05, retrain_days=30)


def seconds(at: datetime) -> float:
    return at.timestamp()


def days_from_now(days: float) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
