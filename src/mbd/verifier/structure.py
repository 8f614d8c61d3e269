"""The structural claims of a certificate, looked up in the weights themselves.

Of a file of weights only the header is read (names and shapes); values are looked at where the certificate says that
they are zero or rounded. What is checked, for the revoked modalities m*:

- the weights have the tensors, shapes and types that model.json lists, and no other ones;
- no tensor exists for m*, none has an input column that reads m*, and, where the guarantee says so, none has seen m*;
- every tensor has exactly the shape it has in a model built for the retained modalities: no column is left over. What
  networks of other packages should be is not known here: they are compared with the reference that was attacked beside
  the model, whose model.json is named in the evidence;
- no number uses more bits of its mantissa than were kept, where numbers were rounded;
- the listed positions lie inside their tensors, each once, as many as claimed, and are zero where that is claimed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from pydantic import ValidationError

from mbd.formats.leakage import ReferenceModel
from mbd.formats.model import (
    JointSpec,
    LatticeSpec,
    ModelRecord,
    TensorRecord,
    landmarks_name,
    module_tensors,
    projection_name,
    tensor_name,
)
from mbd.records import dotless
from mbd.tensors import Array, within_mantissa
from mbd.verifier.verdict import Check, failed, not_checkable, passed

TENSORS, REMOVED, SHAPES, POSITIONS = "tensors", "modality removed", "input shapes", "edited positions"
PRECISION = "precision"


@dataclass(frozen=True)
class StructuralClaim:
    """What a certificate says about the structure of the released weights."""

    revoked: tuple[str, ...]
    """modalities that are gone as a whole; empty where only named subjects were forgotten"""
    never_saw: bool
    """whether nothing that is left has ever seen them"""
    edit: Literal["zero", "noise", "all", "none"]
    """what happened to the listed positions; all: every number of the model is new"""
    count: int
    """how many positions are listed"""
    mantissa_bits: int | None = None
    """how many bits of each mantissa may be in use; None: all"""


class _Broken(Exception):  # noqa: N818 -- it never leaves this module
    """A claim that does not hold, in words."""


def check_structure(
    claim: StructuralClaim,
    record: ModelRecord,
    tensors: Mapping[str, Array],
    indices: Mapping[str, Array] | None,
    reference: ReferenceModel | None = None,
) -> list[Check]:
    """Compare the claim with what is in the files."""
    checks = [_run(TENSORS, lambda: _same_tensors(record, tensors))]
    if claim.revoked:
        checks.append(_run(REMOVED, lambda: _removed(claim, record)))
    else:
        reason = "the deletion is for named subjects: the modality stays in the model, for all others"
        checks.append(not_checkable(REMOVED, reason))
    if has_blueprint(record):
        checks.append(_run(SHAPES, lambda: _shapes(record, tensors)))
    elif reference is not None:
        checks.append(_run(SHAPES, lambda: _shapes_of_reference(claim, record, reference)))
    else:
        reason = f"only the package of {record.backbone} knows the shapes it should have, and no reference is named"
        checks.append(not_checkable(SHAPES, reason))
    if indices is None:
        checks.append(not_checkable(POSITIONS, "the list of positions was not given"))
    else:
        checks.append(_run(POSITIONS, lambda: _positions(claim, tensors, indices)))
    if (bits := claim.mantissa_bits) is not None:
        checks.append(_run(PRECISION, lambda: _precision(bits, tensors)))
    return checks


def _run(name: str, look: Callable[[], str]) -> Check:
    try:
        return passed(name, look())
    except _Broken as broken:
        return failed(name, str(broken))


def _same_tensors(record: ModelRecord, tensors: Mapping[str, Array]) -> str:
    if different := sorted(set(record.tensors) ^ set(tensors)):
        where = "the weights" if different[0] in tensors else "model.json"
        raise _Broken(f"only {where} has the tensor {different[0]!r}")
    for name, entry in record.tensors.items():
        tensor = tensors[name]
        if tensor.shape != entry.shape or str(tensor.dtype) != entry.dtype:
            raise _Broken(f"{name} is {tensor.shape} {tensor.dtype}, and model.json says {entry.shape} {entry.dtype}")
    return f"{len(tensors)} tensors, as model.json lists them"


def _removed(claim: StructuralClaim, record: ModelRecord) -> str:
    for modality in claim.revoked:
        if modality not in record.revoked:
            raise _Broken(f"model.json does not list {modality} as revoked")
        if modality in record.modalities:
            raise _Broken(f"the model is still built for {modality}")
        for name, entry in record.tensors.items():
            _refuse_trace(modality, name, entry, claim.never_saw)
    return f"no tensor and no input column of {', '.join(claim.revoked)} is left"


def _refuse_trace(modality: str, name: str, entry: TensorRecord, never_saw: bool) -> None:
    if entry.belongs_to == modality:
        raise _Broken(f"{name} exists for {modality} alone")
    if any(span.reads == modality for span in entry.columns):
        raise _Broken(f"{name} has input columns that read {modality}")
    if never_saw and modality in entry.sees:
        raise _Broken(f"nothing that is left is said to have seen {modality}, and {name} has")


def _shapes(record: ModelRecord, tensors: Mapping[str, Array]) -> str:
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    try:
        wanted = blueprint(record, shapes)
    except ValidationError as error:
        raise _Broken(f"the specification in model.json is not that of a {record.backbone} model") from error
    names = ", ".join(record.modalities)
    for name in sorted(set(shapes) | set(wanted)):
        if shapes.get(name) != wanted.get(name):
            raise _Broken(
                f"{name} is {shapes.get(name, 'missing')}, and in a {record.backbone} model for {names} it is "
                f"{wanted.get(name, 'not there')}"
            )
    for name, entry in record.tensors.items():
        _check_columns(name, entry, record)
    return f"every tensor has the shape of a {record.backbone} model for {names} alone"


def _shapes_of_reference(claim: StructuralClaim, record: ModelRecord, reference: ReferenceModel) -> str:
    """Compare with the model that never saw the modality: what the weights are is in model.json, as checked before."""
    if saw := [m for m in claim.revoked if m in reference.modalities]:
        raise _Broken(f"the reference takes {saw[0]}")
    if set(reference.modalities) != set(record.inputs):
        raise _Broken(f"the reference takes {', '.join(reference.modalities)}, the model {', '.join(record.inputs)}")
    if record.shapes_digest() != reference.shapes:
        raise _Broken("names, shapes or types of tensors are not those of the reference")
    return (
        f"every tensor has the shape that it has in the reference, which takes {', '.join(reference.modalities)} alone "
        f"(its model.json has sha256 {reference.record[:16]}…)"
    )


def _check_columns(name: str, entry: TensorRecord, record: ModelRecord) -> None:
    spans = sorted(entry.columns, key=lambda span: (span.start, span.stop))
    for span in spans:
        if record.modalities.get(span.reads) != span.stop - span.start:
            raise _Broken(f"{name}: columns {span.start} … {span.stop - 1} cannot be all of {span.reads}")
    inside = not spans or (spans[0].start >= 0 and spans[-1].stop <= (entry.shape or (0,))[-1])
    if not inside or any(following.start < span.stop for span, following in pairwise(spans)):
        raise _Broken(f"{name}: the listed columns overlap or lie outside the tensor")


def _positions(claim: StructuralClaim, tensors: Mapping[str, Array], indices: Mapping[str, Array]) -> str:
    counts = {name: positions.size for name, positions in indices.items()}
    if (total := sum(counts.values())) != claim.count:
        raise _Broken(f"the list has {total} positions, and {claim.count} are claimed")
    for name, positions in indices.items():
        tensor = tensors.get(name)
        if tensor is None or positions.ndim != 1 or positions.dtype.kind not in "iu":
            raise _Broken(f"the list names positions of {name!r} that cannot be: there is no such tensor or position")
        _check_inside(name, positions, tensor.size)
        if claim.edit == "zero" and np.asarray(tensor).reshape(-1)[positions].any():
            raise _Broken(f"positions of {name} are said to be zero and are not")
    if claim.edit == "none" and total:
        raise _Broken(f"nothing is said to have been edited, and {total} positions are listed")
    if claim.edit == "all" and (missing := [name for name, t in tensors.items() if counts.get(name) != t.size]):
        raise _Broken(f"every number is said to be new, and not all of {missing[0]} is listed")
    if not total:
        return "no position was edited one by one, and none is listed"
    state = "all are zero" if claim.edit == "zero" else "what was added there is random and cannot be looked up"
    return f"{total} positions in {len(indices)} tensors, each inside its tensor and listed once; {state}"


def _precision(bits: int, tensors: Mapping[str, Array]) -> str:
    if finer := [name for name, tensor in tensors.items() if not within_mantissa(tensor, bits)]:
        raise _Broken(f"{finer[0]} is said to be rounded to {bits} bits of the mantissa, and has numbers with more")
    return f"no number uses more than {bits} bits of its mantissa"


def _check_inside(name: str, positions: Array, size: int) -> None:
    if not positions.size:
        return
    # Lists are written in ascending order; sorting is only for those that are not.
    ordered = positions if (positions[1:] > positions[:-1]).all() else np.sort(positions)
    if ordered[0] < 0 or ordered[-1] >= size:
        raise _Broken(f"a listed position lies outside {name}")
    if (ordered[1:] == ordered[:-1]).any():
        raise _Broken(f"a position of {name} is listed twice")


# The tensors that a model consists of

Shape = tuple[int, ...]
_KERNEL = "kernel.weights"
_MOST_DOUBLINGS = 3  # of the landmarks of a module


def has_blueprint(record: ModelRecord) -> bool:
    """Whether the shapes of a model follow from its record: not those of networks that another package builds."""
    return record.backbone in _BLUEPRINTS and not record.spec.get("member")


def blueprint(record: ModelRecord, present: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shape of every tensor that a model for `record.modalities` has, from its specification alone.

    Written down a second time on purpose: a verifier that asked the training code for the shapes would need torch, and
    would believe whatever that code does. A model whose tensors are exactly these has no room for another modality.

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
