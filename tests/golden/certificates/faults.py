"""What can be wrong with a certificate: one function for each fault, named like the golden that it makes.

A fault that only the issuer could commit (a wrong ε, evidence that was refused) is signed and logged by the right keys:
such a certificate must fail by its content alone.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import rfc8785

from mbd.certificate.compose import compose_revocation
from mbd.files import sha256_file
from mbd.formats.statement import to_payload
from mbd.log.append import append_leaf
from mbd.log.checkpoint import leaf_of
from mbd.records import now
from mbd.storage import open_store
from mbd.tensors import open_tensors, save_tensors
from mbd.trust.envelope import PAYLOAD_TYPE, Envelope, sign
from mbd.trust.keys import find_key, load_signer, make_keys
from mbd.trust.trust_file import KeyRevocation, Trust, read_trust, write_trust
from mbd.verifier.arithmetic import BUDGET
from mbd.verifier.bundle import Bundle
from mbd.verifier.checks import AGREEMENT, REAUDIT, digest_name
from mbd.verifier.gate import GATE, STRENGTH
from mbd.verifier.reader import CANONICAL, CHECKPOINT, INCLUSION, SCHEMA, VALIDITY
from mbd.verifier.structure import POSITIONS, PRECISION, REMOVED
from mbd.verifier.verdict import SIGNATURES
from tests.certificate.authority import CertificateAuthority
from tests.golden.certificates.cases import GoldenCase, read_case, write_case

SMALL = "subjects"  # the good certificate that takes the least room


@dataclass(frozen=True)
class Workshop:
    """Where bad certificates are made from good ones."""

    authority: CertificateAuthority
    made: Path

    def payload(self, base: str) -> Any:
        """Return what a good certificate states, to be changed."""
        envelope = Envelope.parse((self.made / base / "bundle" / "certificate.json").read_bytes())
        return json.loads(envelope.content)

    def signed(self, payload: bytes, keys: Path | None = None, payload_type: str = PAYLOAD_TYPE) -> bytes:
        """Return an envelope around a payload, signed by the authority or with other keys."""
        signer = load_signer(f"file:{keys or self.authority.folder / 'keys'}/signer.pem")
        return sign(payload, payload_type, [signer]).to_bytes()

    def case(self, name: str, problem: str, why: str, base: str = SMALL, **more: Any) -> Path:
        """Begin a bad certificate; return its folder."""
        folder = self.made / name
        (folder / "bundle").mkdir(parents=True)
        values = {"at": read_case(self.made / base).at, "decision": "forged or damaged", "base": base} | more
        write_case(folder, GoldenCase(why=why, problem=problem, **values))
        return folder

    def logged(self, folder: Path, envelope: bytes) -> None:
        """Put an envelope into a case and into the authority's log."""
        (folder / "bundle" / "certificate.json").write_bytes(envelope)
        signer = load_signer(f"file:{self.authority.folder}/keys/log.pem")
        proof = append_leaf(self.authority.store, leaf_of(envelope), signer, self.authority.trust)
        (folder / "bundle" / "proof.json").write_bytes(proof.to_bytes())

    def stated(self, folder: Path, payload: Any) -> None:
        """Sign and log what a case states."""
        self.logged(folder, self.signed(rfc8785.dumps(payload)))

    def trusting(self, folder: Path, change: Callable[[Trust], Trust]) -> None:
        """Give a case another trust file."""
        write_trust(folder / "trust.json", change(self.authority.trust))


Fault = Callable[[Workshop, str], None]
FAULTS: dict[str, Fault] = {}


def fault(make: Fault) -> Fault:
    """Register a fault under its name."""
    FAULTS[make.__name__.replace("_", "-")] = make
    return make


@fault
def signature_by_unknown_key(golden_store: Workshop, name: str) -> None:
    make_keys(golden_store.authority.folder / "stranger", "signer")
    folder = golden_store.case(
        name, SIGNATURES, "signed by a key that is not in the trust file", decision="not verified"
    )
    payload = rfc8785.dumps(golden_store.payload(SMALL))
    golden_store.logged(folder, golden_store.signed(payload, golden_store.authority.folder / "stranger"))


@fault
def signature_of_another_certificate(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, SIGNATURES, "the signature belongs to another certificate of the same issuer")
    good, other = (
        Envelope.parse((golden_store.made / base / "bundle" / "certificate.json").read_bytes())
        for base in (SMALL, "exact")
    )
    golden_store.logged(folder, good.model_copy(update={"signatures": other.signatures}).to_bytes())


@fault
def payload_changed_after_signing(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, SIGNATURES, "the model's name was changed after signing")
    good = Envelope.parse((golden_store.made / SMALL / "bundle" / "certificate.json").read_bytes())
    payload = golden_store.payload(SMALL)
    payload["predicate"]["model"] = "another"
    changed = sign(
        rfc8785.dumps(payload), PAYLOAD_TYPE, [load_signer(f"file:{golden_store.authority.folder}/keys/signer.pem")]
    )
    golden_store.logged(folder, changed.model_copy(update={"signatures": good.signatures}).to_bytes())


