"""Relearning: what a layer reveals is learnt from enough rows, and noise teaches nothing."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from mbd.attacks import relearn
from mbd.attacks.attack import AttackEvidence
from mbd.attacks.bootstrap import balanced_hits
from mbd.attacks.context import AttackContext
from mbd.attacks.extraction import Extraction
from mbd.attacks.relearn import few_shot, kernels
from mbd.attacks.target_model import TargetModel
from mbd.features.rows import Rows
from mbd.tensors import Array
from tests.attacks.models import (
    LATTICE,
    audited,
    blind_fusion,
    constant,
    context_of,
    difference,
    interval,
    target_of,
    untrained,
)


def thinking(model_workspace: Path, places: dict[str, Array]) -> TargetModel:
    """A target model with these activations, whatever it is fed."""

    class Thinking(TargetModel):
        def extract(self, rows: Rows, modality: str, *, fed: bool) -> Extraction:
            del modality, fed
            return Extraction((), np.zeros((len(rows), 1, 1)), places)

    plain = target_of(model_workspace, "model")
    return Thinking(plain.role, plain.record, plain.backbone, plain.tensors)


def by_name(found: list[AttackEvidence]) -> dict[str, float]:
    return {evidence.measure: evidence.value for evidence in found}


@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
def test_a_planted_attribute_is_relearnt_as_well_as_it_can_be_predicted(model_workspace: Path, strength: float) -> None:
    attack_context = context_of(model_workspace)
    sides = 2.0 * attack_context.attribute.values - 1
    noise = np.random.default_rng(0).standard_normal((len(sides), 6))
    noise[:, 0] += strength * sides
    found = by_name(relearn.attack(thinking(model_workspace, {"place": noise}), attack_context))
    shown = [found[f"accuracy_{k}"] for k in (8, 32, 128)]
    assert shown[2] == pytest.approx(norm.cdf(strength), abs=0.06)
    assert shown[0] < shown[2] + 0.02


def test_a_place_that_holds_the_modality_brings_it_back(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    found = by_name(relearn.attack(thinking(model_workspace, {"place": attack_context.own}), attack_context))
    assert found["r2_8"] < found["r2_32"]
    assert found["r2_128"] > 0.95


@pytest.mark.slow
def test_noise_covers_chance(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace, resamples=200, relearn_rows=(16, 64))
    rng = np.random.default_rng(0)
    covered: dict[str, list[bool]] = {}
    for _ in range(200):
        places = {name: rng.standard_normal((len(attack_context.rows), 5)) for name in ("one", "other")}
        for evidence in relearn.attack(thinking(model_workspace, places), attack_context):
            if evidence.chance == 0.5:
                found = interval(evidence, attack_context.params)
                covered.setdefault(evidence.measure, []).append(found.low <= 0.5 <= found.high)
            else:
                assert evidence.value < 0.02
    assert len(covered) == 2
    assert all(0.9 <= np.mean(hits) <= 0.995 for hits in covered.values()), covered


def test_the_full_model_is_relearnt_and_what_is_left_of_it_is_not(model_workspace: Path, tmp_path: Path) -> None:
    attack_context = context_of(model_workspace)
    reference = relearn.attack(target_of(model_workspace, "reference", "reference"), attack_context)

    def surely_above(folder: Path) -> float:
        found = relearn.attack(target_of(folder.parent, folder.name), attack_context)
        return max(
            difference(one, other, attack_context.params).low for one, other in zip(found, reference, strict=True)
        )

    assert surely_above(model_workspace / "model") > 0.1
    for folder in (
        untrained(model_workspace, tmp_path / "untrained"),
        constant(model_workspace, tmp_path / "constant"),
        model_workspace / "deleted",
    ):
        assert surely_above(folder) <= attack_context.params.tolerance


def test_weights_that_are_only_cut_off_from_the_output_are_where_relearning_starts(
    model_workspace: Path, tmp_path: Path
) -> None:
    attack_context = context_of(model_workspace)
    found, reference = (
        by_name(relearn.attack(target_model, attack_context))
        for target_model in (
            target_of(tmp_path, blind_fusion(model_workspace, tmp_path / "blind").name),
            target_of(model_workspace, "reference"),
        )
    )
    measure = "r2_128"
    assert found[measure] > reference[measure] + 0.1


def test_a_model_that_says_the_same_of_all_rows_teaches_nothing(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    n = len(attack_context.rows)
    places: dict[str, Array] = {"place": np.full((n, 4), np.float32(0.1)), "silent": np.zeros((n, 3))}
    for evidence in relearn.attack(thinking(model_workspace, places), attack_context):
        assert evidence.value == evidence.chance


def test_rows_of_one_class_teach_nothing(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace, relearn_rows=(8,))
    attack_context.attribute.values[attack_context.fit] = 0
    noise = np.random.default_rng(0).standard_normal((len(attack_context.rows), 6))
    found = by_name(relearn.attack(thinking(model_workspace, {"place": noise}), attack_context))
    assert found["accuracy_8"] == 0.5


def test_few_rows_give_few_shots(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace, relearn_rows=(8, 4000, 5000))
    names = [evidence.measure for evidence in relearn.attack(target_of(model_workspace, "reference"), attack_context)]
    n = len(attack_context.fit)
    assert names == [
        "accuracy_8",
        "r2_8",
        f"accuracy_{n}",
        f"r2_{n}",
    ]


def test_kernels_are_those_of_centred_places(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    rng = np.random.default_rng(0)
    places = [5 + 10**scale * rng.standard_normal((len(attack_context.rows), 7)) for scale in (-1, 2)]
    chosen = np.stack([rng.permutation(len(attack_context.fit))[:9] for _ in range(2)])
    ((kernel, across),) = kernels(places, attack_context.fit, attack_context.score, [chosen])
    for draw in range(2):
        expected, expected_across = np.zeros((9, 9)), np.zeros((len(attack_context.score), 9))
        for place in places:
            known = place[attack_context.fit[chosen[draw]]]
            centred, other = known - known.mean(0), place[attack_context.score] - known.mean(0)
            unit = 9 / (centred**2).sum() / len(places)
            expected += unit * centred @ centred.T
            expected_across += unit * other @ centred.T
        assert kernel[draw] == pytest.approx(expected, abs=1e-4)
        assert across[draw] == pytest.approx(expected_across, abs=1e-4)


def test_few_shot_is_ridge_with_the_strength_of_least_leave_one_out_error() -> None:
    rng = np.random.default_rng(0)
    x, new, y = rng.standard_normal((20, 5)), rng.standard_normal((4, 5)), rng.standard_normal((20, 2))
    y[:, 0] += x[:, 0]
    kernel, across = x @ x.T, new @ x.T
    errors = []
    for strength in relearn._STRENGTHS:
        left_out = [
            y[i] - kernel[i, rest] @ np.linalg.solve(kernel[np.ix_(rest, rest)] + strength * np.eye(19), y[rest])
            for i in range(20)
            for rest in [np.delete(np.arange(20), i)]
        ]
        errors.append(np.mean(np.square(left_out)))
    strength = relearn._STRENGTHS[int(np.argmin(errors))]
    expected = across @ np.linalg.solve(kernel + strength * np.eye(20), y)
    assert few_shot(kernel[None], across[None], y[None])[0][0] == pytest.approx(expected)


def test_hits_count_the_same_for_both_sides() -> None:
    rows = np.array([[1, 1.0], [1, 1.0], [1, 1.0], [-1, 0.5]])
    weights = np.array([[1.0, 1, 1, 1], [2, 0, 0, 1], [1, 1, 1, 0]])
    assert balanced_hits(rows, weights)[:2].tolist() == [0.75, 0.75]
    assert np.isnan(balanced_hits(rows, weights)[2])


def measured(attack_context: AttackContext, target_model: TargetModel) -> list[float]:
    return [evidence.value for evidence in relearn.attack(target_model, attack_context)]


def test_lattices_and_classes(tmp_path: Path) -> None:
    model_workspace = audited(tmp_path, *LATTICE, features=("features.source.synthetic.classes=3",), method="exact")
    attack_context = context_of(model_workspace)
    full, left, reference = (
        measured(attack_context, target_of(model_workspace, m)) for m in ("model", "deleted", "reference")
    )
    assert max(np.subtract(full, reference)) > 0.1
    assert left == reference
