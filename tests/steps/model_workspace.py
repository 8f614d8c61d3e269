"""A module of one's own with its data, the reference, and all that follows from a deletion."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import mbd
from mbd.certificate.verify import Verdict
from mbd.formats.leakage import LeakageRecord
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

    def certified(self, after: Path) -> Verdict:
        """Evaluate, certify and verify an attacked model, with keys of its own in the working folder."""
        mbd.make_keys("build/keys")
        mbd.evaluate(self["data"], [after], "evaluation", params=self.params)
        mbd.certify(after, after.with_name(f"{after.name}-leakage"), "evaluation", "bundle", params=self.params)
        return mbd.verify("bundle", model=after, trust="build/keys/trust.json", offline=True, params=self.params)
