"""The structural cut of any module, by probing: what exists for a modality alone is removed, or set to zero.

Where the factory builds a smaller model, the result has its shapes; where the shape is fixed, dead entries are zero,
and their positions are listed. Statistics that training filled from all modalities (BatchNorm) are computed from the
calibration rows without the deleted ones. State that is not floating-point (counters, ids, banks of bytes) may hold
whatever training saw, and no attack looks into it: it is reset to what a fresh module has. Before the cut is accepted,
predictions without the modality are compared with those of the model before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch.nn.modules.batchnorm import _NormBase

from mbd.deletion.cut import Cut
from mbd.errors import DataError, UsageError
from mbd.features.contract import Split
from mbd.formats.guarantee import WARNING
from mbd.formats.model import ModelRecord, ModuleSpec, TensorRecord
from mbd.model.branches import refuse_unbranched
from mbd.model.checkpoint import describe
from mbd.model.joint import to_tensor_dict
from mbd.model.module import (
    ModuleBackbone,
    architecture_of,
    closed_inputs,
    cut_plain,
    from_plain,
    from_tensors,
    plain_name,
    spec_of,
    to_plain,
)
from mbd.model.probing import probe
from mbd.tensors import Array, is_float

ONLY_INPUTS = (
    f"{WARNING}nothing of {{modality}} is dead but what multiplies its input: its other layers are still in use and "
    "were left as they are. Where it has submodules of its own, name them in model.branches."
)
_ROWS = 1024
_CLOSE = 1e-3  # relative difference of predictions that rounding may explain


def cut_module(
    record: ModelRecord, tensors: Mapping[str, Array], gone: Sequence[str], rows: Split | None = None
) -> Cut:
    """Return the model without the modalities `gone`; for `rows`, see :func:`mbd.deletion.cut.cut_model`.

    Raises:
        UsageError: The module cannot be probed, or does not agree with the factory's smaller model; another layer than
            BatchNorm has filled a buffer in training; or branches are not named that can be found.
        DataError: The cut changes predictions for `rows` without the modalities.

    """
    architecture, plain = architecture_of(record), to_plain(architecture_of(record), tensors)
    absent = [*gone, *closed_inputs(record, architecture)]
    if rows is not None:
        refuse_unbranched(architecture, *absent)
    probed, original = probe(architecture, *absent), plain
    warnings = [ONLY_INPUTS.format(modality=" and ".join(gone))] if probed.only_inputs else []
    plain, architecture = cut_plain(probed, plain), architecture.without(absent)
    left = from_plain(architecture, plain)
    zeroed = _zeroed(left, plain, original)
    fresh = to_tensor_dict(architecture.build(seed=int(record.seed)))
    reset = [name for name in left if not is_float(left[name]) and not np.array_equal(left[name], fresh[name])]
    left |= {name: fresh[name] for name in reset}
    smaller = record.model_copy(
        update={
            "modalities": {m: dim for m, dim in record.modalities.items() if m not in gone},
            "revoked": (*record.revoked, *gone),
            "spec": spec_of(architecture, ModuleSpec.model_validate(record.spec).training),
            "tensors": {name: _entry(record, name, tensor, gone) for name, tensor in left.items()},
            "sha256": "",
        }
    )
    removed = [name for name in original if name not in plain or (not plain[name].any() and original[name].any())]
    statistics = sorted(name for name in probed.filled if name in left and left[name].any())
    if rows is not None and probed.same_function:
        _refuse_other_predictions((record, tensors), (smaller, left), rows, reset)
    return Cut(
        record=smaller,
        tensors=_refilled(smaller, left, statistics, zeroed, rows) if rows is not None and statistics else left,
        removed=tuple(sorted(removed)),
        narrower={
            name: int(np.count_nonzero(original[name]) - np.count_nonzero(array))
            for name, array in plain.items()
            if array.any() and np.count_nonzero(array) < np.count_nonzero(original[name])
        },
        follow=lambda values: {name: array for name, array in probed.cut(values).items() if name in left},
        zeroed=zeroed,
        warnings=tuple(warnings),
        facts={
            "found_by": "probing",
            "same_predictions_without_it": probed.same_function,
            "recomputed_statistics": statistics,
            "reset_state": reset,
            "unused_by_all": dict(probed.unused),
            "warnings": warnings,
        },
    )


def _refilled(
    record: ModelRecord,
    tensors: Mapping[str, Array],
    statistics: Sequence[str],
    zeroed: Mapping[str, Array],
    rows: Split,
) -> dict[str, Array]:
    """Return the weights with statistics of BatchNorm computed from rows, as the cut model sees them."""
    backbone = from_tensors(record, tensors)
    owners = {name.rpartition(".")[0]: backbone.module.get_submodule(name.rpartition(".")[0]) for name in statistics}
    for name, part in owners.items():
        if not isinstance(part, _NormBase):
            raise UsageError(
                "training has filled a buffer from all modalities; only statistics of BatchNorm can be computed again",
                key=name,
                value=type(part).__name__,
                hint="delete by deletion.method=exact",
            )
        part.reset_running_stats()
        part.momentum = None  # the mean over all batches
        part.train()
    _run(backbone, rows, tuple(record.inputs))
    filled = to_tensor_dict(backbone.module)
    for name in set(zeroed) & set(statistics):
        filled[name].reshape(-1)[zeroed[name]] = 0
    return filled


Stored = tuple[ModelRecord, Mapping[str, Array]]


def _refuse_other_predictions(full: Stored, smaller: Stored, rows: Split, reset: Sequence[str]) -> None:
    """Refuse a cut that changes predictions without the modalities: something that it took away is in use."""
    before, after = (_run(from_tensors(*model), rows, tuple(smaller[0].inputs)) for model in (full, smaller))
    change = float(np.abs(before - after).max())
    if not change <= _CLOSE * max(float(np.abs(before).max()), 1.0):
        if state := next((name for name in reset if full[1][name].size > 1), None):
            raise DataError(
                "the model predicts from state that is not floating-point and may hold what training saw; it cannot be "
                "kept, and without it predictions change",
                key=state,
                value=f"{full[1][state].dtype} {full[1][state].shape}, largest change {change:.3g}",
                hint="delete by deletion.method=exact",
            )
        raise DataError(
            "the cut changes predictions without the modality, so probing has taken something for dead that is in use",
            key=full[0].backbone,
            value=f"largest change {change:.3g}",
            hint="does the module choose what it computes (experts, thresholds)? delete by deletion.method=exact",
        )


def _run(backbone: ModuleBackbone, split: Split, retained: tuple[str, ...]) -> Array:
    """Return predictions for the first rows of a split that have a retained modality, given these and no others.

    A module of fixed shape would take the deleted modality too, and a split has it: its statistics must not be filled
    from it.
    """
    rows = replace(split, modalities=retained).take(slice(_ROWS))
    given = rows.take(np.any(list(rows.available.values()), axis=0))
    return backbone.predict(given.inputs(), given.available)


def _zeroed(left: Mapping[str, Array], plain: Mapping[str, Array], original: Mapping[str, Array]) -> dict[str, Array]:
    """Return the positions of stored tensors that the cut has set to zero and that were not zero before."""
    zeroed = {}
    for name, tensor in left.items():
        whole = plain_name(name)
        if tensor.shape != plain[whole].shape or original[whole].shape != tensor.shape:
            continue
        positions = np.flatnonzero((tensor == 0) & (original[whole] != 0))
        if len(positions):
            zeroed[name] = positions.astype(np.int64)
    return zeroed


def _entry(record: ModelRecord, name: str, tensor: Array, gone: Sequence[str]) -> TensorRecord:
    old = record.tensors[name]
    empty = not is_float(tensor) or (not tensor.any() and old.belongs_to in gone)
    return describe(tensor, () if empty else old.sees, belongs_to=None if old.belongs_to in gone else old.belongs_to)


def counterparts(record: ModelRecord, arrays: Mapping[str, Array], gone: Sequence[str]) -> dict[str, Array]:
    """Return what is left of the weights of a module without `gone`; they may be gone already."""
    return cut_module(record, arrays, gone).tensors if set(gone) & set(record.modalities) else dict(arrays)


def fresh_start(record: ModelRecord, noised: Mapping[str, Array], sigma: float, seed: int) -> dict[str, Array]:
    """Return noised matrices with the spread of fresh ones; all else is as the factory makes it.

    Vectors (biases, scales of a norm) and parametrised weights start fresh: what noise leaves of them is no start.
    """
    fresh = to_tensor_dict(architecture_of(record).build(seed=seed))
    for name, start in fresh.items():
        if name in noised and start.ndim > 1 and plain_name(name) == name:
            fresh[name] = (noised[name] * (float(start.std()) / sigma)).astype(start.dtype)
    return fresh
