"""Attacks on what a store says of revocations, by a person who may write to it and holds no key; on any store."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

import pytest

from mbd.certificate.guard import admit
from mbd.certificate.publish import Publisher, publish_certificate, publish_statement
from mbd.certificate.verification import Verdict, from_store, verify_bundle
from mbd.errors import VerificationError
from mbd.formats.files import CERTIFICATE, MODEL, WEIGHTS
from mbd.formats.layout import certificate_name, proof_name
from mbd.formats.statement import Reaudit, ReauditStatement, subjects_of, to_payload
from mbd.history.entries import CertificateEntry, read_entries, read_entry
from mbd.history.replay import read_history
from mbd.history.state import status_in
from mbd.log.check import adopt_log
from mbd.log.reader import LogDamagedError
from mbd.log.tiles import claim_name, old_checkpoint_name
from mbd.params.operations import StoreSettings
from mbd.records import now
from mbd.storage.store import LARGEST_IN_MEMORY, Store, StoredObject
from mbd.trust.envelope import PAYLOAD_TYPE, sign
from mbd.trust.keys import LOG, load_signer, make_keys
from mbd.verifier.checks import REAUDIT
from mbd.verifier.verdict import CONSISTENCY, REPLACEMENT
from tests.log.build import another_machine, refused_as_shrunk, refused_as_unknown, refused_claim
from tests.monitoring.golden_store import GOLDEN, GoldenStore, days_from_now, golden
from tests.refusals import refused

NAME = golden("exact").predicate.model


class CarelessPublisher(Publisher):
    """A writer, of an older version say, that logs whatever it is given."""

    def check_leaf(self, leaf: bytes) -> None:
        """Log it."""


def not_admitted(why: str = "") -> "pytest.RaisesExc[VerificationError]":
    """Return what expects that the guard does not admit a model, and says this of it."""
    return refused(VerificationError, match=f"is not admitted: .*{why}")


def verdict_on(golden_store: GoldenStore, digest: str) -> Verdict:
    """Verify a published certificate as a reader does who sees the store for the first time."""
    given = from_store(golden_store.store, digest, golden_store.folder / "fetched")
    history = read_history(golden_store.store, golden_store.trust, cached=False)
    return verify_bundle(given, golden_store.trust, history=history)


def publish_again_with_audio(golden_store: GoldenStore) -> None:
    """Publish a model of the same name that takes audio, as a worker does that deletes from the original."""
    signer, log = (load_signer(f"file:{golden_store.folder}/keys/{name}.pem") for name in ("signer", LOG))
    statement = golden_store.dated("subjects", model=NAME)
    files = {
        name: GOLDEN / "subjects" / ("model" if name in {WEIGHTS, MODEL} else "bundle") / name
        for name in statement.digests
    }
    envelope = sign(to_payload(statement), PAYLOAD_TYPE, [signer])
    publisher = Publisher(golden_store.store, StoreSettings(), log, golden_store.trust)
    publish_certificate(publisher, envelope.to_bytes(), files)


def a_revoked_modality_does_not_come_back(golden_store: GoldenStore) -> None:
    """Lose every unsigned object, and publish the original again: refused."""
    golden_store.files("exact", "subjects")
    golden_store.certificate("exact", model=NAME)
    store, kept = golden_store.store, ("log/", "certificates/", "objects/")
    store.delete([stored for stored in store.list() if not stored.name.startswith(kept)])
    with refused(VerificationError, key="structure.inputs"):
        publish_again_with_audio(golden_store)
    assert read_history(golden_store.store, golden_store.trust, cached=False).size == 1


def a_model_that_takes_it_again_is_neither_verified_nor_admitted(golden_store: GoldenStore) -> None:
    """Log such a certificate by a writer that does not look: readers refuse it."""
    golden_store.files("exact", "subjects")
    golden_store.certificate("exact", model=NAME)
    digest = golden_store.publish(golden_store.dated("subjects", model=NAME), CarelessPublisher)
    verdict = verdict_on(golden_store, digest)
    assert (verdict.check(REPLACEMENT).outcome, verdict.decision) == ("failed", "not verified")
    with not_admitted("audio is revoked for"):
        admit(GOLDEN / "subjects" / "model", golden_store.store, golden_store.trust)


def a_revocation_does_not_disappear_with_one_object(golden_store: GoldenStore) -> None:
    """Remove each object but those of the certificate itself, one at a time: it is never verified again."""
    golden_store.files("exact")
    digest = golden_store.certificate("exact")
    assert verdict_on(golden_store, digest).verified
    golden_store.revoke(digest)
    store = golden_store.store
    for name in [stored.name for stored in store.list() if not stored.name.startswith(f"certificates/{digest}")]:
        content = store.read(name)
        store.delete([StoredObject(name, 0, "")])
        with pytest.raises(VerificationError):
            assert not verdict_on(golden_store, digest).verified, name
            admit(GOLDEN / "exact" / "model", store, golden_store.trust)
        store.create(name, content)


def a_bad_pointer_does_not_stop_the_guard(golden_store: GoldenStore) -> None:
    """Write junk where pointers are: the guard answers as before."""
    golden_store.files("exact")
    digest = golden_store.certificate("exact")
    golden_store.store.create("latest/any/thing", b"junk")
    assert admit(GOLDEN / "exact" / "model", golden_store.store, golden_store.trust).certificate == digest


def an_old_head_is_not_believed(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze a store: after some days no reader calls valid what is in it, and a first contact continues it by nothing.

    To have read the log is not enough to continue it; its operator has to say so.
    """
    golden_store.files("exact")
    digest = golden_store.certificate("exact")
    store, trust, later = golden_store.store, golden_store.trust, now() + timedelta(days=8)
    history = read_history(store, trust, cached=False)
    assert status_in(history, history.certificates[digest], later).state == "unknown"
    assert read_entry(store, digest, trust, later).status.state == "unknown"
    ((found, *_),) = (list(read_entries(store, trust, later)),)
    assert isinstance(found, CertificateEntry)
    assert found.status.state == "unknown"
    monkeypatch.setattr("mbd.log.check.now", lambda: later)
    with another_machine(golden_store.folder / "no-cache"):
        read_history(store, trust)
        with refused_as_unknown():
            golden_store.revoke(digest)
        with pytest.raises(VerificationError, match="older than 7 days"):
            adopt_log(store, trust, max_age=timedelta(days=7))
        adopt_log(store, trust)
        golden_store.revoke(digest)
        assert read_history(store, trust).size == 2


