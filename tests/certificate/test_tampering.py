"""Ten thousand ways to tamper with a published certificate: none is believed, and the harness would notice one that is.

`make differential` tries them all, `make test-all` a quarter of each family, `make test` a twentieth.

Each family of mutations is also shown to a verifier that is blind to the checks which should catch it: there, some
mutations must get through, or the family would prove nothing.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import pytest

from mbd.formats.files import CERTIFICATE, INDICES, MODEL, PROOF, REPORT, WEIGHTS
from mbd.formats.layout import certificate_name, object_name, proof_name
from mbd.formats.leakage import LEAKAGE
from mbd.log.reader import Log
from mbd.log.tiles import CHECKPOINT as HEAD
from mbd.log.tiles import tile_at
from mbd.randomness import stream
from mbd.verifier import reader
from mbd.verifier.checks import digest_name
from mbd.verifier.reader import CHECKPOINT, INCLUSION, VALIDITY, parse_envelope
from mbd.verifier.verdict import SIGNATURES, STANDING
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import ModelWorkspace
from tests.certificate.tampering import (
    GONE,
    TRUST,
    Files,
    Mutation,
    TamperingCase,
    any_of,
    exchanged,
    in_bytes,
    in_fields,
    in_statement,
    read_tree,
)

SHARE = int(os.environ.get("MBD_MUTATIONS", "500")) / 10_000
REQUIRED = frozenset({SIGNATURES, VALIDITY, INCLUSION, CHECKPOINT})


@dataclass(frozen=True)
class Family:
    """Mutations of one kind, how many are tried, and the checks without which some of them would be believed."""

    mutation: Mutation
    count: int
    blind: frozenset[str]


def in_digest_of(*names: str) -> frozenset[str]:
    return frozenset(map(digest_name, names))


BUNDLED = {
    "bytes of the certificate": Family(in_bytes(f"bundle/{CERTIFICATE}"), 1600, frozenset()),
    "fields of the envelope": Family(in_fields(f"bundle/{CERTIFICATE}"), 600, REQUIRED),
    "fields of the statement": Family(in_statement, 1200, REQUIRED | in_digest_of(MODEL, WEIGHTS, INDICES)),
    "bytes of the weights": Family(in_bytes(f"model/{WEIGHTS}"), 1500, in_digest_of(WEIGHTS)),
    "bytes of the model's record": Family(in_bytes(f"model/{MODEL}"), 500, in_digest_of(MODEL)),
    "fields of the model's record": Family(in_fields(f"bundle/{MODEL}"), 500, in_digest_of(MODEL)),
    "bytes of the index list": Family(in_bytes(f"bundle/{INDICES}"), 600, in_digest_of(INDICES)),
    "fields of the evidence": Family(in_fields(f"bundle/{LEAKAGE}"), 400, in_digest_of(LEAKAGE)),
    "bytes of the report": Family(in_bytes(f"bundle/{REPORT}"), 400, in_digest_of(REPORT)),
    "bytes of the proof": Family(in_bytes(f"bundle/{PROOF}"), 700, REQUIRED),
    "fields of the proof": Family(in_fields(f"bundle/{PROOF}"), 500, REQUIRED),
    "bytes of the trust file": Family(in_bytes(TRUST), 500, frozenset()),
    "fields of the trust file": Family(in_fields(TRUST), 400, frozenset()),
    "exchanged, replayed and missing files": Family(
        exchanged, 800, REQUIRED | in_digest_of(WEIGHTS, MODEL, INDICES, LEAKAGE, REPORT)
    ),
}
STORED = ("tiles", "entries", "head", "certificate", "proof", "objects")
IN_STORE = 100


@pytest.fixture(scope="module")
def authority(model_workspace: ModelWorkspace, tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    authority = CertificateAuthority.make(model_workspace, tmp_path_factory.mktemp("authority"))
    for kind in ("surgery", "certified", "exact"):
        authority.publish(kind)
    return authority


def panel(authority: CertificateAuthority, kind: str) -> Files:
    """Return the files that a verifier of a certificate is given."""
    model = {name: (authority.model_workspace.deletion(kind) / name).read_bytes() for name in (WEIGHTS, MODEL, INDICES)}
    bundle = read_tree(authority.folder / f"published-{kind}", "bundle")
    for name in ("step.json", "receipt.json"):
        bundle.pop(f"bundle/{name}")
    return bundle | {f"model/{name}": content for name, content in model.items()}


@pytest.fixture(scope="module")
def scene(authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TamperingCase]:
    genuine = panel(authority, "certified") | {TRUST: authority.trust_file.read_bytes()}
    genuine |= read_tree(authority.folder / "store", "store")
    others = [panel(authority, kind) for kind in ("surgery", "exact")]
    digest = hashlib.sha256(genuine[f"bundle/{CERTIFICATE}"]).hexdigest()
    scene = TamperingCase(tmp_path_factory.mktemp("panel"), genuine, others, digest, authority.trust)
    scene.lay_out(genuine)
    with pytest.MonkeyPatch.context() as patch:
        # In most mutations the envelope is the genuine one: what is read of it is remembered.
        patch.setattr(reader, "parse_envelope", lru_cache(maxsize=4)(parse_envelope))
        yield scene


def first_accepted(
    scene: TamperingCase, name: str, mutation: Mutation, count: int, blind: frozenset[str] = frozenset()
) -> Files | None:
    """Return the first mutation that is believed; a proof that was taken out of a store is made from its log."""
    draw = stream(0, "tampering", name)
    mutations = (mutation(scene, draw) for _ in range(round(SHARE * count)))
    without_proof = {f"store/{proof_name(scene.digest)}": GONE}
    return next((m for m in mutations if m != without_proof and scene.accepts(m, blind)), None)


def test_what_was_not_tampered_with_is_believed(scene: TamperingCase) -> None:
    assert scene.accepts({})
    assert replace(scene, online=True).accepts({})


def test_there_are_ten_thousand() -> None:
    assert sum(family.count for family in BUNDLED.values()) + len(STORED) * IN_STORE >= 10_000


@pytest.mark.parametrize("name", BUNDLED)
def test_no_mutation_is_believed(scene: TamperingCase, name: str) -> None:
    assert first_accepted(scene, name, BUNDLED[name].mutation, BUNDLED[name].count) is None
    assert scene.accepts({})  # the panel is as it was: nothing was refused for a reason of the harness


@pytest.mark.parametrize("name", [name for name, family in BUNDLED.items() if family.blind])
def test_the_harness_notices_a_verifier_that_does_not_look(scene: TamperingCase, name: str) -> None:
    family = BUNDLED[name]
    assert first_accepted(scene, name, family.mutation, family.count, family.blind) is not None


def in_store(scene: TamperingCase, authority: CertificateAuthority, what: str) -> list[str]:
    """Return the objects of a kind that speak for the certificate."""
    tile = tile_at(Log(authority.store, authority.trust).size, 0, 0)
    names = {
        "tiles": [tile.name],
        "entries": [tile.bundle],
        "head": [HEAD],
        "certificate": [certificate_name(scene.digest)],
        "proof": [proof_name(scene.digest)],
        "objects": [
            object_name(hashlib.sha256(scene.genuine[f"bundle/{name}"]).hexdigest())
            for name in (MODEL, INDICES, LEAKAGE, REPORT)
        ],
    }
    return [f"store/{name}" for name in names[what]]


@pytest.mark.parametrize("what", STORED)
def test_no_mutation_of_the_store_is_believed(scene: TamperingCase, authority: CertificateAuthority, what: str) -> None:
    online = replace(scene, online=True)
    mutation = any_of(in_store(scene, authority, what))
    assert first_accepted(online, what, mutation, IN_STORE) is None
    assert online.accepts({})


@pytest.mark.parametrize("what", ["tiles", "entries", "head"])
def test_the_harness_notices_a_verifier_that_does_not_look_into_the_log(
    scene: TamperingCase, authority: CertificateAuthority, what: str
) -> None:
    online, mutation = replace(scene, online=True), any_of(in_store(scene, authority, what))
    assert first_accepted(online, what, mutation, IN_STORE, frozenset(STANDING)) is not None
