"""Small models to attack: before a deletion, after it and the reference, and models with a known defect."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from mbd.attacks.attack import AttackEvidence
from mbd.attacks.bootstrap import difference_interval, measure_interval, resampled
from mbd.attacks.context import AttackContext, make_context
from mbd.attacks.target_model import Role, TargetModel, open_target
from mbd.features.contract import FeatureSet
from mbd.formats.leakage import Interval
from mbd.model.checkpoint import load_model, save_model
from mbd.params import load_params
from mbd.params.deletion import AttacksSettings
from mbd.steps import delete, train
from mbd.tensors import Array
from tests.evaluation.models import TINY
from tests.features.build import synthetic_set

ROWS = "features.source.synthetic.rows={train: 320, valid: 64, test: 480, calibration: 128}"
DIMS = "features.source.synthetic.dims={text: 24, audio: 12, visual: 16}"
LATTICE = ("model.backbone=lattice", "model.lattice.components=8", "model.lattice.landmarks=16")


def audited(folder: Path, *settings: str, features: tuple[str, ...] = (), method: str = "surgery") -> Path:
    """Write `data` and, of audio: `model` (before), `deleted` (after) and `reference`; settings go on top."""
    synthetic_set(folder / "data", ROWS, DIMS, *features)
    params = load_params(None, [*TINY, "training.epochs=6", *settings, f"deletion.method={method}"])
    train.run(params, folder / "data", folder / "model")
    train.run(params, folder / "data", folder / "reference", ("audio",))
    delete.run(params, folder / "data", folder / "model", ["audio"], [], folder / "deleted")
    return folder


def interval(evidence: AttackEvidence, params: AttacksSettings) -> Interval:
    """The measure with its confidence interval."""
    return measure_interval(evidence, resampled(evidence, params), params)


def difference(one: AttackEvidence, other: AttackEvidence, params: AttacksSettings) -> Interval:
    """`one` − `other` on the same rows, with the interval of the difference."""
    return difference_interval(one, other, resampled(one, params) - resampled(other, params), 1, params)


def context_of(model_workspace: Path, modality: str = "audio", **params: object) -> AttackContext:
    """The common ground of attacks on the models of `home`."""
    return make_context(FeatureSet.open(model_workspace / "data"), modality, AttacksSettings.model_validate(params))


def target_of(model_workspace: Path, name: str, role: Role = "after") -> TargetModel:
    """A model of `home` under attack."""
    return open_target(model_workspace / name, role)


def untrained(model_workspace: Path, out: Path) -> Path:
    """Write a model of the reference's shape whose weights are drawn, not learnt; its scaling is the reference's."""
    _, tensors = load_model(model_workspace / "reference")
    rng = np.random.default_rng(0)
    drawn = {
        name: x if name.endswith(("mean", "scale")) else np.asarray(rng.standard_normal(x.shape) / 8, x.dtype)
        for name, x in tensors.items()
    }
    return _written(out, model_workspace / "reference", drawn)


def constant(model_workspace: Path, out: Path) -> Path:
    """Write the reference with a head and a linear map that say the same of every row."""
    _, tensors = load_model(model_workspace / "reference")
    last = [name for name in tensors if name.endswith(("head.weight", "linear.weight", "beside.weight"))]
    return _written(out, model_workspace / "reference", tensors | {name: np.zeros_like(tensors[name]) for name in last})


def renamed(model_workspace: Path, out: Path) -> Path:
    """Write the model "deleted" by calling audio `voice`: it takes all that it took."""
    record, tensors = load_model(model_workspace / "model")
    text = record.model_dump_json().replace('"audio"', '"voice"').replace(".audio.", ".voice.")
    moved = type(record).model_validate_json(text).model_copy(update={"revoked": ("audio",)})
    out.mkdir(parents=True)
    save_model(out, moved, {name.replace(".audio.", ".voice."): x for name, x in tensors.items()})
    return out


def blind_fusion(model_workspace: Path, out: Path) -> Path:
    """Write the model "deleted" by zeroing the columns of F that read audio, and nothing else."""
    return _changed_columns(model_workspace, out, {"fusion.hidden.weight"}, np.zeros_like)


def noisy_input(model_workspace: Path, out: Path) -> Path:
    """Write the model "deleted" by adding noise to every column that reads audio."""
    rng = np.random.default_rng(0)
    names = set(load_model(model_workspace / "model")[0].tensors)
    return _changed_columns(model_workspace, out, names, lambda columns: columns + rng.normal(0, 0.1, columns.shape))


def uncut(model_workspace: Path, out: Path) -> Path:
    """Write the model "deleted" on paper only: everything is there, and audio is refused when asked."""
    return _written(out, model_workspace / "model", load_model(model_workspace / "model")[1])


def _changed_columns(model_workspace: Path, out: Path, names: set[str], change: Callable[[Array], Array]) -> Path:
    record, tensors = load_model(model_workspace / "model")
    changed = dict(tensors)
    for name in sorted(names):
        for part in record.tensors[name].columns:
            if part.reads == "audio":
                changed[name] = np.array(changed[name])
                columns = changed[name][:, part.start : part.stop]
                changed[name][:, part.start : part.stop] = change(columns)
    return _written(out, model_workspace / "model", changed)


def _written(out: Path, like: Path, tensors: dict[str, Array]) -> Path:
    """Write a model of another one's shape that claims to have revoked audio."""
    out.mkdir(parents=True)
    save_model(out, load_model(like)[0].model_copy(update={"revoked": ("audio",)}), tensors)
    return out
