"""Step `train`: from a FeatureSet to a model folder, or to one for each seed.

With `without`, the model never meets these modalities: not a byte of their files is read, and the record of the step
says so. Under torchrun every process trains and only the first writes.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mbd.errors import MissingExtraError, UsageError
from mbd.evaluation.metrics import task_metrics
from mbd.features.contract import FeatureSet
from mbd.files import STEP_FILE, canonical_digest, to_json, write_file
from mbd.model.checkpoint import WEIGHTS, save_model
from mbd.model.predictor import Model, load
from mbd.params import Params
from mbd.steps.step import step_run
from mbd.training.log import write_history
from mbd.training.trained import Trained

NAME = "train"
METRICS = "metrics.json"
_DIGITS = 4

Train = Callable[..., Trained]


def run(
    params: Params, features: Path, out: Path, without: tuple[str, ...] = (), *, progress: bool = False
) -> dict[str, Any]:
    """Train the model that `params` describe and write it to `out`; return what is worth telling of it."""
    data = FeatureSet.open(features, without=without, verify=True)
    if not data.modalities:
        raise UsageError("no modality is left to train on", key="--without", value=", ".join(without))
    train = _trainer(params.model.backbone)
    snapshots = out.parent / f".{out.name}.resume"
    if int(os.environ.get("RANK", "0")) > 0:
        train(data, params, work=snapshots, progress=False)
        return {}
    with step_run(NAME, out, {"model": params.model, "training": params.training}) as step:
        digest = canonical_digest(data.digests())
        step.inputs["features"] = {"path": str(features), "digest": digest, "without": list(without)}
        trained = train(data, params, work=snapshots, progress=progress)
        record = save_model(step.folder, trained.record, trained.tensors)
        step.known_digests[WEIGHTS] = record.sha256
        write_history(step.folder, trained.history)
        with threadpool_limits(1):
            metrics = _metrics(load(step.folder, verify=False), data)
        write_file(step.folder / METRICS, to_json(metrics))
        step.look_at = METRICS
    shutil.rmtree(snapshots, ignore_errors=True)
    return {
        "backbone": record.backbone,
        "seed": record.seed,
        "task": record.task,
        "modalities": record.modalities,
        "without": list(without),
        "parameters": sum(tensor.size for tensor in trained.tensors.values()),
        "sha256": record.sha256,
        "metrics": metrics,
    }


def run_seeds(
    params: Params,
    features: Path,
    out: Path,
    seeds: Sequence[int],
    without: tuple[str, ...] = (),
    *,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Train one model for each seed, written to `out`/seed-N; return what :func:`run` returns of each."""
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UsageError("seeds are different whole numbers from 0 on", key="--seeds", value=list(seeds))
    if (out / STEP_FILE).exists():
        raise UsageError(
            "the output folder holds a single model, and models of several seeds go into folders below it",
            key="--out",
            value=out,
            hint="give another folder, or remove this one first",
        )
    summaries = []
    for seed in seeds:
        training = params.training.model_copy(update={"seed": seed})
        own = params.model_copy(update={"training": training})
        summaries.append(run(own, features, out / f"seed-{seed}", without, progress=progress))
    return summaries


def _trainer(backbone: str) -> Train:
    try:
        if backbone == "lattice":
            from mbd.training.lattice import train_lattice  # noqa: PLC0415 -- only what is used

            return train_lattice
        from mbd.training.joint import train_joint  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("training", "train", error.name or "torch") from error
    return train_joint


def _metrics(model: Model, data: FeatureSet) -> dict[str, dict[str, float]]:
    metrics = {}
    for split in ("valid", "test"):
        found = data.split(split)
        rows = found.take(np.any(list(found.available.values()), axis=0))
        values = task_metrics(model.record.task, rows.labels, model.predict(rows.features, rows.available))
        metrics[split] = {name: round(value, _DIGITS) for name, value in values.items()}
    return metrics
