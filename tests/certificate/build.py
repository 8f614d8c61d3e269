"""What certificates are made of: small models, deletions of every kind, evaluations, attack records, keys."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mbd.features.contract import FeatureSet
from mbd.files import write_file
from mbd.formats.deletion import DeletionRecord, read_deletion
from mbd.formats.leakage import LeakageRecord
from mbd.model.checkpoint import load_model, save_model
from mbd.outputs import step_run
from mbd.params import Params, load_params
from mbd.steps import certify, delete, evaluate
from mbd.training.lattice import train_lattice
from mbd.trust.keys import make_keys
from mbd.trust.trust_file import Trust, read_trust, write_trust
from tests.deletion.models import home_with_models
from tests.formats.audits import strong_audit

ISSUED = datetime(2026, 3, 2, 12, 0, 0, tzinfo=UTC)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LATTICE = ("model.backbone=lattice", "model.lattice.components=4", "model.lattice.landmarks=8")
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "surgery": ("model", ("deletion.method=surgery",)),
    "certified": ("model", ("deletion.method=certified", "deletion.certified.finetune_epochs=1", "training.epochs=2")),
    "exact": ("lattice", ("deletion.method=exact", *LATTICE)),
    "subjects": ("lattice", ("deletion.method=exact", *LATTICE)),
}
"""kind of deletion → the model it is made from, and its settings"""


@dataclass(frozen=True)
class ModelWorkspace:
    """A folder with data, models and keys."""

    folder: Path

    def params(self, *settings: str) -> Params:
        """Return parameters with which everything stays in this folder."""
        own = (
            f"certificate.signers=['file:{self.folder}/keys/signer.pem']",
            f"certificate.log_signer=file:{self.folder}/keys/log.pem",
            f"certificate.trust={self.folder}/keys/trust.json",
            f"certificate.private={self.folder}/private",
            f"deletion.ledgers={self.folder}/ledgers",
            "evaluation.figures=false",
        )
        return load_params(None, [*own, *settings])

    def subject(self) -> str:
        """Return a subject of the data."""
        return str(FeatureSet.open(self.folder / "data").split("train").load().groups[0])

    def deletion(self, kind: str) -> Path:
        """Return the folder of a deletion of audio, made at first use."""
        out = self.folder / f"deleted-{kind}"
        if not out.exists():
            model, settings = KINDS[kind]
            subjects = [self.subject()] if kind == "subjects" else []
            delete.run(self.params(*settings), self.folder / "data", self.folder / model, ["audio"], subjects, out)
        return out

    def evaluation(self, kind: str) -> Path:
        """Return the folder of the evaluation of a deleted model, made at first use."""
        out = self.folder / f"evaluation-{kind}"
        if not out.exists():
            evaluate.run(self.params(), self.folder / "data", [self.deletion(kind)], out)
        return out

    def leakage(self, kind: str, out: Path | None = None, **changes: Any) -> Path | None:
        """Return the folder with an attack record of a deleted model; `changes` go on top."""
        if kind == "subjects":
            return None
        out = out or self.folder / f"leakage-{kind}"
        deletion = read_deletion(self.deletion(kind))
        assert deletion
        write_leakage(out, leakage_record(deletion).model_copy(update=changes))
        return out

    def certify(self, kind: str, out: Path, *settings: str, **options: Any) -> certify.CertifyResult:
        """Certify a deletion."""
        options = {"leakage": self.leakage(kind)} | options
        return certify.run(
            self.params(*settings), self.deletion(kind), options.pop("leakage"), self.evaluation(kind), out, **options
        )


def make_home(folder: Path) -> ModelWorkspace:
    """Make data, models and keys in `folder`."""
    home_with_models(folder)
    trained = train_lattice(FeatureSet.open(folder / "data"), load_params(None, LATTICE), work=folder, progress=False)
    (folder / "lattice").mkdir()
    save_model(folder / "lattice", trained.record, trained.tensors)
    make_keys(folder / "keys", "signer", origin="tests.example/log")
    write_trust(folder / "keys" / "trust.json", _valid_long_ago(read_trust(folder / "keys" / "trust.json")))
    return ModelWorkspace(folder)


def _valid_long_ago(trust: Trust) -> Trust:
    """Let all keys be valid at any time that tests issue certificates at."""
    keys = tuple(key.model_copy(update={"valid_from": LONG_AGO}) for key in trust.keys)
    return trust.model_copy(update={"keys": keys})


def write_leakage(out: Path, record: LeakageRecord) -> None:
    """Write an attack record as `mbd attack` leaves it."""
    with step_run("attack", out, {}) as step:
        write_file(step.folder / "leakage.json", record.to_json())


def leakage_record(deletion: DeletionRecord, reference: str = "e" * 64) -> LeakageRecord:
    """Return the record of attacks that the deleted model passes."""
    record = strong_audit(
        deletion.after,
        before=deletion.before,
        reference=reference,
        modalities=deletion.request.modalities,
        kind=deletion.guarantee.kind,
        epsilon=deletion.guarantee.epsilon,
        data=deletion.data,
    )
    parameters = {**record.suite.parameters, "seed": 2**60}
    return record.model_copy(update={"suite": record.suite.model_copy(update={"parameters": parameters})})


def weights_of(folder: Path) -> str:
    """Return the SHA-256 of a model's weights."""
    return load_model(folder)[0].sha256
