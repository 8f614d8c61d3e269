"""Step `train`: from a FeatureSet to a model, one for each seed, or all references of a model.

With `without`, the model never meets these modalities: not a byte of their files is read, and the record of the step
says so. What is revoked for the model `certificate.model` is left out as well, where models of the name are registered
(:mod:`mbd.steps.revoked`): modalities, and recordings of persons.

Under torchrun every process trains and only the first writes.

`history.csv` has a row for each epoch (joint) or module (lattice) with all terms; `live/` has a file for each term, as
dvclive writes it, for `dvc plots` and DVC's tools for editors. Neither holds a time: the same training writes the same
bytes.
"""

import csv
import io
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mbd.background import process_map
from mbd.errors import MbdError, UsageError
from mbd.evaluation.metrics import task_metrics
from mbd.features.contract import FeatureSet, Split
from mbd.files import STEP_FILE, canonical_digest, to_json, write_file
from mbd.formats.files import METRICS, WEIGHTS
from mbd.model.checkpoint import save_model
from mbd.model.predictor import Model, load
from mbd.outputs import StepRun, step_run
from mbd.params import Params
from mbd.registry import BACKBONES
from mbd.report.text import table
from mbd.steps.revoked import read_revoked, revocable
from mbd.steps.step import reads
from mbd.training.trained import HISTORY, Trained

NAME = "train"
_DIGITS = 4


@dataclass(frozen=True)
class TrainingResult:
    """A model that was trained."""

    backbone: str
    seed: str
    task: str
    modalities: Mapping[str, int]
    """name → dimension"""
    without: tuple[str, ...]
    """modalities of the data that it never saw"""
    parameters: int
    """number of parameters"""
    sha256: str
    """of the weights"""
    metrics: Mapping[str, Mapping[str, float]]
    """split → metric → value"""


def to_text(results: Sequence[TrainingResult]) -> str:
    """Return the metrics of one model, or of several seeds with mean and standard deviation, for a terminal."""
    first = results[0]
    modalities = ", ".join(f"{name} {dim}" for name, dim in first.modalities.items())
    without = f", without {', '.join(first.without)}" if first.without else ""
    head = f"{first.backbone}: {first.task}, {modalities}{without}; {first.parameters:,} parameters"
    names = list(first.metrics["test"])
    rows = [
        [f"{split}, seed {result.seed}", *(result.metrics[split][name] for name in names)]
        for split in first.metrics
        for result in results
    ]
    if len(results) > 1:
        for split in first.metrics:
            values = [[result.metrics[split][name] for result in results] for name in names]
            rows.append([f"{split}, mean", *(f"{mean(v):.2f} ± {stdev(v):.2f}" for v in values)])
    return f"{head}\n\n{table(['', *names], rows)}"


@reads(data="features")
def run(params: Params, features: Path, out: Path, without: tuple[str, ...] = ()) -> TrainingResult | None:
    """Train the model that `params` describe, which never meets the modalities `without`, and write it to `out`.

    Returns:
        The result; None in all processes of torchrun but the first.

    Raises:
        VerificationError: What is revoked for the name cannot be known.
        DataError: It is not known whose recordings were deleted.
    """
    revoked = read_revoked(params)
    without = tuple(dict.fromkeys((*without, *revoked.in_data(features))))
    with revoked.left_out(features, without) as folder:
        data = FeatureSet.open(folder, without=without, verify=True)
        if not data.modalities:
            raise UsageError("no modality is left to train on", key="--without", value=", ".join(without))
        left_out = {"left_out": list(revoked.certificates)} if revoked.certificates else {}
        return _run(params, data, {"path": str(features), "without": list(without), **left_out}, out)


def _run(params: Params, data: FeatureSet, source: dict[str, Any], out: Path) -> TrainingResult | None:
    """Train on what was opened; `source` says where it is from, for the record of the step."""
    train = BACKBONES.get(params.model.backbone).train
    snapshots = out.parent / f".{out.name}.resume"
    if int(os.environ.get("RANK", "0")) > 0:
        train(data, params, work=snapshots, progress=False)
        return None
    with step_run(NAME, out, {"model": params.model, "training": params.training}) as step:
        step.inputs["features"] = source | {"digest": canonical_digest(data.digests())}
        trained = train(data, params, work=snapshots, progress=True)
        write_history(step.folder, trained.history)
        result = write_model(step, trained, data, source["without"])
    shutil.rmtree(snapshots, ignore_errors=True)
    return result


