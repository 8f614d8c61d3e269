"""A deleted modality is plugged in again: what a deletion left behind its input comes back, and nothing else does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from mbd.attacks import reattach
from mbd.attacks.attack import AttackEvidence
from mbd.attacks.audit_input import open_audit
from mbd.attacks.context import AttackContext, make_context
from mbd.attacks.invariants import invariants
from mbd.attacks.reattach import advantage
from mbd.attacks.target_model import TargetModel, open_target
from mbd.features.contract import FeatureSet
from mbd.model.checkpoint import load_model
from mbd.model.contract import Architecture
from mbd.model.module import architecture_of, attach_modality, zero_dead
from mbd.params.deletion import AttacksSettings
from mbd.tensors import Array, is_float
from tests.attacks.gate_table import FixedShape
from tests.attacks.models import LATTICE, audited, context_of, difference, interval, target_of
from tests.foreign_modules import FOREIGN

PARAMS = AttacksSettings(resamples=200, relearn_rows=(8, 32))


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> FixedShape:
    """Low-rank fusion, of which nothing but audio's input is dead unless branches are named."""
    return FixedShape(tmp_path_factory.mktemp("fixed"), FOREIGN["low-rank fusion"], named=False)


@pytest.fixture(scope="module")
def attack_context(fixed: FixedShape) -> AttackContext:
    return make_context(FeatureSet.open(fixed.folder / "data"), "audio", PARAMS)


def attacked(fixed: FixedShape, folder: Path, attack_context: AttackContext) -> list[AttackEvidence]:
    shapes = FeatureSet.open(fixed.folder / "data").shapes
    return reattach.attack(open_target(folder, "after", shapes), attack_context)


def test_what_lies_behind_a_closed_input_comes_back_from_few_rows(
    fixed: FixedShape, attack_context: AttackContext
) -> None:
    reference = attacked(fixed, fixed.folder / "reference", attack_context)
    closed = attacked(fixed, fixed.closed(()), attack_context)
    for again, never in ((closed[0], reference[0]), (closed[-1], reference[-1])):
        assert again.measure in ("label_8", "attribute_8")
        assert difference(again, never, PARAMS).low > PARAMS.tolerance
        assert interval(again, PARAMS).low > PARAMS.tolerance


@pytest.mark.slow
def test_a_reference_of_another_seed_is_no_easier_to_teach(fixed: FixedShape, attack_context: AttackContext) -> None:
    reference = attacked(fixed, fixed.folder / "reference", attack_context)
    for other, own in zip(attacked(fixed, fixed.retrained(7), attack_context), reference, strict=True):
        assert difference(other, own, PARAMS).low < PARAMS.tolerance or interval(other, PARAMS).low < PARAMS.tolerance


def test_the_gate_refuses_a_model_that_is_unchanged_but_for_its_record(fixed: FixedShape) -> None:
    record = fixed.audit(fixed.mixed(1.0))
    assert record.decision == "refused"
    assert {"reattach", "blackbox", "relearn"} <= {reason.partition(".")[0] for reason in record.reasons}


@pytest.mark.parametrize("scale", [1.0, 1e-4, 0.25, np.nan])
def test_what_lies_behind_a_closed_input_is_found_however_it_is_scaled(fixed: FixedShape, scale: float) -> None:
    record = load_model(fixed.folder / "model")[0]
    named = replace(architecture_of(record), branches={"audio": fixed.module.branches})

    def scaled(old: dict[str, Array], _: dict[str, Array]) -> dict[str, Array]:
        cut = zero_dead(named, old, ["audio"])
        return {n: np.where(x != cut[n], scale * x, x) if is_float(x) else x for n, x in old.items()}

    whole = fixed.pretending("scaled", scaled)
    audit = open_audit(fixed.folder / "data", None, whole, fixed.folder / "reference", ("audio",))
    assert "cut" in [found.name for found in invariants(audit) if found.decision == "refused"]


