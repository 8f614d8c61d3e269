"""A module of one's own with its data, the reference, and all that follows from a deletion."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import mbd
from mbd.certificate.verification import Verdict
from mbd.formats.leakage import LeakageRecord
from mbd.model.checkpoint import load_model, save_model
from mbd.params import load_params
from mbd.steps import import_model

LOOP = {
    "training.epochs": 12,
    "training.optimiser": "adamw",
    "training.learning_rate": 0.01,
    "evaluation.figures": False,
    "attacks.figures": False,
    "attacks.resamples": 100,
    "attacks.relearn_rows": [32],
    "deletion.certified.finetune_epochs": 30,
}
METHODS = ["surgery", *(pytest.param(method, marks=pytest.mark.slow) for method in ("exact", "certified"))]
"""of a shape beside those of which make test tries all three"""


class ModelWorkspace:
    """Data, a model, and the model that never saw the modality to delete."""

    def __init__(
        self,
        folder: Path,
        module: Mapping[str, object],
        data: Callable[[Path], Path],
        modality: str = "audio",
        *,
        imported: bool = False,
    ) -> None:
        """Train a model, or import one as if it had been trained elsewhere, and train the reference."""
        self.folder, self.modality = folder, modality
        self.params = {**LOOP, **module, "deletion.ledgers": str(folder / "ledgers"), "certificate.model": "own"}
        data(folder / "data")
        mbd.train(self["data"], self["elsewhere" if imported else "model"], params=self.params)
        if imported:
            weights, names = self["elsewhere"] / "model.safetensors", list(mbd.FeatureSet.open(self["data"]).modalities)
            settings = [f"{name}={json.dumps(value)}" for name, value in self.params.items()]
            import_model.run(load_params(None, settings), weights, self["data"], names, self["model"])
        mbd.train(self["data"], self["reference"], without=[modality], params=self.params)

    def __getitem__(self, name: str) -> Path:
        return self.folder / name

    def delete(self, method: str) -> Path:
        """Delete by a method, once; return the folder of the new model."""
        out = self[method]
        if not out.exists():
            params = {**self.params, "deletion.method": method}
            mbd.delete(self["data"], self["model"], [self.modality], out, params=params)
        return out

    def attack(self, after: Path, **settings: object) -> LeakageRecord:
        """Attack a model after the deletion."""
        out, params = after.with_name(f"{after.name}-leakage"), {**self.params, **settings}
        return mbd.attack(
            self["data"], after, self["reference"], [self.modality], out, before=self["model"], params=params
        )

    def untouched(self, folder: Path) -> Path:
        """Return a copy of the model, from which nothing was deleted."""
        record, tensors = load_model(self["model"])
        (folder / "same").mkdir()
        save_model(folder / "same", record, tensors)
        return folder / "same"

    def zeroed(self, folder: Path) -> Path:
        """Return a model that claims to be deleted: the branch of the modality is zero, but for its first matrix."""
        record, tensors = load_model(self["model"])
        own = [name for name, entry in record.tensors.items() if entry.belongs_to == self.modality]
        first = next(name for name in own if tensors[name].ndim > 1)
        projection = first.rpartition(".")[0] + "."
        gone = [name for name in own if not name.startswith(projection)]
        claimed = record.model_copy(
            update={
                "modalities": {m: d for m, d in record.modalities.items() if m != self.modality},
                "revoked": (self.modality,),
                "tensors": {n: t.model_copy(update={"belongs_to": None}) for n, t in record.tensors.items()},
            }
        )
        (folder / "kept").mkdir()
        save_model(folder / "kept", claimed, {n: np.zeros_like(t) if n in gone else t for n, t in tensors.items()})
        return folder / "kept"

    def deletes_with_a_verified_certificate(self, method: str) -> Path:
        """Check that what a method deletes passes the attacks and is certified; return the new model."""
        after = self.delete(method)
        leakage = self.attack(after)
        assert leakage.decision == "passed", leakage.reasons
        assert not [check for check in self.certified(after).checks if check.outcome == "failed"]
        return after

    def refuses_what_is_not_deleted(self, folder: Path) -> None:
        """Check that the gate refuses the untouched model, and a branch that is zero while its projection is kept."""
        with pytest.raises(mbd.GateRefusedError, match=f"still takes {self.modality} as input"):
            self.attack(self.untouched(folder), **{"attacks.variants": []})
        kept = rf"not in the reference|for {self.modality} alone"
        with pytest.raises(mbd.GateRefusedError, match=kept):
            self.attack(self.zeroed(folder), **{"attacks.variants": []})

    def certified(self, after: Path) -> Verdict:
        """Evaluate, certify and verify an attacked model, with keys of its own in the working folder."""
        mbd.make_keys("build/keys")
        mbd.evaluate(self["data"], [after], "evaluation", params=self.params)
        mbd.certify(after, after.with_name(f"{after.name}-leakage"), "evaluation", "bundle", params=self.params)
        return mbd.verify("bundle", model=after, trust="build/keys/trust.json", offline=True, params=self.params)
