"""Make the golden certificates of a new format version: `python -m tests.golden.certificates.make v2`.

What has been released is frozen: a version that is there is never made again. The models are small but real, and so are
the attacks on them; the keys are thrown away.
"""

import os
import shutil
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.model.checkpoint import save_model
from mbd.params import load_params
from mbd.records import now
from mbd.steps import attack, delete
from mbd.training.lattice import train_lattice
from mbd.verifier.bundle import Bundle
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import KINDS, LATTICE, ModelWorkspace
from tests.evaluation.models import tiny_model
from tests.features.build import synthetic_set
from tests.golden.certificates.cases import HERE, GoldenCase, write_case
from tests.golden.certificates.faults import FAULTS, Workshop

_GOOD = {
    "subjects": "the audio of one subject forgotten by a lattice, bit for bit",
    "surgery": "audio cut out of a joint model; the guarantee is empirical",
    "certified": "audio deleted from a joint model within (ε, δ)",
    "exact": "audio dropped from a lattice, bit for bit",
}
_REFERENCES = {"surgery": "silent", "certified": "silent", "exact": "silent-lattice"}
_TRAINING = ("training.epochs=25", "deletion.certified.finetune_epochs=25")
_ROWS = "features.source.synthetic.rows={train: 1200, valid: 300, test: 600, calibration: 300}"
_SURROUNDINGS = {
    "MBD_DVC_REVISION": "golden",
    "MBD_GIT_COMMIT": "0" * 40,
    "MBD_IMAGE_DIGEST": "sha256:" + "0" * 64,
    "MBD_RUN_ID": "golden",
}


def main(version: str) -> None:
    """Make all goldens of a version."""
    out = HERE / version
    if out.exists():
        raise UsageError("released certificates are frozen and never made again", file=out, hint="name a new version")
    os.environ.update(_SURROUNDINGS)
    with tempfile.TemporaryDirectory() as folder:
        authority = CertificateAuthority.make(_home(Path(folder) / "home"), Path(folder) / "authority")
        made = Path(folder) / "made"
        for kind, why in _GOOD.items():
            _good(authority, kind, why, made / kind)
        workshop = Workshop(authority, made)
        for name, fault in FAULTS.items():
            fault(workshop, name)
        shutil.copytree(made, out)


def _home(folder: Path) -> ModelWorkspace:
    """Train small models that are good enough for the gate, delete from them and attack them."""
    folder.mkdir()
    data = synthetic_set(folder / "data", _ROWS)
    for name, without in (("model", ()), ("silent", ("audio",))):
        tiny_model(data, folder / name, *_TRAINING[:1], without=without)
    for name, without in (("lattice", ()), ("silent-lattice", ("audio",))):
        source = FeatureSet.open(data, without=without)
        trained = train_lattice(source, load_params(None, LATTICE), work=folder, progress=False)
        (folder / name).mkdir()
        save_model(folder / name, trained.record, trained.tensors)
    model_workspace = ModelWorkspace(folder)
    for kind, (model, settings) in KINDS.items():
        subjects = [model_workspace.subject()] if kind == "subjects" else []
        deleted = folder / f"deleted-{kind}"
        delete.run(model_workspace.params(*settings, *_TRAINING), data, folder / model, ["audio"], subjects, deleted)
    return model_workspace


def _good(authority: CertificateAuthority, kind: str, why: str, out: Path) -> None:
    model_workspace = authority.model_workspace
    leakage = None
    if kind in _REFERENCES:
        leakage = model_workspace.folder / f"attacked-{kind}"
        models = (
            model_workspace.folder / KINDS[kind][0],
            model_workspace.deletion(kind),
            model_workspace.folder / _REFERENCES[kind],
        )
        attack.run(
            model_workspace.params("attacks.figures=false"),
            model_workspace.folder / "data",
            *models,
            ["audio"],
            leakage,
        )
    # The other models have heard the subject, so they cannot be released under the same name.
    authority.publish(kind, leakage=leakage, model="assistant" if kind == "subjects" else "sentiment")
    keep(authority, kind, out)
    write_case(out, GoldenCase(why=why, at=now() + timedelta(days=1), decision="not verified"))


def keep(authority: CertificateAuthority, kind: str, out: Path) -> None:
    """Copy what a verifier is given."""
    published = authority.folder / f"published-{kind}"
    statement = Bundle(published).statement
    (out / "bundle").mkdir(parents=True)
    (out / "model").mkdir()
    for name in ("certificate.json", "proof.json", *statement.digests):
        if name != "model.safetensors":
            shutil.copyfile(published / name, out / "bundle" / name)
    for name in ("model.safetensors", "model.json"):
        shutil.copyfile(authority.model_workspace.deletion(kind) / name, out / "model" / name)
    shutil.copyfile(authority.trust_file, out / "trust.json")


if __name__ == "__main__":
    main(*sys.argv[1:])
