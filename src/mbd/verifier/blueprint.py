"""The tensors that a model for given modalities consists of: names and shapes, from its specification alone.

Written down a second time on purpose: a verifier that asked the training code for the shapes would need torch, and
would believe whatever that code does. A model whose tensors are exactly these has no room for another modality.
"""

from collections.abc import Callable, Iterator, Mapping

from mbd.formats.model import (
    JointSpec,
    LatticeSpec,
    ModelRecord,
    landmarks_name,
    module_tensors,
    projection_name,
    tensor_name,
)
from mbd.records import dotless

Shape = tuple[int, ...]
_KERNEL = "kernel.weights"
_MOST_DOUBLINGS = 3  # of the landmarks of a module


def has_blueprint(record: ModelRecord) -> bool:
    """Whether the shapes of a model follow from its record: not those of networks that another package builds."""
    return record.backbone in _BLUEPRINTS and not record.spec.get("member")


def blueprint(record: ModelRecord, present: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shape of every tensor that a model for `record.modalities` has.

    `present` are the tensors that there are: of a lattice, tags for which training had too few rows are left out.
    """
    return dict(_BLUEPRINTS[record.backbone](record, max(len(record.classes), 1), present))


def _linear(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _perceptron(name: str, inputs: int, hidden: int, outputs: int) -> Iterator[tuple[str, Shape]]:
    yield from _linear(f"{name}.hidden", inputs, hidden)
    yield from _linear(f"{name}.out", hidden, outputs)


def _joint(record: ModelRecord, outputs: int, _: Mapping[str, Shape]) -> Iterator[tuple[str, Shape]]:
    modalities, spec = record.modalities, JointSpec.model_validate(record.spec)
    total = sum(modalities.values())
    for modality, dim in modalities.items():
        yield from _pathway(f"modality.{dotless(modality)}", dim, total - dim, outputs, spec)
    if spec.fusion:
        yield from _perceptron("fusion", total, spec.hidden, spec.embedding)
    yield from _linear("head", spec.embedding, outputs)
    if spec.linear_share:
        yield from _linear("linear", total, outputs)
    yield "label_mean", (1,)
    yield "label_scale", (1,)


def _pathway(name: str, dim: int, dim_of_others: int, outputs: int, spec: JointSpec) -> Iterator[tuple[str, Shape]]:
    d_p = spec.property_dim
    yield f"{name}.mean", (dim,)
    yield f"{name}.scale", (dim,)
    if spec.reconstruction:
        yield from _perceptron(f"{name}.generator", dim_of_others + d_p * spec.property_pathway, spec.hidden, dim)
    if spec.property_pathway:
        yield f"{name}.property", (1, d_p)
        yield from _perceptron(f"{name}.decomposition", dim, spec.hidden, 2 * d_p)
        yield from _linear(f"{name}.recomposition", d_p, dim)
        yield from _perceptron(f"{name}.back_translation", spec.embedding, spec.hidden, d_p)
    if not spec.fusion:
        yield from _linear(f"{name}.projection", dim, spec.embedding)
    if spec.linear_share:
        yield f"{name}.beside.weight", (outputs, dim_of_others)


def _lattice(record: ModelRecord, outputs: int, present: Mapping[str, Shape]) -> Iterator[tuple[str, Shape]]:
    spec = LatticeSpec.model_validate(record.spec)
    kept = {m: min(dim, spec.components) for m, dim in record.modalities.items()}
    for modality, dim in record.modalities.items():
        yield projection_name(modality, "mean"), (dim,)
        yield projection_name(modality, "deviation"), (dim,)
        yield projection_name(modality, "directions"), (dim, kept[modality])
        yield projection_name(modality, "variances"), (kept[modality],)
    for tag, own in module_tensors(record.modalities, present).items():
        landmarks = _landmarks(spec, own.get(_KERNEL, ()))
        for part, shape in _module({m: kept[m] for m in tag}, spec, landmarks, outputs, bool(record.classes)):
            yield tensor_name(tag, part), shape


def _landmarks(spec: LatticeSpec, weights: Shape) -> int:
    """Return how many landmarks a module has: training doubles the number of the settings where that pays."""
    doubled = [spec.landmarks * 2**times for times in range(_MOST_DOUBLINGS + 1)]
    return weights[0] if weights and weights[0] in doubled else spec.landmarks


def _module(
    coordinates: Mapping[str, int], spec: LatticeSpec, landmarks: int, outputs: int, classes: bool
) -> Iterator[tuple[str, Shape]]:
    yield "ridge.weights", (sum(coordinates.values()), outputs)
    yield "ridge.offset", (outputs,)
    yield "ridge.strengths", (len(coordinates),)
    if landmarks:
        for modality, count in coordinates.items():
            yield landmarks_name(modality), (landmarks, min(count, spec.kernel_components))
        yield _KERNEL, (landmarks, outputs)
        yield "kernel.offset", (outputs,)
        yield "kernel.length", ()
        yield "gamma", ()
    if classes:
        yield "logistic.weights", (sum(coordinates.values()), outputs)
        yield "logistic.offset", (outputs,)
        yield "calibration.scales", (2,)
        yield "calibration.shift", (outputs,)
    yield "sigma", ()
    yield "rows", ()


_BLUEPRINTS: Mapping[str, Callable[[ModelRecord, int, Mapping[str, Shape]], Iterator[tuple[str, Shape]]]] = {
    "joint": _joint,
    "lattice": _lattice,
}
