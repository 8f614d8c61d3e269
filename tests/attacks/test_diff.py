"""Old and new weights side by side: what was deleted shows, and old weights put back bring back what they can."""

from pathlib import Path

import numpy as np
import pytest

from mbd.attacks import diff, pathway, reconstruction
from mbd.attacks.diff import compare, transplanted
from mbd.attacks.target_model import TargetModel
from mbd.errors import DataError
from mbd.params import load_params
from mbd.steps import delete
from tests.attacks.models import LATTICE, audited, setting_of, suspect_of
from tests.evaluation.models import TINY

FOUR = "features.source.synthetic.dims={text: 12, audio: 6, visual: 8, touch: 4}"


def pair(model_workspace: Path, name: str = "deleted") -> tuple[TargetModel, TargetModel]:
    return suspect_of(model_workspace, "model", "before"), suspect_of(model_workspace, name)


def deleted_by(model_workspace: Path, out: Path, *settings: str) -> Path:
    """Delete audio from the model in another way."""
    delete.run(
        load_params(None, [*TINY, *settings]), model_workspace / "data", model_workspace / "model", ["audio"], [], out
    )
    return out


def test_a_cut_shows_what_was_cut(model_workspace: Path) -> None:
    found = compare(*pair(model_workspace))
    assert found.guess == "audio"
    assert found.lost["audio"] == 1
    assert max(found.lost["text"], found.lost["visual"]) < 0.5
    assert all(".audio." in name for name in found.gone)
    assert found.cut == {
        "fusion.hidden.weight": 12,
        "modality.text.generator.hidden.weight": 12,
        "modality.visual.generator.hidden.weight": 12,
    }


def test_a_certified_deletion_moves_all_that_is_kept(model_workspace: Path, tmp_path: Path) -> None:
    deleted_by(model_workspace, tmp_path / "certified", "deletion.method=certified")
    found = compare(suspect_of(model_workspace, "model", "before"), suspect_of(tmp_path, "certified"))
    assert found.guess == "audio"
    assert found.beyond > 0.1
    assert "fusion.hidden.weight" in found.edited


def test_surgery_without_the_cut_is_seen_in_the_modality_it_edits(model_workspace: Path, tmp_path: Path) -> None:
    deleted_by(model_workspace, tmp_path / "edited", "deletion.surgery.cut=false")
    found = compare(suspect_of(model_workspace, "model", "before"), suspect_of(tmp_path, "edited"))
    assert found.guess == "audio"
    assert 0 < found.lost["audio"] < 1
    assert (found.gone, found.cut) == ((), {})


@pytest.mark.parametrize("features", [(), (FOUR,), ("features.source.synthetic.classes=3",)])
def test_an_exact_deletion_reveals_nothing_beyond_the_old_weights(tmp_path: Path, features: tuple[str, ...]) -> None:
    model_workspace = audited(tmp_path, *LATTICE, features=features, method="exact")
    before, after = pair(model_workspace)
    found = compare(before, after)
    assert (found.guess, found.beyond, found.edited, found.cut) == ("audio", 0.0, {}, {})
    assert found.kept == len(after.tensors)
    back = transplanted(before, after, "audio")
    assert all(np.array_equal(tensor, before.tensors[name]) for name, tensor in back.tensors.items())


def test_old_weights_put_back_are_the_old_pathway_on_the_new_trunk(model_workspace: Path) -> None:
    before, after = pair(model_workspace)
    rng = np.random.default_rng(0)
    moved = after.with_tensors(
        {name: x + np.asarray(rng.standard_normal(x.shape), x.dtype) for name, x in after.tensors.items()}
    )
    back = transplanted(before, moved, "audio")
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
    context = setting_of(model_workspace)
    adversaries = (pathway.attack, reconstruction.attack)
    back = diff.attack(before, after, context, adversaries)
    old, new = (
        [evidence for adversary in adversaries for evidence in adversary(target_model, context)]
        for target_model in (before, after)
    )
    assert {evidence.attack for evidence in back} == {"diff"}
    assert back[0].measure == "pathway: rows that move with audio, old weights put back"
    for put_back, was, left in zip(back, old, new, strict=True):
        # Only the fine-tuning of the trunk lies between them.
        assert abs(put_back.value - was.value) <= 0.25 * abs(was.value - left.value) + 0.05
    assert (back[0].value, new[0].value) == (1.0, 0.0)


def test_the_default_adversaries_stand_in_the_order_in_which_they_are_named(model_workspace: Path) -> None:
    before, after = pair(model_workspace)
    context = setting_of(model_workspace)
    alone = [evidence for adversary in diff.ADVERSARIES.values() for evidence in adversary(before, context)]
    assert [evidence.attack for evidence in alone] == [n for n in diff.ADVERSARIES for e in alone if e.attack == n]
    assert [evidence.measure for evidence in diff.attack(before, after, context)] == [
        f"{evidence.attack}: {evidence.measure}, old weights put back" for evidence in alone
    ]


def test_models_of_different_shape_are_no_lineage(model_workspace: Path, tmp_path: Path) -> None:
    other = audited(tmp_path, "model.joint.hidden=8")
    with pytest.raises(DataError, match="not of one lineage"):
        compare(suspect_of(model_workspace, "model", "before"), suspect_of(other, "deleted"))
