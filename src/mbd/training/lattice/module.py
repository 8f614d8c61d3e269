"""Training of one module, from the rows that have its tag and from strengths found for smaller tags only."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mbd.blocks import Columns
from mbd.formats.model import Tag, TensorRecord, landmarks_name, tensor_name
from mbd.model.checkpoint import describe
from mbd.model.coordinates import Projection, mean_distances, on_grid, similarities
from mbd.model.lattice import LatticeShape
from mbd.randomness import stream
from mbd.tensors import Array
from mbd.training.lattice.classes import calibrate, train_logistic
from mbd.training.lattice.ridge import FoldedRidge, Strengths, fold_numbers, out_of_fold

_LEADING = 96  # principal directions of each modality with which strengths are chosen
_FEW_LANDMARKS = 64  # with which the length and about which strength is chosen
_KERNEL_STRENGTHS = (-4.0, -3.0, -2.0, -1.0, 0.0)
_MOST_LANDMARKS = 8  # times as many as the settings say, doubled as long as the squared error falls enough
_WORTH_LANDMARKS = 0.95
_PULL = 0.05  # towards γ = ½ in regression, as a share of the labels' variance
_SMALLEST = 1e-12


@dataclass(frozen=True)
class ModuleRows:
    """The train rows that have a tag: coordinates in each modality of it, targets, folds."""

    points: Columns
    targets: Array
    folds: Array


@dataclass(frozen=True)
class KernelColumns:
    """φ, a column for each length and landmark."""

    points: Mapping[str, Columns]
    landmarks: Mapping[str, Array]
    projections: Mapping[str, Projection]
    lengths: tuple[float, ...]

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many columns each of the lengths has."""
        return (len(next(iter(self.landmarks.values()))),) * len(self.lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return next(iter(self.points.values())).shape[0], sum(self.blocks)

    def __getitem__(self, rows: Array | slice) -> Array:
        """Return the rows at these positions."""
        points = {m: columns[rows] for m, columns in self.points.items()}
        distances = mean_distances(points, self.landmarks, self.projections)
        return np.hstack([similarities(distances, length) for length in self.lengths])


@dataclass(frozen=True)
class TrainedModule:
    """The tensors of a module, and how well it did out of fold."""

    tag: Tag
    tensors: Mapping[str, Array]
    report: Mapping[str, float]


def name_tensors(
    modules: Mapping[Tag, Mapping[str, Array]],
) -> tuple[dict[str, Array], dict[str, TensorRecord]]:
    """Return the tensors of modules by name, and what each has seen."""
    tensors, provenance = {}, {}
    for tag, parts in modules.items():
        for part, tensor in parts.items():
            name = tensor_name(tag, part)
            tensors[name] = tensor
            provenance[name] = describe(tensor, tag, belongs_to=tag[0] if len(tag) == 1 else None)
    return tensors, provenance


def train_module(
    tag: Tag,
    rows: ModuleRows,
    ridge: FoldedRidge,
    projections: Mapping[str, Projection],
    start: Strengths,
    params: LatticeShape,
    *,
    seed: int,
    classes: int,
) -> TrainedModule:
    """Train the module of `tag`, whose rows have the sums `ridge`; `start` holds the strengths of its modalities."""
    few = ridge.leading(_LEADING)
    strengths = few.best_from(start) if start else few.best_alone()  # a single modality has none to start from
    weights, offset = ridge.fit(strengths)
    tensors: dict[str, Array] = {
        "ridge.weights": weights,
        "ridge.offset": offset,
        "ridge.strengths": np.array(strengths),
    }
    members = [out_of_fold(rows.points, rows.folds, ridge.left_out(strengths))]
    report = {"rows": float(len(rows.folds)), "ridge_rmse": _rmse(rows.targets, members[0])}
    if params.landmarks:
        kernel, kernel_scores = _train_kernel(tag, rows, projections, params, seed)
        report["kernel_rmse"] = _rmse(rows.targets, kernel_scores)
        members.append(kernel_scores)
        tensors |= kernel
    if classes:
        (weights, offset), logits = train_logistic(rows.points, rows.targets, rows.folds, strengths)
        members.append(logits)
        calibration = calibrate(rows.targets, rows.folds, members)
        scores = calibration.probabilities(members)
        *of_ridges, of_logits = calibration.scales
        scales = np.array([sum(of_ridges), of_logits])
        gamma = float(of_ridges[-1] / max(scales[0], _SMALLEST))
        tensors |= {"logistic.weights": weights, "logistic.offset": offset}
        tensors |= {"calibration.scales": scales, "calibration.shift": calibration.shift}
    else:
        gamma = _blend(rows.targets, members[0], members[-1])
        scores = (1 - gamma) * members[0] + gamma * members[-1]
        shift = _median_shift(rows.targets - scores, rows.folds) if params.centre == "median" else 0.0
        scores = scores + shift
        for name in {"ridge.offset", "kernel.offset"} & tensors.keys():
            tensors[name] = tensors[name] + shift
    if params.landmarks:
        report["gamma"] = gamma
        tensors["gamma"] = np.array(gamma)
    report["rmse"] = _rmse(rows.targets, scores)
    tensors |= {"sigma": np.array(max(report["rmse"], _SMALLEST)), "rows": np.array(len(rows.folds))}
    return TrainedModule(tag, tensors, report)


def _train_kernel(
    tag: Tag, rows: ModuleRows, projections: Mapping[str, Projection], params: LatticeShape, seed: int
) -> tuple[dict[str, Array], Array]:
    most = params.landmarks * _MOST_LANDMARKS
    draw = stream(seed, "lattice", "landmarks", *tag)
    landmarks = {
        m: on_grid(draw.standard_normal((most, len(v))) * np.sqrt(v)).astype(np.float32)
        for m, v in ((m, projections[m].variances[: params.kernel_components]) for m in tag)
    }
    points = {m: Columns((part,), rows.points.rows) for m, part in zip(tag, rows.points.parts, strict=True)}
    leading = {m: columns.cut(slice(params.kernel_components)) for m, columns in points.items()}

    def phi(lengths: tuple[float, ...], count: int) -> KernelColumns:
        return KernelColumns(leading, {m: drawn[:count] for m, drawn in landmarks.items()}, projections, lengths)

    def ridge(x: KernelColumns) -> FoldedRidge:
        return FoldedRidge.of(x, rows.targets, rows.folds, x.blocks)

    few = min(params.landmarks, _FEW_LANDMARKS)
    all_lengths = ridge(phi(params.lengths, few))
    fits = {length: all_lengths.block(number) for number, length in enumerate(params.lengths)}
    tried = [(fit.error((s,)), length, s) for length, fit in fits.items() for s in _KERNEL_STRENGTHS]
    _, length, strength = min(tried)
    # more landmarks are more parameters: they want the same strength or the next
    choices = tuple(s for s in _KERNEL_STRENGTHS if 0 <= s - strength <= 1)
    count = params.landmarks
    fit = fits[length] if count == few else ridge(phi((length,), count))
    if _doubling_pays(fit, max(count // 2, 1), choices):
        fit = ridge(phi((length,), most))
        while count < most and _doubling_pays(fit, count, choices):
            count *= 2
        fit = fit.leading(count)
    x, strengths = phi((length,), count), fit.best_alone(choices)
    weights, offset = fit.fit(strengths)
    tensors = {landmarks_name(m): drawn for m, drawn in x.landmarks.items()}
    tensors |= {"kernel.weights": weights, "kernel.offset": offset, "kernel.length": np.array(length)}
    return tensors, out_of_fold(x, rows.folds, fit.left_out(strengths))


def _doubling_pays(fit: FoldedRidge, count: int, choices: tuple[float, ...]) -> bool:
    """Whether twice as many as `count` landmarks err less out of fold, by the least share that is worth their time."""
    single, double = (part.error(part.best_alone(choices)) for part in (fit.leading(count), fit.leading(2 * count)))
    return double < _WORTH_LANDMARKS * single


def _blend(targets: Array, ridge: Array, kernel: Array) -> float:
    """Return the γ of least out-of-fold error, pulled towards ½."""
    difference, pull = kernel - ridge, _PULL * float(targets.var(axis=0).mean())
    gain, energy = float((difference * (targets - ridge)).mean()), float((difference**2).mean())
    return float(np.clip((gain + 0.5 * pull) / max(energy + pull, 1e-12), 0, 1))


def _median_shift(errors: Array, folds: Array) -> float:
    """Return the median of the out-of-fold errors, brought nearer to zero by its standard error over folds."""
    medians = [np.median(errors[folds == fold]) for fold in fold_numbers(folds)]
    median, standard_error = np.median(errors), np.std(medians, ddof=1) / np.sqrt(len(medians))
    return float(np.sign(median) * max(abs(median) - standard_error, 0.0))


def _rmse(targets: Array, scores: Array) -> float:
    return float(np.sqrt(((targets - scores) ** 2).mean()))
