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

from mbd.certificate.bundle import Bundle
from mbd.certificate.envelope import PAYLOAD_TYPE, Envelope, sign
from mbd.certificate.keyring import make_keys
from mbd.certificate.keys import load_signer
from mbd.certificate.lifecycle import revocation
from mbd.certificate.log.append import append
from mbd.certificate.log.inclusion import leaf_of
from mbd.certificate.statement import to_payload
from mbd.certificate.trust import Revocation, Trust, now, read_trust, write_trust
from mbd.certificate.verify.arithmetic import BUDGET
from mbd.certificate.verify.checks import REAUDIT, digest_name
from mbd.certificate.verify.claims import AGREEMENT
from mbd.certificate.verify.gate import GATE
from mbd.certificate.verify.signing import CANONICAL, CHECKPOINT, INCLUSION, SCHEMA, SIGNATURES, VALIDITY, proof_bytes
from mbd.certificate.verify.structure import POSITIONS, REMOVED
from mbd.files import sha256_file
from mbd.storage import open_store
from mbd.tensors import open_tensors, save_tensors
from tests.certificate.office import Office
from tests.golden.certificates.cases import Case, read_case, write_case

SMALL = "subjects"  # the good certificate that takes the least room


@dataclass(frozen=True)
class Workshop:
    """Where bad certificates are made from good ones."""

    office: Office
    made: Path

    def payload(self, base: str) -> Any:
        """Return what a good certificate states, to be changed."""
        envelope = Envelope.parse((self.made / base / "bundle" / "certificate.json").read_bytes())
        return json.loads(envelope.content)

    def signed(self, payload: bytes, keys: Path | None = None) -> bytes:
        """Return an envelope around a payload, signed by the office or with other keys."""
        signer = load_signer(f"file:{keys or self.office.folder / 'keys'}/signer.pem")
        return sign(payload, PAYLOAD_TYPE, [signer]).to_bytes()

    def case(self, name: str, problem: str, why: str, base: str = SMALL, **more: Any) -> Path:
        """Begin a bad certificate; return its folder."""
        folder = self.made / name
        (folder / "bundle").mkdir(parents=True)
        values = {"at": read_case(self.made / base).at, "decision": "failed", "base": base} | more
        write_case(folder, Case(why=why, problem=problem, **values))
        return folder

    def logged(self, folder: Path, envelope: bytes) -> None:
        """Put an envelope into a case and into the office's log."""
        (folder / "bundle" / "certificate.json").write_bytes(envelope)
        signer = load_signer(f"file:{self.office.folder}/keys/log.pem")
        proof = append(self.office.store, leaf_of(envelope), signer, self.office.trust)
        (folder / "bundle" / "proof.json").write_bytes(proof_bytes(proof))

    def stated(self, folder: Path, payload: Any) -> None:
        """Sign and log what a case states."""
        self.logged(folder, self.signed(rfc8785.dumps(payload)))

    def trusting(self, folder: Path, change: Callable[[Trust], Trust]) -> None:
        """Give a case another trust file."""
        write_trust(folder / "trust.json", change(self.office.trust))


Fault = Callable[[Workshop, str], None]
FAULTS: dict[str, Fault] = {}


def fault(make: Fault) -> Fault:
    """Register a fault under its name."""
    FAULTS[make.__name__.replace("_", "-")] = make
    return make


@fault
def signature_by_unknown_key(shop: Workshop, name: str) -> None:
    make_keys(shop.office.folder / "stranger", "signer")
    folder = shop.case(name, SIGNATURES, "signed by a key that is not in the trust file")
    payload = rfc8785.dumps(shop.payload(SMALL))
    shop.logged(folder, shop.signed(payload, shop.office.folder / "stranger"))


@fault
def signature_of_another_certificate(shop: Workshop, name: str) -> None:
    folder = shop.case(name, SIGNATURES, "the signature belongs to another certificate of the same issuer")
    good, other = (
        Envelope.parse((shop.made / base / "bundle" / "certificate.json").read_bytes()) for base in (SMALL, "exact")
    )
    shop.logged(folder, good.model_copy(update={"signatures": other.signatures}).to_bytes())


@fault
def payload_changed_after_signing(shop: Workshop, name: str) -> None:
    folder = shop.case(name, SIGNATURES, "the model's name was changed after signing")
    good = Envelope.parse((shop.made / SMALL / "bundle" / "certificate.json").read_bytes())
    payload = shop.payload(SMALL)
    payload["predicate"]["model"] = "another"
    changed = sign(rfc8785.dumps(payload), PAYLOAD_TYPE, [load_signer(f"file:{shop.office.folder}/keys/signer.pem")])
    shop.logged(folder, changed.model_copy(update={"signatures": good.signatures}).to_bytes())


