"""The reader of envelopes: whose signatures count, and that everything that reads envelopes refuses the same ones."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib.signer import CryptoSigner

from mbd.certificate.guard import admit
from mbd.certificate.verification import from_store, verify_bundle
from mbd.cli import group
from mbd.errors import VerificationError
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.layout import LatestPointer, certificate_name, latest_name, object_name, proof_name
from mbd.formats.statement import DeletionStatement, to_payload
from mbd.history.entries import read_entry
from mbd.log.append import append_leaf
from mbd.log.checkpoint import leaf_of
from mbd.params import load_params
from mbd.production.store_pages import write_store_pages
from mbd.records import now
from mbd.steps import report
from mbd.trust.envelope import PAYLOAD_TYPE, Envelope, sign
from mbd.trust.keys import add_key, load_signer, rotate_key, set_threshold
from mbd.trust.public_keys import public_pem
from mbd.trust.trust_file import Trust
from mbd.verifier.reader import check_signatures
from tests.monitoring.golden_store import GOLDEN, GoldenStore, golden
from tests.trust.keys import Keys, keys_in

CASE = GOLDEN / "subjects"
PAYLOAD = b'{"what":"audio"}'


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return keys_in(tmp_path_factory.mktemp("keys"), "ann", "bob", "cecil")


@pytest.fixture(scope="module")
def envelope(keys: Keys) -> Envelope:
    return sign(PAYLOAD, PAYLOAD_TYPE, [keys.signer("ann"), keys.signer("bob")])


def with_threshold(trust: Trust, threshold: int) -> Trust:
    return trust.model_copy(update={"threshold": threshold})


def problems(envelope: Envelope, trust: Trust) -> str:
    """Return why the signatures of an envelope do not count; nothing if they do."""
    checks = check_signatures(envelope, trust, now(), None, now())
    return "; ".join(check.reason for check in checks if check.outcome != "passed")


def test_the_threshold_counts_holders(keys: Keys, envelope: Envelope) -> None:
    for threshold in (1, 2):
        assert not problems(envelope, with_threshold(keys.trust, threshold))
    assert "2 of the 3 holders" in problems(envelope, with_threshold(keys.trust, 3))


def test_two_keys_of_one_holder_count_once(tmp_path: Path) -> None:
    keys = keys_in(tmp_path, "ann", "bob")
    old = keys.signer("ann")
    rotate_key(tmp_path, "ann", overlap=timedelta(days=1))
    set_threshold(tmp_path / "trust.json", 2)
    twice = sign(PAYLOAD, PAYLOAD_TYPE, [old, keys.signer("ann")])
    assert not problems(twice, with_threshold(keys.trust, 1))
    assert "1 of the 2" in problems(twice, keys.trust)


def test_keys_that_are_unknown_or_for_another_purpose_do_not_count(keys: Keys, tmp_path: Path) -> None:
    stranger = keys_in(tmp_path, "eve").signer("eve")
    for signer, why in ((stranger, "not in the trust file"), (keys.log, "not trusted to sign certificates")):
        assert why in problems(sign(PAYLOAD, PAYLOAD_TYPE, [signer]), keys.trust)


def test_other_kinds_of_keys_sign_as_well(tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    signer = CryptoSigner(generate_private_key(SECP256R1()))
    add_key(tmp_path / "trust.json", public_pem(signer), "kms", "certificate")
    assert not problems(sign(PAYLOAD, PAYLOAD_TYPE, [signer]), keys.trust)


@settings(deadline=None, max_examples=400)
@given(data=st.data())
def test_no_changed_byte_is_accepted(keys: Keys, envelope: Envelope, data: st.DataObject) -> None:
    original = envelope.to_bytes()
    trust = with_threshold(keys.trust, 2)
    assert not problems(envelope, trust)
    place = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != original[place]))
    try:
        changed = Envelope.parse(original[:place] + bytes([byte]) + original[place + 1 :])
    except VerificationError:
        return
    assert problems(changed, trust)


@dataclass(frozen=True)
class ForgedStore:
    """A store with one certificate that a trusted key has signed, and that the log has."""

    golden_store: GoldenStore
    digest: str
    out: Path

    @classmethod
    def publish(cls, folder: Path, encode: Callable[[DeletionStatement], bytes], payload_type: str) -> "ForgedStore":
        """Publish the golden certificate, signed now, with its payload encoded like this."""
        golden_store, statement = GoldenStore.open(folder), golden("subjects")
        changes = {"issued": now(), "reaudit_by": now() + timedelta(days=90)}
        statement = statement.model_copy(update={"predicate": statement.predicate.model_copy(update=changes)})
        signer, log_signer = (load_signer(f"file:{folder}/keys/{name}.pem") for name in ("signer", "log"))
        envelope = sign(encode(statement), payload_type, [signer])
        data, store, trust = envelope.to_bytes(), golden_store.store, golden_store.trust
        proof = append_leaf(store, leaf_of(data), log_signer, trust)
        store.create(certificate_name(envelope.digest), data)
        store.create(proof_name(envelope.digest), proof.to_bytes())
        pointer = LatestPointer(certificate=envelope.digest, index=proof.index)
        store.create(latest_name(statement.predicate.model, "audio"), pointer.to_bytes())
        for name, sha256 in statement.digests.items():
            source = CASE / ("model" if name in {WEIGHTS, MODEL} else "bundle") / name
            store.create(object_name(sha256), source)
        return cls(golden_store, envelope.digest, folder / "out")

    def verify(self) -> bool:
        self.out.mkdir()
        given = from_store(self.golden_store.store, self.digest, self.out, CASE / "model")
        return verify_bundle(given, self.golden_store.trust).verified

    def certificate_list(self) -> bool:
        trust = str(self.golden_store.trust_file)
        command = ["certificate", "list", "--store", self.golden_store.url, "--json", "--trust", trust]
        rows = json.loads(CliRunner().invoke(group, command).stdout)
        return [row.get("state") for row in rows] == ["valid"]

    def exporter(self) -> bool:
        return self.digest in self.golden_store.scanner().scan().history.certificates

    def report(self) -> bool:
        write_store_pages(load_params(None, []), self.golden_store.url, self.out, trust=self.golden_store.trust_file)
        return (self.out / "certificates" / f"{self.digest}.html").exists()

    def report_of_bundle(self) -> bool:
        bundle = self.golden_store.folder / "store" / "certificates" / self.digest
        try:
            report.of_bundle(bundle, self.out)
        except VerificationError:
            return False
        return True

    def guard(self) -> bool:
        try:
            return admit(CASE / "model", self.golden_store.store, self.golden_store.trust).certificate == self.digest
        except VerificationError:
            return False

    def request_and_purge(self) -> bool:
        try:
            return (
                read_entry(self.golden_store.store, self.digest, self.golden_store.trust, now()).status.state == "valid"
            )
        except VerificationError:
            return False


READERS: list[Callable[[ForgedStore], bool]] = [
    ForgedStore.verify,
    ForgedStore.certificate_list,
    ForgedStore.exporter,
    ForgedStore.report,
    ForgedStore.report_of_bundle,
    ForgedStore.guard,
    ForgedStore.request_and_purge,
]


def _indented(statement: DeletionStatement) -> bytes:
    return json.dumps(json.loads(to_payload(statement)), indent=1).encode()


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize(
    ("encode", "payload_type", "accepted"),
    [
        pytest.param(to_payload, PAYLOAD_TYPE, True, id="as-it-should-be"),
        pytest.param(_indented, PAYLOAD_TYPE, False, id="payload-not-canonical"),
        pytest.param(to_payload, "application/json", False, id="payload-type-other"),
    ],
)
def test_every_reader_refuses_the_same_envelopes(
    tmp_path: Path,
    reader: Callable[[ForgedStore], bool],
    encode: Callable[[DeletionStatement], bytes],
    payload_type: str,
    accepted: bool,
) -> None:
    assert reader(ForgedStore.publish(tmp_path, encode, payload_type)) is accepted
