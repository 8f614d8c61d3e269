"""Training of the lattice: every module from the rows that have its tag, on one thread each.

Folds are whole groups and depend on the rows' groups alone. Modules of single modalities come first, because larger
ones start their search from their strengths. Factorisations run on one thread, because their last bits depend on the
number of threads; several modules run side by side instead. So for every m, training without m gives the same bytes
for every module that is left.

Passes over rows go to `training.processes` processes, in shards. Sums over shards are exact, and a shard is long enough
for a product to treat each row as it would without shards, so neither their size nor the processes change a bit. For
all tags together the products of coordinates are summed once, by the set of modalities that rows have
(:mod:`mbd.training.lattice.sums`).

The same holds for recordings of m: without some of them, only what has seen m is trained again, and what the other
modalities have found alone (:class:`FittedModalities`) is still what training would find.
"""

import os
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, repeat
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mbd.blocks import Columns, in_blocks, row_by_row, shards
from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.formats.lattice import Tag, projection_name, tensor_name
from mbd.formats.model import LatticeSpec, ModelRecord, TensorRecord
from mbd.logs import progress_bar
from mbd.model.checkpoint import describe
from mbd.model.coordinates import Projection, on_grid
from mbd.model.lattice import LatticeShape, chosen_tags, read_projection
from mbd.params import Params
from mbd.tensors import Array, release
from mbd.training.lattice.folds import assign_folds, fold_numbers, refuse_too_few_groups
from mbd.training.lattice.module import ModuleRows, TrainedModule, choose_strengths, train_module
from mbd.training.lattice.parts import modules_in
from mbd.training.lattice.ridge import FoldedRidge
from mbd.training.lattice.sums import PatternSums
from mbd.training.processes import Workers, workers
from mbd.training.trained import Part, Trained, data_record, recorded_training

_SMALLEST_DEVIATION = 1e-6
_DIRECTION_GRID = 4096.0
_EXACT_IN_FLOAT32 = 10**6  # columns
_STRENGTHS = "ridge.strengths"
_FEWEST_COLUMNS = 8  # of a share: numpy adds up a single column in another order


def train_lattice(
    feature_set: FeatureSet,
    params: Params,
    *,
    work: Path,
    progress: bool,
    part: Part | None = None,
    join: Sequence[Path] = (),
) -> Trained:
    """Train on `feature_set`; in closed form nothing is kept in `work`.

    Args:
        feature_set: The data.
        params: Parameters of model and training.
        work: Folder for what is finished.
        progress: Whether to show how far it is.
        part: Train only this part of the modules.
        join: Folders of parts that are trained; only what they lack is trained here.

    Raises:
        UsageError: There would be more modules than can be trained, or the factory of networks does not fit.

    """
    manifest, seed = feature_set.manifest, params.training.seed
    spec, wanted = _spec(feature_set, params)
    known = modules_in(join, spec, feature_set.modalities, seed, data_record(feature_set))
    tags = part.of(sorted(wanted, key=len, reverse=True)) if part else wanted
    processes = params.training.processes
    if spec.member:
        from mbd.training.lattice.networks import Training, train_networks  # noqa: PLC0415 -- imports torch

        training = Training(feature_set.folder, manifest, spec, seed, processes, params.training.device)
        tensors, provenance, report = train_networks(training, tags, work=work, known=known.modules, progress=progress)
    else:
        feature_set.require_vectors("lattice")
        tensors, provenance, report = train_modules(
            training_rows(feature_set, spec),
            spec,
            seed=seed,
            classes=len(manifest.classes),
            wanted=tags,
            found=FittedModalities.in_model(known.tensors, feature_set.modalities),
            known={
                tag: TrainedModule(tag, own, known.reports[tag])
                for tag, own in known.modules.items()
                if tag in known.reports
            },
            processes=processes,
            progress=progress,
        )
    record = ModelRecord(
        backbone="lattice",
        spec=spec.to_plain(),
        task=manifest.task,
        classes=manifest.classes,
        label_range=manifest.label_range,
        modalities=feature_set.modalities,
        seed=str(seed),
        data=data_record(feature_set),
        tensors=provenance,
        sha256="",
    )
    return Trained(record, tensors, report)


