"""Attacks on what a store says of revocations, by a person who may write to it and holds no key; on any store."""

import pytest

from mbd.certificate.envelope import PAYLOAD_TYPE, sign
from mbd.certificate.guard import admit
from mbd.certificate.keys import LOG, load_signer
from mbd.certificate.publish import Publisher, publish_certificate
from mbd.certificate.replay import read_history
from mbd.certificate.verdict import RETURNED
from mbd.certificate.verify import Verdict, from_store, verify_bundle
from mbd.errors import VerificationError
from mbd.formats.statement import MODEL, WEIGHTS, to_payload
from mbd.params.operations import StoreSettings
from mbd.storage.store import StoredObject
from tests.monitoring.golden_store import GOLDEN, GoldenStore, golden

NAME = golden("exact").predicate.model


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
    with pytest.raises(VerificationError, match="audio is revoked for"):
        publish_again_with_audio(golden_store)
    assert read_history(golden_store.store, golden_store.trust, cached=False).size == 1


def a_model_that_takes_it_again_is_neither_verified_nor_admitted(golden_store: GoldenStore) -> None:
    """Log such a certificate by a writer that does not look: readers refuse it."""
    golden_store.files("exact", "subjects")
    golden_store.certificate("exact", model=NAME)
    digest = golden_store.certificate("subjects", model=NAME)
    verdict = verdict_on(golden_store, digest)
    assert (verdict.check(RETURNED).outcome, verdict.decision) == ("failed", "failed")
    with pytest.raises(VerificationError, match="audio is revoked for"):
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
