"""Certificates of every kind, composed by hand, and an authority that signs and publishes them, without a model."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from mbd.certificate.publish import Publisher, announce, publish_statement
from mbd.formats.files import CERTIFICATE, PROOF
from mbd.formats.leakage import LEAKAGE, LeakageRecord, summarise
from mbd.formats.predicate import METHOD_KINDS, Predicate
from mbd.formats.statement import SUBJECTS, AboutCertificate, DeletionStatement, subjects_of
from mbd.params import Params, load_params
from mbd.records import now
from mbd.report.page.certificate import PageContext
from mbd.steps.publish import open_publisher
from mbd.trust.envelope import certificate_digest
from mbd.trust.keys import make_keys, sign_statement
from tests.certificate.authority import key_settings
from tests.certificate.keyed_store import KeyedStore
from tests.formats.audits import strong_audit

Kind = Literal["surgery", "certified", "exact", "subjects"]
KINDS: tuple[Kind, ...] = ("surgery", "certified", "exact", "subjects")
ISSUED = datetime(2026, 3, 2, 12, 0, 0, tzinfo=UTC)
A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def files_of(kind: Kind) -> dict[str, bytes]:
    """Return the files that a certificate is about: of all but leakage.json any bytes will do."""
    files = {name: f"{kind} {name}".encode() * 100 for name in SUBJECTS if name != LEAKAGE}
    return files if kind == "subjects" else {**files, LEAKAGE: leakage().to_bytes()}


def statement_of(kind: Kind, **changes: Any) -> DeletionStatement:
    """Return a certificate; `changes` replace fields of its predicate."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files_of(kind).items()}
    predicate = Predicate.model_validate({**_predicate(kind), **changes})
    return DeletionStatement(subject=subjects_of(digests), predicate=predicate)


def _predicate(kind: Kind) -> dict[str, Any]:
    method = "exact" if kind == "subjects" else kind
    guarantee = {"surgery": ("empirical", None, None), "certified": ("certified", 1.0, 1e-5)}.get(
        kind, ("exact", 0.0, 0.0)
    )
    certified = kind == "certified"
    gone = [] if kind == "subjects" else ["audio"]
    return {
        "model": "sentiment",
        "deleted": {
            "modalities": ["audio"],
            "scope": "subjects" if kind == "subjects" else "modalities",
            "subjects": [C] if kind == "subjects" else [],
            "revoked": gone,
        },
        "guarantee": dict(
            zip(("kind", "epsilon", "delta"), guarantee, strict=True), assumptions=["The clocks are right."]
        ),
        "issuer": {"name": "Example Ltd", "contact": "privacy@example.org"},
        "method": {"name": method, "kind": METHOD_KINDS[method], "variant": None, "parameters": {}, "findings": {}},
        "edit": {"kind": "all" if certified else "none", "sha256": A, "count": 12 * certified},
        "rounding": _rounding() if kind == "surgery" else None,
        "noise": {"sigma": 3.0, "commitment": B, "stream": "one stream", "key": "destroyed"} if certified else None,
        "budget": _budget() if certified else None,
        "calibration": {"requested": 5000, "used": 300, "note": "Only 300 calibration rows were there."},
        "structure": {
            "backbone": "joint",
            "inputs": {"text": 768, "visual": 512},
            "absent": {"belongs_to": gone, "reads": gone, "sees": []},
        },
        "evidence": {"audit": None if kind == "subjects" else summarise(leakage()), "evaluation": _evaluation()},
        "lineage": {
            "before": {"sha256": A},
            "models": [{"sha256": A}, {"commitment": B}],
            "id": C,
            "record": B,
            "key": C[:16],
            "data_name": "synthetic",
            "data": {"commitment": C},
            "dvc_revision": "v1.0",
            "git_commit": None,
            "image_digest": None,
            "run_id": None,
        },
        "environment": [
            {"steps": ["delete"], "versions": {"mbd": "0.1.0"}},
            {"steps": ["attack"], "versions": {"mbd": "0.1.0", "torch": "2.13.0"}},
        ],
        "request": {"reference": "batch-7", "received": ISSUED - timedelta(days=9), "due": ISSUED + timedelta(days=21)},
        "erasure": {"claim": "none", "note": "Copies of the old weights may exist."},
        "disclosures": ["The figures are averages over rows."],
        "issued": ISSUED,
        "reaudit_by": ISSUED + timedelta(days=3650),
        "supersedes": None,
    }


def _rounding() -> dict[str, Any]:
    by = "the loss on the calibration rows"
    return {"mantissa_bits": 7, "chosen_by": by, "rows": 300, "loss": 0.5, "loss_rounded": 0.5001}