def retrain(
    modality: str, retained: FeatureSet, record: ModelRecord, tensors: Mapping[str, Array], params: Params
) -> tuple[dict[str, Array], dict[str, TensorRecord]]:
    """Train all modules that hold the modality; projections and strengths of the others come from `tensors`."""
    spec, seed = LatticeSpec.model_validate(record.spec), int(record.seed)
    if spec.member:
        from mbd.training.lattice.networks import Training, train_networks  # noqa: PLC0415 -- imports torch

        settings = params.training
        training = Training(retained.folder, retained.manifest, spec, seed, settings.processes, settings.device)
        tags = [tag for tag in chosen_tags(spec, record.modalities) if modality in tag]
        with tempfile.TemporaryDirectory() as work:
            return train_networks(training, tags, work=Path(work))[:2]
    found = FittedModalities.in_model(tensors, [m for m in record.modalities if m != modality])
    rows, classes, processes = training_rows(retained, spec), len(record.classes), params.training.processes
    return train_modules(rows, spec, seed=seed, classes=classes, only=modality, found=found, processes=processes)[:2]


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
    """What training has found for single modalities, each from its own data alone."""

    projections: Mapping[str, Projection] = field(default_factory=dict)
    strengths: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def in_model(cls, tensors: Mapping[str, Array], modalities: Iterable[str]) -> "FittedModalities":
        """Return what a model's tensors say of `modalities`; refuse a model that this version would train otherwise."""
        names = {m: tensor_name((m,), _STRENGTHS) for m in modalities if projection_name(m, "mean") in tensors}
        for m in names:
            if np.any(read_projection(tensors, m).directions * _DIRECTION_GRID % 1):
                raise DataError(
                    "the lattice was trained by an earlier version, whose bytes this version does not reproduce",
                    key=projection_name(m, "directions"),
                    hint="train the model again, without the recordings that are to be forgotten",
                )
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
    wanted: Collection[Tag] | None = None,
    only: str | None = None,
    found: FittedModalities | None = None,
    known: Mapping[Tag, TrainedModule] | None = None,
    processes: int = 1,
    progress: bool = False,
) -> tuple[dict[str, Array], dict[str, TensorRecord], list[dict[str, float | str]]]:
    """Train the modules of `wanted` (default: as the specification says), or those of them that hold `only`.

    `found` and the modules `known` come from a training with the same rows of these modalities, and are not sought
    again.
    """
    chosen = chosen_tags(spec, rows.features) if wanted is None else wanted
    tags = [tag for tag in chosen if only is None or only in tag]
    modules, fitted = dict(known or {}), found or FittedModalities()
    projections = dict(fitted.projections)
    if left := [tag for tag in tags if tag not in modules]:
        with threadpool_limits(limits=1), workers(processes) as shared:
            state = _LatticeTraining(rows, spec, seed, classes, left, fitted, shared)
            modules |= state.train(progress)
        projections |= state.projections
    made = [modules[tag] for tag in tags if tag in modules]
    used = [m for m in rows.features if (m == only if only else any(m in tag for tag in tags))]
    tensors, provenance = _named(made, {m: projections[m] for m in used})
    return tensors, provenance, [{"tag": "+".join(module.tag), **module.report} for module in made]