@pytest.mark.parametrize("method", ["exact", "surgery"])
def test_nothing_lies_behind_the_input_of_a_model_that_was_cut_or_replaced(tmp_path: Path, method: str) -> None:
    fixed = FixedShape(tmp_path, FOREIGN["low-rank fusion"])
    audit = open_audit(
        fixed.folder / "data", fixed.folder / "model", fixed.deleted(method), fixed.folder / "reference", ("audio",)
    )
    assert not [found.name for found in invariants(audit) if found.decision == "refused"]


def test_a_model_that_shrinks_is_plugged_in_by_fresh_weights(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace, relearn_rows=(32,))
    before, after = (reattach.attack(target_of(model_workspace, name), attack_context) for name in ("model", "deleted"))
    assert np.isfinite([evidence.value for evidence in after]).all()
    assert after[0].value < before[0].value


def test_a_model_that_cannot_be_trained_further_gets_a_map_beside_it(tmp_path: Path) -> None:
    audited(tmp_path, *LATTICE, method="exact")
    attack_context = context_of(tmp_path, relearn_rows=(32,))
    deleted, reference = (
        reattach.attack(target_of(tmp_path, name), attack_context) for name in ("deleted", "reference")
    )
    assert [e.value for e in deleted] == [e.value for e in reference]


def test_what_was_zeroed_is_fresh_though_no_branch_is_named(fixed: FixedShape) -> None:
    def zeroed(old: dict[str, Array], _: dict[str, Array]) -> dict[str, Array]:
        return old | {"audio_net.layers.0.weight": np.zeros_like(old["audio_net.layers.0.weight"])}

    folder = fixed.pretending("zeroed", zeroed)
    (record, tensors), sample = load_model(folder), np.zeros((2, 24), np.float32)
    shapes = FeatureSet.open(fixed.folder / "data").shapes
    attachment = attach_modality(record, tensors, "audio", shapes, sample)
    assert attachment
    assert attachment.fresh["audio_net.layers.0.weight"].all()
    assert not any(mask.any() for name, mask in attachment.fresh.items() if name != "audio_net.layers.0.weight")


def test_the_factory_is_called_once_for_all_draws(
    fixed: FixedShape, attack_context: AttackContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked(fixed, fixed.folder / "reference", attack_context)  # what is remembered of the architecture is
    made, whole = list[int](), Architecture._made

    def counted(architecture: Architecture, seed: int) -> nn.Module:
        made.append(seed)
        return whole(architecture, seed)

    monkeypatch.setattr(Architecture, "_made", counted)
    attacked(fixed, fixed.folder / "reference", attack_context)
    assert len(made) == 1


def test_the_same_attack_gives_the_same_bytes(fixed: FixedShape, attack_context: AttackContext) -> None:
    first, second = (attacked(fixed, fixed.folder / "reference", attack_context) for _ in range(2))
    assert all(np.array_equal(a.rows, b.rows) for a, b in zip(first, second, strict=True))


def test_the_advantage_is_the_difference_of_mean_correlations_over_draws() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 50))
    b += a
    columns = np.zeros((100, 2, 3, 2))
    columns[:50, 0, :, 0] = columns[50:, 0, :, 1] = np.column_stack([a * b, a * a, b * b])
    columns[:, 1, 2] = 1  # a map that adds nothing
    wanted = a @ b / np.sqrt((a @ a) * (b @ b))
    assert advantage(columns.reshape(100, -1), np.ones((1, 100))) == pytest.approx([wanted])


def test_a_target_model_keeps_the_shapes_of_the_data_when_it_is_rounded(fixed: FixedShape) -> None:
    shapes = FeatureSet.open(fixed.folder / "data").shapes
    opened = open_target(fixed.folder / "reference", "reference", shapes)
    assert isinstance(opened, TargetModel)
    assert "audio" not in opened.record.modalities
    assert list(opened.with_tensors(opened.tensors).inputs) == list(opened.inputs) == ["text", "audio", "visual"]