@fault
def signed_by_one_of_two(golden_store: Workshop, name: str) -> None:
    make_keys(golden_store.authority.folder / "second", "second")
    key = find_key(read_trust(golden_store.authority.folder / "second" / "trust.json"), "second")
    folder = golden_store.case(name, SIGNATURES, "two holders have to sign, and one has", decision="not verified")
    golden_store.trusting(
        folder, lambda trust: Trust.model_validate(trust.with_key(key).model_dump() | {"threshold": 2})
    )


@fault
def key_expired_before_signing(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, VALIDITY, "the key had expired when it signed")
    golden_store.trusting(folder, lambda trust: _each_certificate_key(trust, valid_until=_a_week_ago()))


@fault
def key_revoked_before_signing(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, VALIDITY, "the key had been revoked when it signed")
    revoked = KeyRevocation(at=_a_week_ago(), reason="lost", log_size=0)
    golden_store.trusting(folder, lambda trust: _each_certificate_key(trust, revoked=revoked))


def _a_week_ago() -> datetime:
    return now() - timedelta(days=7)


def _each_certificate_key(trust: Trust, **changes: Any) -> Trust:
    changes |= {"valid_from": now() - timedelta(days=30)}
    keys = tuple(k.model_copy(update=changes) if k.purpose == "certificate" else k for k in trust.keys)
    return trust.model_copy(update={"keys": keys})


@fault
def signed_in_the_future(golden_store: Workshop, name: str) -> None:
    golden_store.case(name, VALIDITY, "it says that it was signed tomorrow", at=now() - timedelta(days=1))


@fault
def expired_reaudit(golden_store: Workshop, name: str) -> None:
    golden_store.case(
        name,
        REAUDIT,
        "the model should have been attacked again",
        decision="not verified",
        at=now() + timedelta(days=91),
    )


@fault
def not_logged(golden_store: Workshop, name: str) -> None:
    golden_store.case(name, INCLUSION, "it is in no log", decision="not verified", without=("bundle/proof.json",))


@fault
def proof_of_another_log(golden_store: Workshop, name: str) -> None:
    other = CertificateAuthority.make(golden_store.authority.model_workspace, golden_store.authority.folder / "other")
    folder = golden_store.case(name, CHECKPOINT, "it is in a log that is not trusted", decision="not verified")
    envelope = (golden_store.made / SMALL / "bundle" / "certificate.json").read_bytes()
    signer = load_signer(f"file:{other.folder}/keys/log.pem")
    proof = append_leaf(open_store(f"file://{other.folder}/store"), leaf_of(envelope), signer, other.trust)
    (folder / "bundle" / "proof.json").write_bytes(proof.to_bytes())


@fault
def proof_of_another_certificate(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, INCLUSION, "the proof is that of another entry of the same log")
    shutil.copyfile(golden_store.made / "surgery" / "bundle" / "proof.json", folder / "bundle" / "proof.json")


