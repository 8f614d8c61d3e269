"""Claim about sequences: a model over frames beats our lattice over means, where few frames show the sentiment.

Data: the preset `sequences`, once with its frames and once with their mean (features.source.sequences). The cross-modal
transformer of `mbd.model.examples` is chosen among a few sizes by the MAE on the valid split, the lattice makes its
choices by out-of-fold errors; the test split decides nothing. Printed are test MAE and accuracy with 95 % intervals
(bootstrap over groups, the same draws for all), and the ratio of the errors. Ridge on mean and deviation of the frames
shows how far a better vector gets.
"""

import tempfile
import time
from contextlib import chdir
from pathlib import Path

import numpy as np

import mbd
from mbd.evaluation.ridge import PatternRidge
from mbd.features.contract import FeatureSet
from mbd.features.pooling import as_vectors
from mbd.randomness import stream
from mbd.tensors import Array

SIZES = ({"layers": 1, "dropout": 0.0}, {"layers": 1, "dropout": 0.1})
LOOP = {"training.epochs": 20, "training.optimiser": "adamw", "training.learning_rate": 2e-3, "training.batch_size": 32}
DRAWS = 2000


def chosen_transformer(data: Path, work: Path) -> Path:
    """Train one model for each size; return the folder of the one with the least MAE on the valid split."""
    errors = {}
    for place, options in enumerate(SIZES):
        out, start = work / f"transformer-{place}", time.perf_counter()
        backbone = {"model.backbone": "mbd.model.examples.crossmodal:CrossModalTransformer", "model.options": options}
        mbd.train(data, out, params={**LOOP, **backbone})
        valid = FeatureSet.open(data).split("valid").load()
        errors[out] = float(np.abs(mbd.load(out).predict(valid.inputs(), valid.available) - valid.labels).mean())
        print(f"transformer {options}: valid MAE {errors[out]:.3f}, {time.perf_counter() - start:.0f} s")
    return min(errors, key=lambda out: errors[out])


def weights(groups: Array) -> Array:
    """Return how often each row is drawn (draws × rows), whole groups at a time."""
    names, member = np.unique(groups, return_inverse=True)
    counts = stream(0, "benchmark", "sequences").multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
    drawn: Array = counts[:, member]
    return drawn


def interval(values: Array) -> str:
    low, high = np.quantile(values, [0.025, 0.975])
    return f"{low:.3f} … {high:.3f}"


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):
        work = Path(temporary)
        for how in ("keep", "mean"):
            mbd.make_features(
                work / how, params={"features.source.preset": "sequences", "features.source.sequences": how}
            )
        mbd.train(work / "mean", work / "lattice", params={"model.backbone": "lattice"})
        transformer = chosen_transformer(work / "keep", work)
        frames, means = (FeatureSet.open(work / how).split("test").load() for how in ("keep", "mean"))
        vectors, train = as_vectors(frames), as_vectors(FeatureSet.open(work / "keep").split("train").load())
        found = {
            "transformer over frames": mbd.load(transformer).predict(frames.inputs(), frames.available),
            "ridge on mean and deviation": PatternRidge(train, 0).predict(vectors.features),
            "lattice on means": mbd.load(work / "lattice").predict(means.features, means.available),
        }
    drawn = weights(frames.groups)
    errors = {name: np.abs(scores - frames.labels) for name, scores in found.items()}
    spread = {name: drawn @ error / drawn.sum(1) for name, error in errors.items()}
    for name, scores in found.items():
        hits = 100 * ((scores >= 0) == (frames.labels >= 0))
        accuracy = drawn @ hits / drawn.sum(1)
        low, high = np.quantile(accuracy, [0.025, 0.975])
        print(f"{name}: test MAE {errors[name].mean():.3f} ({interval(spread[name])}),", end=" ")
        print(f"Acc2 {hits.mean():.1f} % ({low:.1f} … {high:.1f})")
    ours, theirs = "transformer over frames", "lattice on means"
    ratio = errors[ours].mean() / errors[theirs].mean()
    print(f"ratio of test MAE, transformer / lattice: {ratio:.2f} ({interval(spread[ours] / spread[theirs])})", end=" ")
    print("(claim: below 1)")


if __name__ == "__main__":
    main()
