"""Membership of m*: planted memories are found at the rate they were planted, and nothing else counts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mbd.attacks import membership
from mbd.attacks.attack import AttackEvidence
from mbd.attacks.context import AttackContext
from mbd.attacks.membership import Population, population
from mbd.attacks.target_model import TargetModel
from mbd.evaluation.ridge import fit_ridge
from mbd.features.rows import Rows
from mbd.params import load_params
from mbd.steps import features, train
from mbd.tensors import Array
from tests.attacks.models import LATTICE, audited, constant, context_of, difference, interval, target_of, untrained
from tests.features.build import write_npz

OVERFITTED = ("model.joint.hidden=64", "training.epochs=30")
WIDE = "features.source.synthetic.dims={text: 96, audio: 12, visual: 64}"


class Answering:
    """A backbone with given answers."""

    def __init__(self, answer: Callable[[Mapping[str, Array]], Array]) -> None:
        self.predict_from = answer

    def predict(self, given: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
        del available
        return self.predict_from(given)


def answering(model_workspace: Path, answer: Callable[[Mapping[str, Array]], Array]) -> TargetModel:
    """A target model with the inputs of the full model and given answers, and no reconstruction."""
    return TargetModel("before", target_of(model_workspace, "model").record, Answering(answer), {})


def offering(
    model_workspace: Path, offer: Callable[[Rows], Array], answer: Callable[[Mapping[str, Array]], Array]
) -> TargetModel:
    """A target model with a given reconstruction of m*."""

    class Offering(TargetModel):
        def reconstruct(self, rows: Rows, modality: str) -> dict[str, Array]:
            del modality
            return {"generator": offer(rows)}

    plain = answering(model_workspace, answer)
    return Offering(plain.role, plain.record, plain.backbone, {})


def silent(given: Mapping[str, Array]) -> Array:
    return np.zeros(len(given["text"]))


def by_name(found: list[AttackEvidence]) -> dict[str, AttackEvidence]:
    return {evidence.measure: evidence for evidence in found}


def remembered(people: Population, share: float) -> Array:
    """Which rows a memory of this share of the members holds."""
    held: Array = people.member & (np.random.default_rng(1).random(len(people.rows)) < share)
    return held


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_members_that_a_generator_remembers_are_found_at_their_share(model_workspace: Path, share: float) -> None:
    attack_context = context_of(model_workspace)
    people = population(attack_context)
    truth, held = people.rows.features["audio"], remembered(people, share)
    noise = np.random.default_rng(2).standard_normal(truth.shape) * truth.std(0) + truth.mean(0)

    def offer(rows: Rows) -> Array:
        assert rows is people.rows
        return np.where(held[:, None], truth, noise)

    found = by_name(membership.attack(offering(model_workspace, offer, silent), attack_context))
    caught = share + (1 - share) / 2
    assert found["auc_reconstruction"].value == pytest.approx(caught, abs=0.07)
    assert found["auc_loss"].value == 0.5
    assert found["tpr_all"].value == pytest.approx(share, abs=0.1)


def test_pairs_that_a_model_answers_by_heart_are_found_at_their_share(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    people = population(attack_context)
    held = remembered(people, 0.5)
    pairs = [people.rows.features[m][held] for m in ("text", "audio")]
    memory = {text.tobytes() + audio.tobytes(): i for i, (text, audio) in enumerate(zip(*pairs, strict=True))}
    answers = np.append(people.surprise[held, 0], 0)

    def answer(given: Mapping[str, Array]) -> Array:
        keys = [t.tobytes() + a.tobytes() for t, a in zip(given["text"], given["audio"], strict=True)]
        return answers[[memory.get(key, -1) for key in keys]]

    found = by_name(membership.attack(answering(model_workspace, answer), attack_context))
    assert found["auc_loss"].value == pytest.approx(0.75, abs=0.05)
    assert found["auc_output_alone"].value == 0.5
    assert found["auc_all"].value == pytest.approx(0.75, abs=0.05)


def test_a_memory_of_rows_by_another_modality_is_no_memory_of_audio(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    people = population(attack_context)
    memory = {
        text.tobytes(): label
        for text, label, member in zip(people.rows.features["text"], people.rows.labels, people.member, strict=True)
        if member
    }

    def answer(given: Mapping[str, Array]) -> Array:
        return np.array([memory.get(text.tobytes(), 0.0) for text in given["text"]])

    assert all(
        evidence.value in (0.0, 0.5)
        for evidence in membership.attack(answering(model_workspace, answer), attack_context)
    )


@pytest.mark.slow
def test_noise_covers_chance(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace, resamples=200)
    rng = np.random.default_rng(0)

    def offer(rows: Rows) -> Array:
        n, d = rows.features["audio"].shape
        return rng.standard_normal((n, d))

    def answer(given: Mapping[str, Array]) -> Array:
        return rng.standard_normal(len(given["text"]))

    target_model, covered = offering(model_workspace, offer, answer), dict[str, list[bool]]()
    for _ in range(200):
        for evidence in membership.attack(target_model, attack_context):
            if evidence.chance == 0.5:
                found = interval(evidence, attack_context.params)
                covered.setdefault(evidence.measure, []).append(found.low <= 0.5 <= found.high)
    assert len(covered) == 4
    assert all(0.9 <= np.mean(hits) <= 0.995 for hits in covered.values()), covered


def test_untrained_and_constant_models_leak_no_more_than_the_reference(model_workspace: Path, tmp_path: Path) -> None:
    attack_context = context_of(model_workspace)
    reference = membership.attack(target_of(model_workspace, "reference", "reference"), attack_context)
    for folder in (
        untrained(model_workspace, tmp_path / "untrained"),
        constant(model_workspace, tmp_path / "constant"),
        model_workspace / "deleted",
    ):
        found = membership.attack(target_of(folder.parent, folder.name), attack_context)
        assert [evidence.measure for evidence in found] == [evidence.measure for evidence in reference]
        for one, other in zip(found, reference, strict=True):
            assert difference(one, other, attack_context.params).low <= attack_context.params.tolerance


def above(model_workspace: Path, attack_context: AttackContext, measure: str) -> float:
    """By how much the full model surely exceeds the reference."""
    one, other = (
        by_name(membership.attack(target_of(model_workspace, m), attack_context))[measure]
        for m in ("model", "reference")
    )
    return difference(one, other, attack_context.params).low


def test_an_overfitted_model_leaks_clearly_more_than_the_reference(tmp_path: Path) -> None:
    model_workspace = audited(tmp_path, *OVERFITTED, features=(WIDE,))
    assert above(model_workspace, context_of(model_workspace), "auc_reconstruction") > 0.03


@pytest.mark.real_data
def test_a_model_of_real_text_leaks_clearly_more_than_the_reference(real_mosi: Path, tmp_path: Path) -> None:
    with np.load(real_mosi, allow_pickle=False) as file:
        arrays = {
            f"{split}_{name}": file[f"{split}_{key}"]
            for split in ("train", "valid", "test")
            for name, key in [("ids", "ids"), ("labels", "labels"), ("text", "text_lsa"), ("audio", "audio")]
        }
    path = write_npz(tmp_path / "mosi.npz", arrays)
    source = ["features.source.kind=npz", f"features.source.path={path}"]
    params = load_params(None, [*source, "training.threads=1", "model.joint.hidden=128"])
    features.run(params, tmp_path / "data")
    train.run(params, tmp_path / "data", tmp_path / "model")
    train.run(params, tmp_path / "data", tmp_path / "reference", ("text",))
    assert above(tmp_path, context_of(tmp_path, "text"), "auc_loss") > 0.03


class TestOtherModels:
    """Lattices, classes, and two or four modalities."""

    CASES: ClassVar = {
        "lattice": (LATTICE, ()),
        "lattice of classes": (LATTICE, ("features.source.synthetic.classes=3",)),
        "joint of classes": ((), ("features.source.synthetic.classes=3",)),
        "two modalities": ((), ("features.source.synthetic.dims={text: 12, audio: 6}",)),
        "four modalities": ((), ("features.source.synthetic.dims={text: 12, audio: 6, visual: 8, touch: 4}",)),
    }

    @pytest.mark.parametrize("kind", CASES)
    def test_full_models_and_references_are_measured_alike(self, kind: str, tmp_path: Path) -> None:
        settings, made_of = self.CASES[kind]
        method = "exact" if settings else "surgery"
        model_workspace = audited(tmp_path, *settings, "training.epochs=2", features=made_of, method=method)
        attack_context = context_of(model_workspace, resamples=100)
        full, reference = (
            membership.attack(target_of(model_workspace, m), attack_context) for m in ("model", "reference")
        )
        for one, other in zip(full, reference, strict=True):
            assert np.isfinite(difference(one, other, attack_context.params).value)
        assert np.ptp(by_name(full)["auc_loss"].rows[:, 1]) > 0
        assert np.ptp(by_name(reference)["auc_loss"].rows[:, 1]) == 0


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_an_expectation_is_as_in_double_precision_also_where_hardly_anything_is_shrunk(noise: float) -> None:
    rng = np.random.default_rng(0)
    scales = 10.0 ** -np.linspace(0, 4, 90)
    inputs = (rng.standard_normal((120, 90)) * scales) @ rng.standard_normal((90, 90))
    targets = inputs @ rng.standard_normal((90, 2)) + noise * rng.standard_normal((120, 2))
    fit = np.arange(120) < 80
    expected = fit_ridge(inputs[fit], targets[fit]).predict(inputs)
    assert membership._predicted(inputs, targets, fit) == pytest.approx(expected, rel=0, abs=2e-5 * expected.std())
