"""Training of the lattice: every module from the rows that have its tag, on one thread each.

Folds are whole groups and depend on the rows' groups alone. Modules of single modalities come first, because larger
ones start their search from their strengths. Factorisations run on one thread, because their last bits depend on the
number of threads; several modules run side by side instead. So for every m, training without m gives the same bytes
for every module that is left.

Passes over rows read them in blocks. For all tags together the products of coordinates are summed once, by the set of
modalities that rows have (:mod:`mbd.training.lattice.ridge`).

The same holds for recordings of m: without some of them, only what has seen m is trained again, and what was fitted to
each other modality alone (:class:`FittedModalities`) is still what training would give.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mbd.blocks import Columns, moments, spans
from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.formats.model import LatticeSpec, ModelRecord, Tag, TensorRecord, projection_name, tensor_name
from mbd.logs import progress_bar
from mbd.model.checkpoint import describe
from mbd.model.coordinates import Projection, on_grid
from mbd.model.lattice import LatticeShape, chosen_tags, read_projection
from mbd.params import Params
from mbd.tensors import Array, release, scratch
from mbd.training.lattice.module import ModuleRows, TrainedModule, name_tensors, train_module
from mbd.training.lattice.ridge import FoldedRidge, PatternSums, assign_folds, fold_numbers
from mbd.training.trained import Trained, model_record, recorded_training

_SMALLEST_DEVIATION = 1e-6
_DIRECTION_GRID = 4096.0
_EXACT_IN_FLOAT32 = 10**6  # columns
_STRENGTHS = "ridge.strengths"


def train_lattice(feature_set: FeatureSet, params: Params, *, work: Path, progress: bool) -> Trained:
    """Train on `feature_set`; what is finished is kept in `work`, in closed form nothing.

    Raises:
        UsageError: There would be more modules than can be trained, or the factory of networks does not fit.

    """
    manifest, seed = feature_set.manifest, params.training.seed
    spec, tags = _spec(feature_set, params)
    if spec.member:
        from mbd.training.lattice.networks import Training, train_networks  # noqa: PLC0415 -- imports torch

        training = Training.of(feature_set, spec, seed, params.training)
        tensors, provenance, report = train_networks(training, tags, work=work, progress=progress)
    else:
        feature_set.require_vectors("lattice")
        rows, classes = training_rows(feature_set, spec), len(manifest.classes)
        tensors, provenance, report = train_modules(
            rows, spec, seed=seed, classes=classes, tags=tags, progress=progress
        )
    return Trained(model_record(feature_set, "lattice", spec.to_plain(), seed, provenance), tensors, report)


def retrain(
    modality: str, retained: FeatureSet, record: ModelRecord, tensors: Mapping[str, Array], params: Params
) -> tuple[dict[str, Array], dict[str, TensorRecord]]:
    """Train all modules that hold the modality; projections and strengths of the others come from `tensors`."""
    spec, seed = LatticeSpec.model_validate(record.spec), int(record.seed)
    if spec.member:
        from mbd.training.lattice.networks import Training, train_networks  # noqa: PLC0415 -- imports torch

        training = Training.of(retained, spec, seed, params.training)
        tags = [tag for tag in chosen_tags(spec, record.modalities) if modality in tag]
        with tempfile.TemporaryDirectory() as work:
            return train_networks(training, tags, work=Path(work))[:2]
    fitted = FittedModalities.in_model(tensors, [m for m in record.modalities if m != modality])
    rows, classes = training_rows(retained, spec), len(record.classes)
    return train_modules(rows, spec, seed=seed, classes=classes, only=modality, fitted=fitted)[:2]


def _spec(feature_set: FeatureSet, params: Params) -> tuple[LatticeSpec, list[Tag]]:
    """Return the specification of the lattice of a FeatureSet's modalities, and the tags of its modules.

    Tags are chosen among all modalities of the data, and those with a modality that is left out fall away: the rest is
    what a deletion leaves.
    """
    settings, left = params.model.lattice, feature_set.modalities
    everything = FeatureSet.open(feature_set.folder).modalities
    known = everything if settings.tags == "leave-one-out" or isinstance(settings.tags, tuple) else left
    wanted = [tag for tag in chosen_tags(settings, known) if set(tag) <= set(left)]
    spec = LatticeSpec.model_validate(settings.model_dump())
    if known is everything:
        spec = spec.model_copy(update={"tags": tuple("+".join(tag) for tag in wanted if len(tag) > 1)})
    if spec.member:
        from mbd.model.contract import load_factory, source_digest  # noqa: PLC0415 -- imports torch

        spec = spec.model_copy(
            update={
                "shapes": feature_set.shapes,
                "source": source_digest(load_factory(spec.member, "model.lattice.member")),
                "training": recorded_training(params.training),
            }
        )
    return spec, wanted


def training_rows(feature_set: FeatureSet, spec: LatticeShape) -> Rows:
    """Return the rows that modules in closed form are trained on; of one split, features are read when needed."""
    return Rows.joined([feature_set.split(split).mapped() for split in spec.splits.split("+")])


@dataclass(frozen=True)
class FittedModalities:
    """What was fitted to single modalities, each from its own data alone."""

    projections: Mapping[str, Projection] = field(default_factory=dict)
    strengths: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def in_model(cls, tensors: Mapping[str, Array], modalities: Iterable[str]) -> "FittedModalities":
        """Return what a model's tensors say of `modalities`."""
        names = {m: tensor_name((m,), _STRENGTHS) for m in modalities if projection_name(m, "mean") in tensors}
        return cls(
            {m: read_projection(tensors, m) for m in names},
            {m: float(tensors[name][0]) for m, name in names.items() if name in tensors},
        )