def write_model(step: StepRun, trained: Trained, data: FeatureSet, without: Sequence[str]) -> TrainingResult:
    """Write a model and its metrics into the folder of a step."""
    record = save_model(step.folder, trained.record, trained.tensors)
    step.known_digests[WEIGHTS] = record.sha256
    with threadpool_limits(1):
        metrics = test_metrics(load(step.folder, verify=False), data)
    write_file(step.folder / METRICS, to_json(metrics))
    step.look_at = METRICS
    return TrainingResult(
        backbone=record.backbone,
        seed=record.seed,
        task=record.task,
        modalities=record.modalities,
        without=tuple(without),
        parameters=sum(tensor.size for tensor in trained.tensors.values()),
        sha256=record.sha256,
        metrics=metrics,
    )


def run_seeds(
    params: Params, features: Path, out: Path, seeds: Sequence[int], without: tuple[str, ...] = ()
) -> list[TrainingResult]:
    """Train one model for each seed, written to `out`/seed-N; return the result of each, as :func:`run`."""
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UsageError("seeds are different whole numbers from 0 on", key="--seeds", value=list(seeds))
    if (out / STEP_FILE).exists():
        raise UsageError(
            "the output folder holds a single model, and models of several seeds go into folders below it",
            key="--out",
            value=out,
            hint="give another folder, or remove this one first",
        )
    calls = [(_alone(params, seed=seed), features, out / f"seed-{seed}", without) for seed in seeds]
    return _run_all(params, calls)


@reads(data="features")
def run_references(params: Params, features: Path, out: Path) -> list[TrainingResult]:
    """Train a reference for each modality of `requests.revocable`, written to `out`/MODALITY; return their results."""
    modalities = revocable(params, features)
    return _run_all(params, [(_alone(params), features, out / m, (m,)) for m in modalities])


_Call = tuple[Params, Path, Path, tuple[str, ...]]


def _run_all(params: Params, calls: Sequence[_Call]) -> list[TrainingResult]:
    """Train models side by side, in as many processes as the parameters allow."""
    processes = min(params.training.processes, len(calls)) if "RANK" not in os.environ else 1
    with process_map(max(processes, 1)) as mapped:
        return [result for result in mapped(_run_one, calls) if result]


def _alone(params: Params, **changes: int) -> Params:
    """Return the parameters of one of several trainings: side by side they leave no processes for what is inside."""
    return params.having({"training.processes": 1, **{f"training.{name}": value for name, value in changes.items()}})


def _run_one(call: _Call) -> TrainingResult | None:
    return run(*call)


def test_metrics(model: Model, data: FeatureSet) -> dict[str, dict[str, float]]:
    """Return the metrics of a model on the valid and the test split, as far as it was not fitted to them."""
    splits = [split for split in ("valid", "test") if split not in model.record.fitted_to]
    return {split: split_metrics(model, data.split(split), tuple(data.modalities))[0] for split in splits}


def split_metrics(model: Model, split: Split, modalities: Sequence[str]) -> tuple[dict[str, float], int]:
    """Return the metrics of a model on the rows of a split that have one of these modalities, and their number.

    The model is given these modalities and no others.
    """
    rows = split.take(np.any([split.available[m] for m in modalities], axis=0))
    scores = model.predict(rows.inputs(modalities), {m: rows.available[m] for m in modalities})
    metrics = task_metrics(model.record.task, rows.labels, scores)
    return {name: round(value, _DIGITS) for name, value in metrics.items()}, len(rows)


LIVE = "live"

Row = Mapping[str, float | str]


def write_history(folder: Path, history: Sequence[Row]) -> None:
    """Write the log of a training into `folder`."""
    columns = list(dict.fromkeys(name for row in history for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows({name: _cell(value) for name, value in row.items()} for row in history)
    write_file(folder / HISTORY, text.getvalue())
    _write_live(folder / LIVE, history)


def _write_live(folder: Path, history: Sequence[Row]) -> None:
    from dvclive import Live  # noqa: PLC0415 -- brings DVC along, which nothing else here needs

    try:
        opened = Live(dir=str(folder), save_dvc_exp=False, dvcyaml=None, report=None)
    except Exception as error:  # dvclive lets errors of git through, such as that of a repository without commits
        raise MbdError(
            f"dvclive cannot log here: {error}", hint="in a new git repository, make a first commit and run again"
        ) from error
    with opened as live:
        for number, row in enumerate(history):
            live.step = int(row.get("epoch", number))
            for name, value in row.items():
                if name != "epoch" and isinstance(value, float):
                    live.log_metric(name, float(_cell(value)))
            live.next_step()


def _cell(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