def contents(store: Store) -> dict[str, bytes]:
    return {stored.name: store.read(stored.name) for stored in store.list()}


def put(store: Store, state: Mapping[str, bytes]) -> None:
    """Give a store the objects of a state, and no others."""
    store.delete(list(store.list()))
    for name, content in state.items():
        store.create(name, content)


def an_older_store_is_refused_under_every_address(golden_store: GoldenStore, *others: Store) -> None:
    """Put a whole store back to each state that it had, in its place and in others: nothing is read, nothing signed."""
    golden_store.files("exact", "surgery")
    states = []
    digest = golden_store.certificate("exact", model=NAME)
    states.append(contents(golden_store.store))
    golden_store.audit(golden_store.certificate("surgery", model="another"))
    states.append(contents(golden_store.store))
    golden_store.revoke(digest)
    newest = contents(golden_store.store)
    read_history(golden_store.store, golden_store.trust)
    log, trust = load_signer(f"file:{golden_store.folder}/keys/{LOG}.pem"), golden_store.trust
    for state in states:
        for place in (golden_store.store, *others):
            put(place, state)
            publisher = Publisher(place, StoreSettings(), log, trust)
            work: list[Callable[[], object]] = [
                partial(read_history, place, trust),
                partial(admit, GOLDEN / "exact" / "model", place, trust, name=NAME),
                publisher.complete,
                publisher.renew,
                publisher.repair,
                partial(publish_statement, publisher, golden_store.signed(golden_store.dated("surgery"))),
                partial(adopt_log, place, trust),
            ]
            for use in work:
                with refused_as_shrunk():
                    use()
            verdict = verify_bundle(from_store(place, digest, golden_store.folder / "fetched"), trust)
            assert verdict.check(CONSISTENCY).outcome == "failed"
            assert contents(place) == state
    put(golden_store.store, newest)
    golden_store.certificate("surgery", model="a third")


