"""Rounding of what a surgery releases: as coarse as the calibration loss allows, and nothing left below."""

from pathlib import Path

import numpy as np
import pytest

from mbd.deletion import surgery
from mbd.deletion.methods import DeletionOutcome
from mbd.formats.deletion import DeletionTarget
from mbd.formats.predicate import MOST_BITS
from mbd.params import load_params
from mbd.tensors import within_mantissa
from tests.deletion.models import home_with_models, model_before


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_models(tmp_path_factory.mktemp("home"), "training.epochs=6")


def deleted(model_workspace: Path, *settings: str) -> DeletionOutcome:
    return surgery.delete(
        DeletionTarget(modalities=("audio",)), model_before(model_workspace), load_params(None, settings)
    )


def test_every_released_number_is_rounded_and_the_loss_hardly_moves(model_workspace: Path) -> None:
    outcome = deleted(model_workspace)
    rounding = outcome.rounding
    assert rounding
    assert 3 <= rounding.mantissa_bits <= MOST_BITS
    assert rounding.loss_rounded <= 1.001 * rounding.loss
    assert (rounding.rows, rounding.chosen_by) == (64, "the loss on the calibration rows")
    assert all(within_mantissa(tensor, rounding.mantissa_bits) for tensor in outcome.tensors.values())
    assert not all(within_mantissa(tensor, rounding.mantissa_bits - 1) for tensor in outcome.tensors.values())


def test_fewer_bits_than_were_chosen_cost_more(model_workspace: Path) -> None:
    chosen = deleted(model_workspace).rounding
    assert chosen
    if chosen.mantissa_bits > 3:
        fewer = deleted(model_workspace, f"deletion.surgery.mantissa_bits={chosen.mantissa_bits - 1}").rounding
        assert fewer
        assert fewer.loss_rounded > 1.001 * fewer.loss
        assert fewer.chosen_by == "deletion.surgery.mantissa_bits"


def test_what_was_hidden_in_low_bits_is_gone(model_workspace: Path) -> None:
    """A dishonest training step writes secret bits below the precision that utility needs: the release has none."""
    before = model_before(model_workspace)
    draw = np.random.default_rng(0)
    tensors = {}
    for name, tensor in before.tensors.items():
        raw = np.array(tensor, np.float32).view(np.uint32)
        secret = draw.integers(0, 256, raw.shape, np.uint32)
        tensors[name] = ((raw & ~np.uint32(0xFF)) | secret).view(np.float32) if tensor.dtype == np.float32 else tensor
    hidden = type(before)(before.record, tensors, before.data)
    outcome = surgery.delete(DeletionTarget(modalities=("audio",)), hidden, load_params(None, []))
    clean = {name: np.array(tensor, np.float32).view(np.uint32) & 0xFF for name, tensor in outcome.tensors.items()}
    assert not any(bits.any() for bits in clean.values())


def test_the_same_deletion_rounds_the_same(model_workspace: Path) -> None:
    one, other = deleted(model_workspace), deleted(model_workspace)
    assert one.rounding == other.rounding
    assert all(np.array_equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def test_a_study_without_the_cut_is_not_rounded(model_workspace: Path) -> None:
    assert deleted(model_workspace, "deletion.surgery.cut=false").rounding is None