@fault
def signed_by_one_of_two(shop: Workshop, name: str) -> None:
    make_keys(shop.office.folder / "second", "second")
    key = read_trust(shop.office.folder / "second" / "trust.json").find("second")
    folder = shop.case(name, SIGNATURES, "two holders have to sign, and one has")
    shop.trusting(folder, lambda trust: Trust.model_validate(trust.with_key(key).model_dump() | {"threshold": 2}))


@fault
def key_expired_before_signing(shop: Workshop, name: str) -> None:
    folder = shop.case(name, VALIDITY, "the key had expired when it signed")
    shop.trusting(folder, lambda trust: _each_certificate_key(trust, valid_until=_a_week_ago()))


@fault
def key_revoked_before_signing(shop: Workshop, name: str) -> None:
    folder = shop.case(name, VALIDITY, "the key had been revoked when it signed")
    revoked = Revocation(at=_a_week_ago(), reason="lost", log_size=0)
    shop.trusting(folder, lambda trust: _each_certificate_key(trust, revoked=revoked))


def _a_week_ago() -> datetime:
    return now() - timedelta(days=7)


def _each_certificate_key(trust: Trust, **changes: Any) -> Trust:
    changes |= {"valid_from": now() - timedelta(days=30)}
    keys = tuple(k.model_copy(update=changes) if k.purpose == "certificate" else k for k in trust.keys)
    return trust.model_copy(update={"keys": keys})


@fault
def signed_in_the_future(shop: Workshop, name: str) -> None:
    shop.case(name, VALIDITY, "it says that it was signed tomorrow", at=now() - timedelta(days=1))


@fault
def expired_reaudit(shop: Workshop, name: str) -> None:
    shop.case(name, REAUDIT, "the model should have been attacked again", at=now() + timedelta(days=91))


@fault
def not_logged(shop: Workshop, name: str) -> None:
    shop.case(name, INCLUSION, "it is in no log", decision="not verified", without=("bundle/proof.json",))


@fault
def proof_of_another_log(shop: Workshop, name: str) -> None:
    other = Office.make(shop.office.home, shop.office.folder / "other")
    folder = shop.case(name, CHECKPOINT, "it is in a log that nobody trusts")
    envelope = (shop.made / SMALL / "bundle" / "certificate.json").read_bytes()
    signer = load_signer(f"file:{other.folder}/keys/log.pem")
    proof = append(open_store(f"file://{other.folder}/store"), leaf_of(envelope), signer, other.trust)
    (folder / "bundle" / "proof.json").write_bytes(proof_bytes(proof))


@fault
def proof_of_another_certificate(shop: Workshop, name: str) -> None:
    folder = shop.case(name, INCLUSION, "the proof is that of another entry of the same log")
    shutil.copyfile(shop.made / "surgery" / "bundle" / "proof.json", folder / "bundle" / "proof.json")


@fault
def weights_of_another_model(shop: Workshop, name: str) -> None:
    folder = shop.case(name, digest_name("model.safetensors"), "other weights were put in place of the certified ones")
    (folder / "model").mkdir()
    weights = dict(open_tensors(shop.made / SMALL / "model" / "model.safetensors"))
    first = sorted(weights)[0]
    save_tensors(folder / "model" / "model.safetensors", weights | {first: weights[first] + 1})


@fault
def index_list_of_another_model(shop: Workshop, name: str) -> None:
    folder = shop.case(name, digest_name("indices.safetensors"), "the list of edited positions is another one")
    save_tensors(folder / "bundle" / "indices.safetensors", {"label_mean": np.zeros(1, np.int64)})


@fault
def report_edited(shop: Workshop, name: str) -> None:
    folder = shop.case(name, digest_name("report.md"), "the report was embellished")
    report = (shop.made / SMALL / "bundle" / "report.md").read_text(encoding="utf-8")
    (folder / "bundle" / "report.md").write_text(report + "\nAll recordings have been erased.\n", encoding="utf-8")


@fault
def leakage_missing(shop: Workshop, name: str) -> None:
    shop.case(
        name,
        digest_name("leakage.json"),
        "the attacks are not in the bundle",
        base="exact",
        without=("bundle/leakage.json",),
    )


@fault
def envelope_not_canonical(shop: Workshop, name: str) -> None:
    folder = shop.case(name, CANONICAL, "the envelope is written with a space that does not belong there")
    envelope = (shop.made / SMALL / "bundle" / "certificate.json").read_bytes()
    shop.logged(folder, envelope.replace(b'{"payload":', b'{ "payload":', 1))


@fault
def payload_not_canonical(shop: Workshop, name: str) -> None:
    folder = shop.case(name, CANONICAL, "what was signed is not in canonical form")
    shop.logged(folder, shop.signed(json.dumps(shop.payload(SMALL)).encode()))


@fault
def unknown_predicate_type(shop: Workshop, name: str) -> None:
    payload = shop.payload(SMALL) | {"predicateType": "urn:missing-by-design:modality-deletion:v0"}
    shop.stated(shop.case(name, SCHEMA, "a type of statement that there never was"), payload)