def _budget() -> dict[str, Any]:
    lineage = {"rho_before": 0.0, "rho_after": 0.06, "epsilon_before": 0.0, "epsilon_after": 1.0}
    return {
        "clip_radius": 1.0,
        "sensitivity": 2.0,
        "reason": "Any two clipped models are at most 2C apart.",
        "sigma": 3.0,
        "epsilon": 1.0,
        "delta": 1e-5,
        "rho": 0.06,
        "computed": {},
        "lineage": {**lineage, "delta": 1e-5, "limit": 4.0, "entry": A},
    }


def _evaluation() -> dict[str, Any]:
    metrics = {"acc2": 84.31, "mae": 0.7121}
    return {"metrics_sha256": A, "modalities": ["text", "visual"], "rows": 64, "metrics": metrics}


def attack(name: str, **changes: Any) -> dict[str, Any]:
    """Return one measure of an attack."""
    return {
        "modality": "audio",
        "id": f"{name}.balanced_accuracy",
        "chance": 0.5,
        "before": {"value": 0.86, "low": 0.83, "high": 0.89},
        "after": {"value": 0.52, "low": 0.49, "high": 0.55},
        "reference": {"value": 0.515, "low": 0.485, "high": 0.545},
        "difference": {"value": 0.005, "low": -0.02, "high": 0.03},
        "tolerance": 0.03,
        "detectable": 0.1,
        "blind": False,
        "decision": "passed",
        "reason": "no better than on the reference",
        **changes,
    }


_NOT_COMPARED = dict.fromkeys(("before", "reference", "difference", "tolerance"))


def leakage(**changes: Any) -> LeakageRecord:
    """Return the record of a small suite that was passed; `changes` replace parts of it."""
    record = {
        "modalities": ["audio"],
        "models": {"before": A, "after": B, "reference": C},
        "data": {"name": "synthetic"},
        "earlier": {"audits": 2, "refused": 1},
        "suite": strong_audit(B).suite.to_plain(),
        "attacks": [
            attack("whitebox"),
            attack("relearn", id="relearn.r2_8", after={"value": -2.0, "low": -2.5, "high": -1.5}),
            attack("whitebox", variant="int8"),
            attack(
                "diff",
                id="diff.blackbox_accuracy_fed",
                decision="informational",
                before=None,
                reference=None,
                difference=None,
                tolerance=None,
            ),
        ],
        "utility": [
            {
                "metric": "acc2",
                "regime": "text+visual",
                "before": None,
                "after": {"value": 84.0, "low": 82.0, "high": 86.0},
                "reference": {"value": 84.5, "low": 82.5, "high": 86.5},
                "to_before": None,
                "to_reference": {"value": -0.5, "low": -2.0, "high": 1.0},
                "margin": 3.0,
                "detectable": 4.0,
                "decision": "passed",
                "reason": "no more is lost than may be",
            }
        ],
        "invariants": [{"name": "cut", "decision": "passed", "reason": "nothing of audio is left"}],
        "lower_bound": None,
        "decision": "passed",
        "reasons": [],
    }
    return LeakageRecord.model_validate(record | changes)


def page_context(kind: Kind, digest: str = "0" * 64, **known: Any) -> PageContext:
    """Return what is known of a certificate when its `leakage.json` is at hand."""
    return PageContext(digest, leakage=None if kind == "subjects" else leakage(), **known)


@dataclass(frozen=True)
class SmallAuthority(KeyedStore):
    """Keys, trust and a store in one folder."""

    @classmethod
    def make(cls, folder: Path, *holders: str) -> "SmallAuthority":
        """Make the keys of holders (by default of one) and of the log."""
        for name in holders or ("signer",):
            make_keys(folder / "keys", name)
        return cls(folder)

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings with which everything stays in this folder."""
        return (*key_settings(self.folder), f"store.url={self.url}")

    @property
    def params(self) -> Params:
        return load_params(None, self.settings)

    @property
    def publisher(self) -> Publisher:
        return open_publisher(self.params, self.url)

    def publish(self, kind: Kind, **changes: Any) -> Path:
        """Sign and publish a certificate that is issued now; return its bundle, with the weights in it as well."""
        statement = statement_of(kind, **{"issued": now(), **changes})
        envelope = sign_statement(statement, self.params.certificate).to_bytes()
        _, _, inclusion = publish_statement(self.publisher, envelope)
        bundle = self.folder / "bundles" / certificate_digest(envelope)
        bundle.mkdir(parents=True)
        for name, content in {
            **files_of(kind),
            CERTIFICATE: envelope,
            PROOF: inclusion.to_bytes(),
        }.items():
            (bundle / name).write_bytes(content)
        return bundle

    def say(self, statement: AboutCertificate) -> None:
        """Publish a statement about a certificate."""
        announce(statement, self.params.certificate, self.publisher)