def train_modules(
    rows: Rows,
    spec: LatticeShape,
    *,
    seed: int,
    classes: int,
    tags: Sequence[Tag] | None = None,
    only: str | None = None,
    fitted: FittedModalities | None = None,
    progress: bool = False,
) -> tuple[dict[str, Array], dict[str, TensorRecord], list[dict[str, float | str]]]:
    """Train the modules of `tags` (default: as the specification says), or those of them that hold `only`.

    `fitted` comes from a training with the same rows of its modalities.
    """
    chosen = chosen_tags(spec, rows.features) if tags is None else tags
    wanted = [tag for tag in chosen if only is None or only in tag]
    with threadpool_limits(limits=1):
        training = _LatticeTraining(rows, spec, seed, classes, wanted, fitted or FittedModalities())
        modules = training.train(progress)
    tensors, provenance = {}, {}
    for m, projection in training.projections.items():
        for part in Projection.__dataclass_fields__ if only in (None, m) else ():
            name = projection_name(m, part)
            tensors[name] = getattr(projection, part)
            provenance[name] = describe(tensors[name], (m,), belongs_to=m)
    own, seen = name_tensors({module.tag: module.tensors for module in modules})
    report: list[dict[str, float | str]] = [{"tag": "+".join(module.tag), **module.report} for module in modules]
    return tensors | own, provenance | seen, report


def make_projection(matrix: Columns, components: int) -> Projection:
    """Return the projection of one modality, from the train rows that have it."""
    rows, columns = matrix.shape
    mean, deviation = moments(matrix)
    deviation = np.where(deviation > _SMALLEST_DEVIATION, deviation, 1.0)
    empty = np.zeros((columns, 0), np.float32)
    scaling, gram = Projection(mean, deviation, empty, empty[0]), np.zeros((columns, columns))
    for own in spans(rows, columns):
        z = scaling.standardise(matrix[own])
        gram += z.T @ z
    values, vectors = np.linalg.eigh(gram / rows)
    strongest = np.argsort(-values, kind="stable")[:components]
    return Projection(
        mean=mean,
        deviation=deviation,
        directions=(np.rint(vectors[:, strongest] * _DIRECTION_GRID) / _DIRECTION_GRID).astype(np.float32),
        variances=np.maximum(values[strongest], 0),
    )


