"""Models after rounding to 8 bits and after pruning: changed as announced, and still models to be attacked."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mbd.attacks import relearn
from mbd.attacks.suite import changed, prune, to_int8_and_back
from mbd.params.deletion import AttacksSettings, WeightChange
from mbd.tensors import Array
from tests.attacks.models import LATTICE, audited, context_of, target_of

weights = arrays(np.float32, array_shapes(min_dims=2, max_dims=3, max_side=6), elements=st.floats(-8, 8, width=32))


@settings(deadline=None, max_examples=60)
@given(weights)
def test_eight_bits_keep_each_weight_to_half_a_step(tensor: Array) -> None:
    rounded = to_int8_and_back(tensor)
    step = float(np.abs(tensor).max()) / 127
    assert rounded.dtype == tensor.dtype
    assert np.abs(rounded - tensor).max() <= step / 2 * 1.001 + 1e-12
    assert len(np.unique(rounded)) <= 255
    assert to_int8_and_back(rounded) == pytest.approx(rounded, abs=step * 1e-3)


@settings(deadline=None, max_examples=60)
@given(weights, st.floats(0, 0.99))
def test_pruning_takes_the_smallest_share(tensor: Array, share: float) -> None:
    pruned = prune(tensor, share)
    gone = (pruned == 0) & (tensor != 0)
    assert (pruned == 0).sum() >= int(share * tensor.size)
    assert np.array_equal(pruned[~gone], tensor[~gone])
    if gone.any():
        assert np.abs(tensor[gone]).max() <= np.abs(tensor[pruned != 0]).min(initial=np.inf)


@pytest.mark.parametrize("variant", AttacksSettings().variants)
def test_only_weights_change_and_what_was_there_stays(model_workspace: Path, variant: WeightChange) -> None:
    target_model = target_of(model_workspace, "model", "before")
    other = changed(target_model, variant, AttacksSettings())
    assert (other.role, other.record) == (target_model.role, target_model.record)
    different = {
        name for name, tensor in target_model.tensors.items() if not np.array_equal(tensor, other.tensors[name])
    }
    assert different
    assert all(name.endswith("weight") or name.endswith("property") for name in different)
    if variant == "pruned":
        weight = other.tensors["fusion.hidden.weight"]
        assert np.mean(weight == 0) == pytest.approx(AttacksSettings().pruned_share, abs=0.01)


@pytest.mark.parametrize("variant", AttacksSettings().variants)
@pytest.mark.parametrize("backbone", ["joint", "lattice"])
def test_what_leaked_leaks_and_what_was_cut_stays_cut(
    model_workspace: Path, tmp_path: Path, variant: WeightChange, backbone: str
) -> None:
    if backbone == "lattice":
        model_workspace = audited(tmp_path, *LATTICE, method="exact")
    context = context_of(model_workspace, relearn_rows=(128,))
    full, left, never = (
        max(
            e.value for e in relearn.attack(changed(target_of(model_workspace, name), variant, context.params), context)
        )
        for name in ("model", "deleted", "reference")
    )
    assert full > never + 0.1
    assert abs(left - never) < 0.1
