"""Claims about prediction, beside a scikit-learn ridge (scaling included) on the same rows, in one process and thread.

1. one row: the lattice and joint take at most 3 times as long;
2. large batches: the lattice takes at most 15 times as long and, where nothing is missing, joint 10 times;
on data of MOSI's shape and on the synthetic presets, with all modalities and with the first one missing (ridge then has
the others). Joint with a missing modality has no claim for large batches: it generates what is missing, while ridge
does little but read the row. Times are CPU time, the least of several runs.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from mbd.features.contract import FeatureSet
from mbd.model.predictor import Model
from mbd.params import load_params
from mbd.registry import BACKBONES
from mbd.steps import features
from mbd.tensors import Array

ROWS = 20_000
LARGE_BATCH = {"lattice": 15, "joint": 10}
SETS = {
    "MOSI's shape": ["features.source.synthetic.dims={text: 100, audio: 73, visual: 100}"],
    "preset mosi": ["features.source.preset=mosi"],
    "preset iemocap": ["features.source.preset=iemocap"],
}


def seconds(function: Callable[[], object], runs: int) -> float:
    """Return the least CPU time of several runs."""
    best = np.inf
    for _ in range(runs):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def trained(data: FeatureSet, backbone: str, work: Path) -> Model:
    """Train a model: what it costs to ask it does not depend on how long joint was trained."""
    params = load_params(None, [f"model.backbone={backbone}", "training.epochs=1"])
    found = BACKBONES.get(backbone).train(data, params, work=work, progress=False)
    return Model(found.record, BACKBONES.get(backbone).load(found.record, found.tensors))


def compare(name: str, data: FeatureSet, work: Path) -> None:
    """Print the ratios of one data set."""
    train, test = data.split("train").load(), data.split("test").load()
    targets = np.eye(len(data.manifest.classes))[train.labels] if data.manifest.classes else train.labels
    models = {backbone: trained(data, backbone, work) for backbone in ("lattice", "joint")}
    many = {m: np.resize(x, (ROWS, x.shape[1])) for m, x in test.features.items()}
    for shown in (tuple(many), tuple(many)[1:]):
        pipeline = make_pipeline(StandardScaler(), Ridge(100.0)).fit(_beside(train.features, shown), targets)
        for title, n, runs in (("large batch", ROWS, 10), ("one row", 1, 300)):
            rows = {m: many[m][:n] for m in shown}
            stacked = _beside(rows, shown)
            ridge = seconds(lambda x=stacked, p=pipeline: p.predict(x), runs)  # type: ignore[misc]
            for backbone, model in models.items():
                took = seconds(lambda m=model, r=rows: m.predict(r), runs)  # type: ignore[misc]
                claimed = backbone == "lattice" or n == 1 or len(shown) == len(many)
                limit = 3 if n == 1 else LARGE_BATCH[backbone]
                claim = f" (claim: at most {limit})" if claimed else ""
                print(
                    f"{name}, {'+'.join(shown)}, {title}: {backbone} {n / took:,.0f} rows/s ({took * 1e3:.2f} ms), "
                    f"ratio to ridge {took / ridge:.2f}{claim}"
                )


def _beside(features: Mapping[str, Array], shown: tuple[str, ...]) -> Array:
    return np.hstack([features[m] for m in shown])


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary), threadpool_limits(limits=1):
        for number, (name, settings) in enumerate(SETS.items()):
            folder = Path(temporary) / str(number)
            features.run(load_params(None, settings), folder)
            compare(name, FeatureSet.open(folder), Path(temporary))


if __name__ == "__main__":
    main()