class _LatticeTraining:
    """One training: the rows' coordinates, and the strengths of single modalities that are known so far."""

    def __init__(
        self, rows: Rows, spec: LatticeShape, seed: int, classes: int, tags: Sequence[Tag], fitted: FittedModalities
    ) -> None:
        self.rows, self.spec, self.seed, self.classes = rows, spec, seed, classes
        self.tags, self.strengths = tags, dict(fitted.strengths)
        self.targets = np.eye(classes)[rows.labels] if classes else on_grid(rows.labels.astype(np.float64))[:, None]
        self.folds = assign_folds(rows.groups, spec.folds, seed)
        used = [m for m in rows.features if any(m in tag for tag in tags)]
        for m in used:
            if not rows.available[m].any():
                raise DataError(f"no train row has the modality {m}", key=m, hint=f"train with --without {m}")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            projected = dict(zip(used, pool.map(partial(self._project, fitted), used), strict=True))
        self.projections = {m: projection for m, (projection, _) in projected.items()}
        self.points = {m: points for m, (_, points) in projected.items()}
        self.sums = PatternSums.of(self.points, rows.available, self.targets, self.folds, tags)

    def train(self, progress: bool) -> list[TrainedModule]:
        """Train the modules of those tags that enough rows have; return them in the order of the tags."""
        singles = [tag for tag in self.tags if len(tag) == 1]
        larger = sorted((tag for tag in self.tags if len(tag) > 1), key=lambda tag: -len(tag))  # a long task first
        modules: dict[Tag, TrainedModule] = {}
        bar = progress_bar(total=len(self.tags), desc="modules", shown=progress)
        with ThreadPoolExecutor(os.cpu_count()) as pool, bar:
            for batch in (singles, larger):
                for tag, module in zip(batch, pool.map(self._train_module, batch), strict=True):
                    bar.update()
                    if module:
                        modules[tag] = module
                        if len(tag) == 1:
                            self.strengths[tag[0]] = float(module.tensors[_STRENGTHS][0])
        return [modules[tag] for tag in self.tags if tag in modules]

    def _project(self, fitted: FittedModalities, modality: str) -> tuple[Projection, Array]:
        """Return the projection of a modality, and p^m of each row; zero for those that lack it."""
        there = np.flatnonzero(self.rows.available[modality])
        matrix = Columns((self.rows.features[modality],), there)
        projection = fitted.projections.get(modality) or make_projection(matrix, self.spec.components)
        # On the grid, and as short as directions of length 1 make them, coordinates are exact in float32.
        kind = np.float32 if matrix.shape[1] <= _EXACT_IN_FLOAT32 else np.float64
        points = scratch((len(self.rows), len(projection.variances)), kind)
        for own in spans(*matrix.shape):
            points[there[own]] = projection(matrix[own])
            release(points)
        return projection, points

    def _train_module(self, tag: Tag) -> TrainedModule | None:
        """Train the module of a tag, unless rows of one fold alone have it."""
        there = np.all([self.rows.available[m] for m in tag], axis=0)
        folds = self.folds[there]
        if len(fold_numbers(folds)) < 2:
            return None
        points = Columns(tuple(self.points[m] for m in tag), np.flatnonzero(there))
        rows = ModuleRows(points, self.targets[there], folds)
        ridge = (
            FoldedRidge(self.sums.of_tag(tag), points.blocks)
            if self.sums
            else FoldedRidge.of(points, rows.targets, folds, points.blocks)
        )
        start = tuple(self.strengths[m] for m in tag) if len(tag) > 1 else ()
        return train_module(tag, rows, ridge, self.projections, start, self.spec, seed=self.seed, classes=self.classes)
