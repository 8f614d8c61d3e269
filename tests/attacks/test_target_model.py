"""What is seen of a model under attack: masks, outputs, activations, and by which inputs m* gets in."""

from pathlib import Path

import numpy as np
import pytest

from mbd.attacks.extraction import Feeding
from mbd.attacks.target_model import TargetModel
from mbd.formats.features import Shape
from mbd.model.predictor import load
from tests.attacks.models import LATTICE, audited, context_of, renamed, target_of, uncut
from tests.evaluation.models import tiny_model
from tests.training.build import joint_data


def test_outputs_are_the_predictions_under_every_mask(model_workspace: Path) -> None:
    rows = context_of(model_workspace).rows
    seen = target_of(model_workspace, "model").extract(rows, "audio", fed=True)
    assert seen.masks == ((), ("text",), ("visual",), ("text", "visual"))
    model = load(model_workspace / "model")
    for place, mask in enumerate(seen.masks):
        expected = model.predict({m: rows.features[m] for m in (*mask, "audio")})
        assert seen.outputs[:, place, 0] == pytest.approx(expected, abs=1e-5)
    assert seen.complete == pytest.approx(model.predict(rows.features)[:, None], abs=1e-5)
    hidden = target_of(model_workspace, "model").extract(rows, "audio", fed=False)
    assert hidden.masks == (("text",), ("visual",), ("text", "visual"))


def test_every_layer_is_heard_with_what_it_says(model_workspace: Path) -> None:
    rows, target_model = context_of(model_workspace).rows, target_of(model_workspace, "model")
    seen = target_model.extract(rows, "audio", fed=True).activations
    layers = {name.removesuffix(".weight") for name in target_model.tensors if name.endswith(".weight")}
    assert set(seen) == layers
    head = seen["fusion.out"] @ target_model.tensors["head.weight"].T + target_model.tensors["head.bias"]
    assert seen["head"] == pytest.approx(head, abs=1e-4)
    assert (seen["fusion.hidden"] >= 0).all()
    assert target_model.backbone.network.fusion.hidden._forward_hooks == {}  # type: ignore[attr-defined]


def test_a_model_without_the_modality_cannot_be_fed_it(model_workspace: Path) -> None:
    rows, reference = context_of(model_workspace).rows, target_of(model_workspace, "reference", "reference")
    assert reference.entries(rows, "audio") == ()
    assert reference.extract(rows, "audio", fed=True) is reference.extract(rows, "audio", fed=False)
    assert reference.reconstruct(rows, "audio") == {}


def test_what_was_revoked_but_not_cut_is_fed_whatever_the_record_says(model_workspace: Path, tmp_path: Path) -> None:
    uncut(model_workspace, tmp_path / "uncut")
    rows, target_model = context_of(model_workspace).rows, target_of(tmp_path, "uncut")
    assert target_model.entries(rows, "audio") == ("audio",)
    fed, hidden = (target_model.extract(rows, "audio", fed=fed).complete for fed in (True, False))
    assert np.abs(fed - hidden).max() > 0.01


def test_another_name_does_not_hide_an_input(model_workspace: Path, tmp_path: Path) -> None:
    renamed(model_workspace, tmp_path / "renamed")
    rows, hidden = context_of(model_workspace).rows, target_of(tmp_path, "renamed")
    assert hidden.entries(rows, "audio") == ("voice",)
    open_one = target_of(model_workspace, "model").extract(rows, "audio", fed=True)
    assert hidden.extract(rows, "audio", fed=True).outputs == pytest.approx(open_one.outputs, abs=1e-6)
    offered = hidden.reconstruct(rows, "audio")
    assert offered["generator"] == pytest.approx(
        target_of(model_workspace, "model").reconstruct(rows, "audio")["generator"]
    )


