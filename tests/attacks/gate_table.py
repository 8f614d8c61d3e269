"""Models of fixed shape against the gate: `python -m tests.attacks.gate_table [SEEDS [MODULE …]]` tells the decisions.

For each of the published-style modules (:mod:`tests.foreign_modules`) a model is trained with audio and one without it.
Leaking models are the first with less done to it than a deletion does; each has the record of the reference, which
says that audio was never there. Good ones are the reference trained with another seed, an exact deletion, and the cut
with the branches that close audio off. `SEEDS` (default 1) is the number of seeds of training of the good ones, each
beside the reference of the seed before it; leaking ones are made with the first. `MODULE`: names, if not all.
"""

import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from mbd.attacks.attack import AttackEvidence
from mbd.attacks.audit_input import open_audit
from mbd.attacks.suite import run_suite
from mbd.errors import MbdError
from mbd.formats.leakage import LeakageRecord
from mbd.model.checkpoint import load_model, save_model
from mbd.model.module import architecture_of, zero_dead
from mbd.params import Params, load_params
from mbd.params.deletion import AttacksSettings
from mbd.steps import delete, features, train
from mbd.tensors import Array
from tests.features.build import write_npz
from tests.foreign_modules import FOREIGN, ForeignModule, Kind

SIZES = {"train": 512, "valid": 128, "test": 640, "calibration": 128}
SETTINGS = AttacksSettings(resamples=200)
WIDTHS = {"text": 16, "audio": 24, "visual": 16}
LENGTH = 4
Tensors = dict[str, Array]


class FixedShape:
    """A published-style module, trained with audio (`model`) and without it (`reference`)."""

    def __init__(
        self,
        folder: Path,
        module: ForeignModule,
        seed: int = 0,
        *,
        named: bool = True,
        earlier: "FixedShape | None" = None,
    ) -> None:
        """Train both.

        Args:
            folder: Where they are written.
            module: What is trained.
            seed: Of the training.
            named: With the branches of audio in the parameters.
            earlier: The same of another seed: its data is used, and what was measured of its reference.

        """
        self.folder, self.module, self.seed, self.named, self._earlier = folder, module, seed, named, earlier
        self._measured: dict[tuple[str, str, str], list[AttackEvidence]] = earlier._measured if earlier else {}
        self.data: Path = earlier.data if earlier else write_data(folder / "data", module.kind)
        train.run(self.params(), self.data, folder / "model")
        train.run(self.params(), self.data, folder / "reference", ("audio",))

    def params(self, *settings: str, branches: tuple[str, ...] | None = None, seed: int | None = None) -> Params:
        """Return the parameters of its training."""
        names = self.module.branches if branches is None else branches
        own = [f"model.branches={{audio: [{', '.join(names)}]}}"] if names and self.named else []
        training = ["epochs=40", "optimiser=adamw", "learning_rate=0.005", "modality_dropout=0.2", "threads=1"]
        seeds = f"seed={self.seed if seed is None else seed}"
        fixed = [f"model.backbone={self.module.backbone}", *own, *(f"training.{s}" for s in (*training, seeds))]
        return load_params(None, [*fixed, *settings])

    def audit(self, after: Path) -> LeakageRecord:
        """Attack a model as the step does."""
        audit = open_audit(self.data, self.folder / "model", after, self.folder / "reference", ("audio",))
        return run_suite(audit, SETTINGS, measured=self._measured).record

    def pretending(self, name: str, change: Callable[[Tensors, Tensors], Tensors]) -> Path:
        """Write what `change` makes of the weights of both models, with the record of the reference."""
        record, never = load_model(self.folder / "reference")
        _, before = load_model(self.folder / "model")
        changed = {n: np.asarray(x, never[n].dtype) for n, x in change(dict(before), dict(never)).items()}
        out = self.folder / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        save_model(out, record.model_copy(update={"revoked": ("audio",)}), changed)
        return out

    def mixed(self, share: float) -> Path:
        """Write a share of the model before and the rest of the reference."""
        name = f"mixed {share}"
        return self.pretending(name, lambda old, new: {n: share * old[n] + (1 - share) * new[n] for n in old})

    def noised(self, scale: float) -> Path:
        """Write the model before with noise of a share of each tensor's spread."""
        rng = np.random.default_rng(0)
        return self.pretending(
            "noised",
            lambda old, _: {n: x + scale * x.std() * rng.standard_normal(x.shape) for n, x in old.items()},
        )

    def closed(self, branches: tuple[str, ...]) -> Path:
        """Write the model before with zeros at what exists for audio alone if only these branches are named."""
        record, _ = load_model(self.folder / "model")
        record = record.model_copy(
            update={"spec": {**record.spec, "branches": {"audio": branches} if branches else {}}}
        )
        name = f"closed {len(branches)}"
        return self.pretending(name, lambda old, _: zero_dead(architecture_of(record), old, ["audio"]))

    def retrained(self, seed: int) -> Path:
        """Write the reference of another seed."""
        out = self.folder / f"reference {seed}"
        train.run(self.params(seed=seed), self.data, out, ("audio",))
        return out

    def deleted(self, method: str, *settings: str) -> Path:
        """Write what the step makes of the model before."""
        out = self.folder / f"{method} {len(settings)}"
        params = self.params(f"deletion.method={method}", f"deletion.ledgers={self.folder / 'ledgers'}", *settings)
        reference = self.folder / "reference" if method == "exact" else None
        delete.run(params, self.data, self.folder / "model", ["audio"], [], out, reference)
        return out

    def leaking(self) -> Iterator[tuple[str, Callable[[], Path]]]:
        """Yield models from which audio is not gone."""
        yield "unchanged", lambda: self.mixed(1.0)
        yield "a half of it", lambda: self.mixed(0.5)
        yield "a quarter of it", lambda: self.mixed(0.25)
        yield "noise too weak", lambda: self.noised(0.1)
        if self.module.branches:
            yield "input closed only", lambda: self.closed(())
        if len(self.module.branches) > 1:
            yield "half of the branches", lambda: self.closed(self.module.branches[:1])
        yield (
            "Algorithm 1 as printed",
            lambda: self.deleted("surgery", "deletion.surgery.cut=false", "deletion.surgery.order=importance"),
        )

    def good(self) -> Iterator[tuple[str, Callable[[], Path]]]:
        """Yield models from which audio is gone."""
        earlier = self._earlier
        yield (
            "reference, another seed",
            lambda: earlier.folder / "reference" if earlier else self.retrained(self.seed + 1000),
        )
        yield "exact", lambda: self.deleted("exact")
        if self.module.branches:
            yield "full cut", lambda: self.deleted("surgery")