def a_planted_claim_brings_nothing_back(golden_store: GoldenStore) -> None:
    """Claim a place for a signed certificate that was never published, of a model that takes audio again."""
    golden_store.files("exact", "subjects")
    digest = golden_store.certificate("exact", model=NAME)
    signer, log = (load_signer(f"file:{golden_store.folder}/keys/{name}.pem") for name in ("signer", LOG))
    envelope = sign(to_payload(golden_store.dated("subjects", model=NAME)), PAYLOAD_TYPE, [signer])
    store = golden_store.store
    store.create(certificate_name(envelope.digest), envelope.to_bytes())
    store.create(claim_name(1), bytes.fromhex(envelope.digest))
    publisher = Publisher(store, StoreSettings(), log, golden_store.trust)
    for work in (publisher.complete, publisher.renew, lambda: golden_store.revoke(digest)):
        with refused(LogDamagedError, match="audio is revoked", file=claim_name(1)):
            work()
    assert read_history(store, golden_store.trust, cached=False).size == 1


def junk_does_not_look_like_a_log(golden_store: GoldenStore) -> None:
    """Write objects into an empty store that look like those of a publisher: it still counts as empty."""
    store = golden_store.store
    store.create(proof_name("c" * 64), b"{}")
    store.create(proof_name("d"), b"{}")
    store.create(certificate_name("c" * 64), bytes(LARGEST_IN_MEMORY + 1))
    store.create(old_checkpoint_name(3), b"junk")
    assert read_history(store, golden_store.trust, cached=False).size == 0
    golden_store.certificate("exact")
    log = load_signer(f"file:{golden_store.folder}/keys/{LOG}.pem")
    assert Publisher(store, StoreSettings(), log, golden_store.trust).renew()


def an_audit_by_a_stranger_moves_no_date(golden_store: GoldenStore) -> None:
    """Plant an audit under keys of one's own, with the claim of a place and a proof that is another statement's."""
    due, keys = days_from_now(-1), golden_store.folder / "stranger"
    golden_store.files("surgery")
    digest = golden_store.certificate("surgery", issued=days_from_now(-40), reaudit_by=due)
    make_keys(keys, "signer")
    summary = golden("surgery").predicate.evidence.audit
    assert summary
    audit = Reaudit(audit=summary, leakage="a" * 64, issued=now(), reaudit_by=days_from_now(200))
    statement = ReauditStatement(subject=subjects_of({CERTIFICATE: digest}), predicate=audit)
    envelope = sign(to_payload(statement), PAYLOAD_TYPE, [load_signer(f"file:{keys}/signer.pem")])
    store, trust = golden_store.store, golden_store.trust
    store.create(certificate_name(envelope.digest), envelope.to_bytes())
    store.create(proof_name(envelope.digest), store.read(proof_name(digest)))
    store.create(claim_name(1), bytes.fromhex(envelope.digest))
    found = read_entry(store, digest, trust, now())
    assert (found.status.state, found.status.reaudit_by) == ("overdue", due)
    assert verdict_on(golden_store, digest).check(REAUDIT).outcome == "failed"
    with refused_claim(1):
        golden_store.audit(digest)
    assert read_history(store, trust, cached=False).size == 1