def test_rows_are_extracted_once(model_workspace: Path) -> None:
    rows, target_model = context_of(model_workspace).rows, target_of(model_workspace, "model")
    assert target_model.extract(rows, "audio", fed=True) is target_model.extract(rows, "audio", fed=True)
    assert target_model.look(rows, "audio", fed=True) is not target_model.extract(rows, "audio", fed=True)


def test_other_weights_give_another_model(model_workspace: Path) -> None:
    rows, target_model = context_of(model_workspace).rows, target_of(model_workspace, "model")
    pruned = target_model.with_tensors({name: x if x.ndim < 2 else 0 * x for name, x in target_model.tensors.items()})
    assert isinstance(pruned, TargetModel)
    assert (pruned.role, pruned.record) == (target_model.role, target_model.record)
    assert np.ptp(pruned.extract(rows, "audio", fed=True).outputs) < np.ptp(
        target_model.extract(rows, "audio", fed=True).outputs
    )


def test_a_broken_model_says_nothing(model_workspace: Path) -> None:
    rows, target_model = context_of(model_workspace).rows, target_of(model_workspace, "model")
    broken = target_model.with_tensors({name: np.full_like(x, np.nan) for name, x in target_model.tensors.items()})
    assert not broken.extract(rows, "audio", fed=True).outputs.any()


@pytest.mark.parametrize("classes", [0, 3])
def test_a_row_is_given_what_it_has_and_never_nothing(tmp_path: Path, classes: int) -> None:
    joint_data(tmp_path / "data", classes=classes, missing=0.3)
    tiny_model(tmp_path / "data", tmp_path / "model")
    rows = context_of(tmp_path, splits=("train", "test")).rows
    seen = target_of(tmp_path, "model").extract(rows, "audio", fed=False)
    assert seen.outputs.shape == (len(rows), 3, max(classes, 1))
    only_text = ~rows.available["visual"]
    assert 0 < only_text.sum() < len(rows)
    assert seen.outputs[only_text, 1] == pytest.approx(seen.outputs[only_text, 2], abs=1e-5)
    if classes:
        assert np.exp(seen.outputs).sum(2) == pytest.approx(1, abs=1e-3)


def test_every_part_of_a_lattice_is_seen(tmp_path: Path) -> None:
    model_workspace = audited(tmp_path, *LATTICE, method="exact")
    rows, target_model = context_of(model_workspace).rows, target_of(model_workspace, "model")
    fed, hidden = (target_model.extract(rows, "audio", fed=fed).activations for fed in (True, False))
    assert {"projection.audio", "module.audio+text.kernel", "module.audio+text.scores"} <= set(fed) - set(hidden)
    deleted = target_of(model_workspace, "deleted").extract(rows, "audio", fed=True)
    assert deleted.activations.keys() == hidden.keys()
    assert all((deleted.activations[name] == x).all() for name, x in hidden.items())


def test_of_many_masks_a_sample_is_taken_with_single_modalities_and_everything() -> None:
    names = tuple(f"m{number}" for number in range(11))
    feeding = Feeding({m: Shape.vector(2) for m in names}, names, (), "gone")
    masks = feeding.masks()
    assert masks == feeding.masks()
    assert len(set(masks)) == len(masks) <= 64
    assert set(masks[:11]) == {(m,) for m in names}
    assert masks[-1] == names


def test_models_of_the_same_bytes_have_the_same_digest_and_no_others(tmp_path: Path) -> None:
    folder = audited(tmp_path, *LATTICE, method="exact")
    before, after, reference = (target_of(folder, name) for name in ("model", "deleted", "reference"))
    assert after.digest == reference.digest != before.digest
    name = next(name for name, x in after.tensors.items() if x.dtype == np.float32 and x.ndim == 2)
    moved = np.array(after.tensors[name])
    moved[0, 0] += 1e-6
    assert after.with_tensors({**after.tensors, name: moved}).digest != after.digest
    assert target_of(folder, "model").digest == before.digest
    refusing = before.record.model_copy(update={"revoked": ("audio",)})
    assert TargetModel.of("after", refusing, before.tensors).digest != before.digest