@fault
def revocation_instead_of_certificate(shop: Workshop, name: str) -> None:
    folder = shop.case(name, SCHEMA, "a signed statement about a certificate is no certificate")
    statement = revocation(Bundle(shop.made / SMALL / "bundle").digest, "an example", now())
    shop.logged(folder, shop.signed(to_payload(statement)))


@fault
def subject_by_name(shop: Workshop, name: str) -> None:
    payload = shop.payload(SMALL)
    payload["predicate"]["deleted"]["subjects"] = ["speaker 7"]
    shop.stated(shop.case(name, SCHEMA, "a subject is named instead of committed to"), payload)


@fault
def epsilon_without_proof(shop: Workshop, name: str) -> None:
    payload = shop.payload("surgery")
    payload["predicate"]["guarantee"] |= {"epsilon": 1, "delta": 1e-5}
    shop.stated(shop.case(name, SCHEMA, "an empirical deletion claims an ε", base="surgery"), payload)


@fault
def epsilon_smaller_than_computed(shop: Workshop, name: str) -> None:
    payload = shop.payload("certified")
    payload["predicate"]["guarantee"]["epsilon"] = payload["predicate"]["budget"]["epsilon"] = 0.5
    shop.stated(shop.case(name, BUDGET, "σ is too small for the ε that is claimed", base="certified"), payload)


@fault
def lineage_spent_more_than_stated(shop: Workshop, name: str) -> None:
    payload = shop.payload("certified")
    payload["predicate"]["budget"]["lineage"] |= {"rho_before": 0.1}
    why = "what the lineage had spent before does not add up with what it has spent now"
    shop.stated(shop.case(name, BUDGET, why, base="certified"), payload)


@fault
def refused_evidence(shop: Workshop, name: str) -> None:
    payload = shop.payload("exact")
    leakage = payload["predicate"]["evidence"]["leakage"]
    leakage |= {"decision": "refused", "reasons": ["the white-box probe finds audio"]}
    shop.stated(shop.case(name, GATE, "the gate had refused the model", base="exact"), payload)


@fault
def decision_against_its_numbers(shop: Workshop, name: str) -> None:
    payload = shop.payload("exact")
    attacks = payload["predicate"]["evidence"]["leakage"]["attacks"]
    judged = next(attack for attack in attacks if attack["decision"] == "passed")
    above = {"value": 0.4, "low": 0.3, "high": 0.5}
    judged |= {"difference": above, "after": {key: judged["chance"] + value for key, value in above.items()}}
    why = "an attack is said to have passed, and its numbers say otherwise"
    shop.stated(shop.case(name, GATE, why, base="exact"), payload)


@fault
def attacks_on_another_model(shop: Workshop, name: str) -> None:
    payload = shop.payload("exact")
    payload["predicate"]["evidence"]["leakage"]["models"]["after"] = "a" * 64
    shop.stated(shop.case(name, AGREEMENT, "another model was attacked than the released one", base="exact"), payload)


@fault
def listed_positions_not_zero(shop: Workshop, name: str) -> None:
    folder = shop.case(name, POSITIONS, "positions are said to be zero and are not", base="surgery")
    save_tensors(folder / "bundle" / "indices.safetensors", {"fusion.hidden.weight": np.arange(5)})
    digest = sha256_file(folder / "bundle" / "indices.safetensors")
    payload = shop.payload("surgery")
    payload["predicate"]["edit"] |= {
        "kind": "zero",
        "sha256": digest,
        "count": 5,
        "by_tensor": {"fusion.hidden.weight": 5},
    }
    _set_digest(payload, "indices.safetensors", digest)
    shop.stated(folder, payload)


@fault
def modality_still_in_the_weights(shop: Workshop, name: str) -> None:
    """Certify the model before the deletion, with a record that calls audio revoked."""
    folder = shop.case(name, REMOVED, "the weights still have tensors of the modality", base="surgery")
    (folder / "model").mkdir()
    source = shop.office.home.folder / "model"
    record = json.loads((source / "model.json").read_text())
    record |= {"revoked": ["audio"], "guarantee": {"kind": "empirical", "epsilon": None, "delta": None}}
    shutil.copyfile(source / "model.safetensors", folder / "model" / "model.safetensors")
    for place in ("bundle", "model"):
        (folder / place / "model.json").write_text(json.dumps(record))
    payload = shop.payload("surgery")
    payload["predicate"]["structure"] |= {
        "tensors": {t: {"shape": e["shape"], "dtype": e["dtype"]} for t, e in record["tensors"].items()}
    }
    payload["predicate"]["evidence"]["leakage"]["models"]["after"] = record["sha256"]
    _set_digest(payload, "model.safetensors", record["sha256"])
    _set_digest(payload, "model.json", sha256_file(folder / "model" / "model.json"))
    shop.stated(folder, payload)


def _set_digest(payload: Any, name: str, sha256: str) -> None:
    for subject in payload["subject"]:
        if subject["name"] == name:
            subject["digest"]["sha256"] = sha256
