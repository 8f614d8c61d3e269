"""Old weights put back into the new model bring back what the deletion only unplugged."""

from pathlib import Path

import numpy as np
import pytest

from mbd.attacks import pathway, reconstruction
from mbd.attacks.target_model import TargetModel
from mbd.errors import DataError
from tests.attacks.models import LATTICE, audited, context_of, target_of
from tests.refusals import refused

FOUR = "features.source.synthetic.dims={text: 12, audio: 6, visual: 8, touch: 4}"


def pair(model_workspace: Path, name: str = "deleted") -> tuple[TargetModel, TargetModel]:
    return target_of(model_workspace, "model", "before"), target_of(model_workspace, name)


@pytest.mark.parametrize("features", [(), (FOUR,), ("features.source.synthetic.classes=3",)])
def test_an_exact_deletion_leaves_a_part_of_the_old_weights(tmp_path: Path, features: tuple[str, ...]) -> None:
    model_workspace = audited(tmp_path, *LATTICE, features=features, method="exact")
    before, after = pair(model_workspace)
    assert all(np.array_equal(tensor, before.tensors[name]) for name, tensor in after.tensors.items())
    back = after.with_old(before, "audio")
    assert all(np.array_equal(tensor, before.tensors[name]) for name, tensor in back.tensors.items())


def test_old_weights_put_back_are_the_old_pathway_on_the_new_trunk(model_workspace: Path) -> None:
    before, after = pair(model_workspace)
    rng = np.random.default_rng(0)
    moved = after.with_tensors(
        {name: x + np.asarray(rng.standard_normal(x.shape), x.dtype) for name, x in after.tensors.items()}
    )
    back = moved.with_old(before, "audio")
    weight, old = back.tensors["fusion.hidden.weight"], before.tensors["fusion.hidden.weight"]
    audio = next(c for c in before.record.tensors["fusion.hidden.weight"].columns if c.reads == "audio")
    assert np.array_equal(weight[:, audio.start : audio.stop], old[:, audio.start : audio.stop])
    kept = np.delete(weight, np.s_[audio.start : audio.stop], axis=1)
    assert np.array_equal(kept, moved.tensors["fusion.hidden.weight"])
    assert np.array_equal(back.tensors["head.weight"], moved.tensors["head.weight"])
    name = "modality.audio.generator.out.weight"
    assert np.array_equal(back.tensors[name], before.tensors[name])


def test_what_a_cut_only_unplugged_comes_back_with_the_old_weights(model_workspace: Path) -> None:
    before, after = pair(model_workspace)
    context = context_of(model_workspace)
    attacks = (pathway.attack, reconstruction.attack)
    back, old, new = (
        [evidence for run in attacks for evidence in run(target_model, context)]
        for target_model in (after.with_old(before, "audio"), before, after)
    )
    for put_back, was, left in zip(back, old, new, strict=True):
        # Only the fine-tuning of the trunk lies between them.
        assert abs(put_back.value - was.value) <= 0.25 * abs(was.value - left.value) + 0.05
    assert (back[0].value, new[0].value) == (1.0, 0.0)


def test_models_of_different_shape_are_no_lineage(model_workspace: Path, tmp_path: Path) -> None:
    other = audited(tmp_path, "model.joint.hidden=8")
    with refused(DataError, key="fusion.hidden.bias"):
        target_of(other, "deleted").with_old(target_of(model_workspace, "model", "before"), "audio")