@fault
def weights_of_another_model(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(
        name, digest_name("model.safetensors"), "other weights were put in place of the certified ones"
    )
    (folder / "model").mkdir()
    weights = dict(open_tensors(golden_store.made / SMALL / "model" / "model.safetensors"))
    first = sorted(weights)[0]
    save_tensors(folder / "model" / "model.safetensors", weights | {first: weights[first] + 1})


@fault
def index_list_of_another_model(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, digest_name("indices.safetensors"), "the list of edited positions is another one")
    save_tensors(folder / "bundle" / "indices.safetensors", {"label_mean": np.zeros(1, np.int64)})


@fault
def report_edited(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, digest_name("report.md"), "the report was embellished")
    report = (golden_store.made / SMALL / "bundle" / "report.md").read_text(encoding="utf-8")
    (folder / "bundle" / "report.md").write_text(report + "\nAll recordings have been erased.\n", encoding="utf-8")


@fault
def leakage_missing(golden_store: Workshop, name: str) -> None:
    golden_store.case(
        name,
        digest_name("leakage.json"),
        "the attacks are not in the bundle",
        decision="not verified",
        base="exact",
        without=("bundle/leakage.json",),
    )


@fault
def envelope_not_canonical(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, CANONICAL, "the envelope is written with a space that does not belong there")
    envelope = (golden_store.made / SMALL / "bundle" / "certificate.json").read_bytes()
    golden_store.logged(folder, envelope.replace(b'{"payload":', b'{ "payload":', 1))


@fault
def payload_not_canonical(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, CANONICAL, "what was signed is not in canonical form")
    golden_store.logged(folder, golden_store.signed(json.dumps(golden_store.payload(SMALL)).encode()))


@fault
def payload_type_other(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, SCHEMA, "what was signed is not an in-toto statement, by its payload type")
    payload = rfc8785.dumps(golden_store.payload(SMALL))
    golden_store.logged(folder, golden_store.signed(payload, payload_type="application/json"))


@fault
def unknown_predicate_type(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload(SMALL) | {"predicateType": "urn:missing-by-design:modality-deletion:v0"}
    golden_store.stated(golden_store.case(name, SCHEMA, "a type of statement that there never was"), payload)


@fault
def revocation_instead_of_certificate(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(
        name, SCHEMA, "a signed statement about a certificate is no certificate", decision="not verified"
    )
    statement = compose_revocation(Bundle(golden_store.made / SMALL / "bundle").digest, "an example", now())
    golden_store.logged(folder, golden_store.signed(to_payload(statement)))


@fault
def subject_by_name(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload(SMALL)
    payload["predicate"]["deleted"]["subjects"] = ["speaker 7"]
    golden_store.stated(golden_store.case(name, SCHEMA, "a subject is named instead of committed to"), payload)


@fault
def epsilon_without_proof(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload("surgery")
    payload["predicate"]["guarantee"] |= {"epsilon": 1, "delta": 1e-5}
    golden_store.stated(golden_store.case(name, SCHEMA, "an empirical deletion claims an ε", base="surgery"), payload)


@fault
def epsilon_smaller_than_computed(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload("certified")
    payload["predicate"]["guarantee"]["epsilon"] = payload["predicate"]["budget"]["epsilon"] = 0.5
    golden_store.stated(
        golden_store.case(name, BUDGET, "σ is too small for the ε that is claimed", base="certified"), payload
    )


@fault
def lineage_spent_more_than_stated(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload("certified")
    payload["predicate"]["budget"]["lineage"] |= {"rho_before": 0.1}
    why = "what the lineage had spent before does not add up with what it has spent now"
    golden_store.stated(golden_store.case(name, BUDGET, why, base="certified"), payload)


@fault
def refused_evidence(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload("exact")
    audit = payload["predicate"]["evidence"]["audit"]
    audit |= {"decision": "refused", "reasons": ["the white-box probe finds audio"]}
    golden_store.stated(golden_store.case(name, GATE, "the gate had refused the model", base="exact"), payload)


@fault
def decision_against_its_numbers(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload("exact")
    measures = payload["predicate"]["evidence"]["audit"]["measures"]["audio"]
    measures["whitebox.accuracy_fed"]["as released"] = ["passed", 0.3, 0.5]
    why = "an attack is said to have passed, and its numbers say otherwise"
    golden_store.stated(golden_store.case(name, GATE, why, base="exact"), payload)


@fault
def gate_opened_by_a_parameter(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload("exact")
    payload["predicate"]["evidence"]["audit"]["suite"]["parameters"]["tolerance"] = 1
    why = "every difference was tolerated, so no attack could be refused"
    golden_store.stated(golden_store.case(name, STRENGTH, why, base="exact"), payload)


@fault
def attacks_on_another_model(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload("exact")
    payload["predicate"]["evidence"]["audit"]["models"]["after"] = "a" * 64
    golden_store.stated(
        golden_store.case(name, AGREEMENT, "another model was attacked than the released one", base="exact"), payload
    )


@fault
def listed_positions_not_zero(golden_store: Workshop, name: str) -> None:
    folder = golden_store.case(name, POSITIONS, "positions are said to be zero and are not", base="surgery")
    save_tensors(folder / "bundle" / "indices.safetensors", {"fusion.hidden.weight": np.arange(5)})
    digest = sha256_file(folder / "bundle" / "indices.safetensors")
    payload = golden_store.payload("surgery")
    payload["predicate"]["edit"] |= {"kind": "zero", "sha256": digest, "count": 5}
    _set_digest(payload, "indices.safetensors", digest)
    golden_store.stated(folder, payload)


@fault
def numbers_finer_than_stated(golden_store: Workshop, name: str) -> None:
    payload = golden_store.payload("surgery")
    payload["predicate"]["rounding"]["mantissa_bits"] = 1
    why = "numbers use more bits of their mantissa than were kept, so bits may hide there"
    golden_store.stated(golden_store.case(name, PRECISION, why, base="surgery"), payload)


@fault
def modality_still_in_the_weights(golden_store: Workshop, name: str) -> None:
    """Certify the model before the deletion, with a record that calls audio revoked."""
    folder = golden_store.case(name, REMOVED, "the weights still have tensors of the modality", base="surgery")
    (folder / "model").mkdir()
    source = golden_store.authority.model_workspace.folder / "model"
    record = json.loads((source / "model.json").read_text())
    record |= {"revoked": ["audio"], "guarantee": {"kind": "empirical", "epsilon": None, "delta": None}}
    shutil.copyfile(source / "model.safetensors", folder / "model" / "model.safetensors")
    for place in ("bundle", "model"):
        (folder / place / "model.json").write_text(json.dumps(record))
    payload = golden_store.payload("surgery")
    payload["predicate"]["evidence"]["audit"]["models"]["after"] = record["sha256"]
    _set_digest(payload, "model.safetensors", record["sha256"])
    _set_digest(payload, "model.json", sha256_file(folder / "model" / "model.json"))
    golden_store.stated(folder, payload)


def _set_digest(payload: Any, name: str, sha256: str) -> None:
    for subject in payload["subject"]:
        if subject["name"] == name:
            subject["digest"]["sha256"] = sha256