def write_data(folder: Path, kind: Kind, **sizes: int) -> Path:
    """Write data of which few rows do not teach what audio says: all but one of its 24 directions say nothing.

    A third of the label's variance is in each modality, and nowhere else. `sizes`: rows of splits, if not as usual.
    """
    arrays: dict[str, Array] = {}
    for split, count in (SIZES | sizes).items():
        rng, fixed = np.random.default_rng([7, count, len(split)]), np.random.default_rng(3)
        hidden = {m: rng.uniform(-1, 1, count) for m in WIDTHS}
        rows = {
            "ids": np.array([f"{split}{i // 2}_{i % 2}" for i in range(count)]),
            "labels": (sum(hidden.values()) + 0.05 * rng.standard_normal(count)).astype(np.float32),
            "audio_attribute": (hidden["audio"] > 0).astype(np.int64),
        }
        for m, width in WIDTHS.items():
            direction, *others = np.linalg.qr(fixed.standard_normal((width, width)))[0]
            x = 2 * np.multiply.outer(hidden[m], direction) + 0.1 * rng.standard_normal((count, width))
            x += sum(np.multiply.outer(rng.standard_normal(count), other) for other in others)
            frames = LENGTH if kind != "vectors" else 1
            x = np.repeat(x[:, None], frames, 1) + 0.1 * rng.standard_normal((count, frames, width))
            rows[m] = (x if kind != "vectors" else x[:, 0]).astype(np.float32)
            if m == "text" and kind == "tokens":
                rows[m] = 1 + rng.integers(0, 14, (count, frames)) + 14 * (hidden[m] > 0)[:, None]
                rows[f"{m}_lengths"] = np.full(count, frames)
        arrays |= {f"{split}_{name}": array for name, array in rows.items()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = write_npz(folder.with_suffix(".npz"), arrays)
    features.run(load_params(None, [f"features.source.path={file}"]), folder)
    return folder


def main(seeds: int, *names: str) -> int:
    """Print the table; return how many decisions are wrong."""
    logging.disable(logging.WARNING)
    wrong = 0
    print(f"{'module':16} {'seed':>4} {'model after':24} {'should':8} {'decision':8} first reason")
    for name in names or FOREIGN:
        module, fixed = FOREIGN[name], None
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(seeds):
                fixed = FixedShape(Path(folder) / str(seed), module, seed, earlier=fixed)
                leaking = fixed.leaking() if not seed else ()
                for should, cases in (("refused", leaking), ("passed", fixed.good())):
                    for case, make in cases:
                        decision, why = _decide(fixed, make)
                        wrong += decision != should
                        mark = "" if decision == should else "  <-- WRONG"
                        print(f"{name:16} {seed:4} {case:24} {should:8} {decision:8} {why[:90]}{mark}", flush=True)
    print(f"{wrong} wrong")
    return wrong


def _decide(fixed: FixedShape, make: Callable[[], Path]) -> tuple[str, str]:
    """Return the decision about a model, and the first reason."""
    try:
        record = fixed.audit(make())
    except MbdError as error:
        return "refused", f"before the audit: {error.problem}"
    return record.decision, next(iter(record.reasons), "")


if __name__ == "__main__":
    seeds, *modules = sys.argv[1:] or ["1"]
    sys.exit(main(int(seeds), *modules) > 0)