def make_projection(matrix: Columns, components: int, shared: Workers) -> Projection:
    """Return the projection of one modality, from the train rows that have it."""
    rows, columns = matrix.shape
    mean = _column_sums(matrix, shared) / rows
    deviation = np.sqrt(_column_sums(matrix, shared, mean) / rows)
    deviation = np.where(deviation > _SMALLEST_DEVIATION, deviation, 1.0)
    empty = np.zeros((columns, 0), np.float32)
    scaling, gram = Projection(mean, deviation, empty, empty[0]), np.zeros((columns, columns))
    parts = (matrix.shard(own) for own in shards(np.arange(rows)))
    for products in shared.mapped(_standardised_gram, parts, repeat(scaling)):
        gram += products
    values, vectors = np.linalg.eigh(gram / rows)
    strongest = np.argsort(-values, kind="stable")[:components]
    return Projection(
        mean=mean,
        deviation=deviation,
        directions=(np.rint(vectors[:, strongest] * _DIRECTION_GRID) / _DIRECTION_GRID).astype(np.float32),
        variances=np.maximum(values[strongest], 0),
    )


def _column_sums(matrix: Columns, shared: Workers, mean: Array | None = None) -> Array:
    """Return the sum of each column, or of the squares of its distances from the mean.

    Inputs are on no grid, so their sums depend on the order of rows; processes take some columns of all rows each.
    """
    columns = matrix.shape[1]
    ends = np.linspace(0, columns, max(min(shared.count, columns // _FEWEST_COLUMNS), 1) + 1).astype(int)
    cuts = [slice(start, end) for start, end in pairwise(ends)]
    means = [None if mean is None else mean[own] for own in cuts]
    found: Array = np.concatenate(list(shared.mapped(_summed, (matrix.cut(own) for own in cuts), means)))
    return found


def _summed(matrix: Columns, mean: Array | None) -> Array:
    return row_by_row(matrix) if mean is None else row_by_row(matrix, lambda x: np.square(x - mean))


def _standardised_gram(matrix: Columns, scaling: Projection) -> Array:
    rows, columns = matrix.shape
    gram = np.zeros((columns, columns))
    for own in in_blocks(np.arange(rows), columns):
        z = scaling.standardise(matrix[own])
        gram += z.T @ z
    return gram


class _LatticeTraining:
    """One training: the rows' coordinates, and what single modalities have found so far."""

    def __init__(
        self,
        rows: Rows,
        spec: LatticeShape,
        seed: int,
        classes: int,
        wanted: Sequence[Tag],
        found: FittedModalities,
        shared: Workers,
    ) -> None:
        self.rows, self.spec, self.seed, self.classes = rows, spec, seed, classes
        self.wanted, self.shared, self.strengths = wanted, shared, dict(found.strengths)
        self.targets = np.eye(classes)[rows.labels] if classes else on_grid(rows.labels.astype(np.float64))[:, None]
        self.folds = assign_folds(rows.groups, spec.folds, seed)
        refuse_too_few_groups(self.folds, rows.groups)
        self.projections: dict[str, Projection] = {}
        self.points: dict[str, Array] = {}
        used = [m for m in rows.features if any(m in tag for tag in wanted)]
        for m in used:
            if not rows.available[m].any():
                raise DataError(f"no train row has the modality {m}", key=m, hint=f"train with --without {m}")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for m, (projection, points) in zip(used, pool.map(partial(self._projected, found), used), strict=True):
                self.projections[m], self.points[m] = projection, points
        singles = {m for tag in wanted for m in tag if len(tag) > 1} - {tag[0] for tag in wanted if len(tag) == 1}
        self.unknown = sorted(m for m in singles - self.strengths.keys() if self._in_folds((m,)))
        needed = [*wanted, *((m,) for m in self.unknown)]
        self.sums = PatternSums.of(self.points, rows.available, self.targets, self.folds, needed, shared.mapped)

    def train(self, progress: bool) -> dict[Tag, TrainedModule]:
        """Train the modules of those tags that enough rows have."""
        singles = [tag for tag in self.wanted if len(tag) == 1]
        larger = sorted((tag for tag in self.wanted if len(tag) > 1), key=lambda tag: -len(tag))  # a long task first
        trained: dict[Tag, TrainedModule] = {}
        bar = progress_bar(total=len(self.wanted), desc="modules", shown=progress)
        with ThreadPoolExecutor(os.cpu_count()) as pool, bar:
            for batch in (singles, larger):
                for tag, module in zip(batch, pool.map(self._module, batch), strict=True):
                    bar.update()
                    if module:
                        trained[tag] = module
                        if len(tag) == 1:
                            self.strengths[tag[0]] = float(module.tensors[_STRENGTHS][0])
                if batch is singles:
                    self.strengths |= zip(self.unknown, pool.map(self._strength, self.unknown), strict=True)
        return trained

    def _has(self, tag: Tag) -> Array:
        """Return which rows have a tag."""
        found: Array = np.all([self.rows.available[m] for m in tag], axis=0)
        return found

    def _in_folds(self, tag: Tag) -> bool:
        """Say whether rows of two folds or more have a tag; others are not trained."""
        return len(fold_numbers(self.folds[self._has(tag)])) > 1

    def _projected(self, found: FittedModalities, modality: str) -> tuple[Projection, Array]:
        """Return the projection of a modality, and p^m of each row; zero for those that lack it."""
        own = Columns((self.rows.features[modality],), np.flatnonzero(self.rows.available[modality]))
        projection = found.projections.get(modality) or make_projection(own, self.spec.components, self.shared)
        # On the grid, and as short as directions of length 1 make them, coordinates are exact in float32.
        kind = np.float32 if own.shape[1] <= _EXACT_IN_FLOAT32 else np.float64
        points = self.shared.array((len(self.rows), len(projection.variances)), kind)
        parts = [own.shard(rows) for rows in shards(np.arange(own.shape[0]))]
        list(self.shared.mapped(_project, parts, (Columns((points,), part.rows) for part in parts), repeat(projection)))
        return projection, points

    def _module(self, tag: Tag) -> TrainedModule | None:
        if not self._in_folds(tag):
            return None
        rows, start = self._rows(tag), tuple(self.strengths[m] for m in tag) if len(tag) > 1 else ()
        ridge, projections = self._ridge(tag, rows), self.projections
        return train_module(tag, rows, ridge, projections, start, self.spec, seed=self.seed, classes=self.classes)

    def _strength(self, modality: str) -> float:
        return choose_strengths(self._ridge((modality,), self._rows((modality,))))[0]

    def _rows(self, tag: Tag) -> ModuleRows:
        there = self._has(tag)
        points = Columns(tuple(self.points[m] for m in tag), np.flatnonzero(there))
        return ModuleRows(points, self.targets[there], self.folds[there], self.shared.mapped)

    def _ridge(self, tag: Tag, rows: ModuleRows) -> FoldedRidge:
        if self.sums:
            return FoldedRidge(self.sums.of_tag(tag), rows.points.blocks)
        return FoldedRidge.of(rows.points, rows.targets, rows.folds, rows.points.blocks, rows.mapped)


def _project(matrix: Columns, points: Columns, projection: Projection) -> None:
    """Write the coordinates of some rows where `points` lie."""
    (found,), columns = points.parts, matrix.shape[1]
    for own in in_blocks(np.arange(len(matrix.rows)), columns):
        found[points.rows[own]] = projection(matrix[own])
        release(found)


def _named(
    modules: list[TrainedModule], own: Mapping[str, Projection]
) -> tuple[dict[str, Array], dict[str, TensorRecord]]:
    """Return the tensors of `modules` and `own` projections by name, and what each has seen."""
    tensors, provenance = {}, {}
    for m, projection in own.items():
        for part in Projection.__dataclass_fields__:
            name = projection_name(m, part)
            tensors[name] = getattr(projection, part)
            provenance[name] = describe(tensors[name], (m,), belongs_to=m)
    for module in modules:
        alone = module.tag[0] if len(module.tag) == 1 else None
        for part, tensor in module.tensors.items():
            name = tensor_name(module.tag, part)
            tensors[name] = tensor
            provenance[name] = describe(tensor, module.tag, belongs_to=alone)
    return tensors, provenance
