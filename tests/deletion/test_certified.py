"""Certified deletion: the noise is what the claim says, and nothing of the deleted modality gets past it."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest

from mbd.deletion.certified import cost, delete, fresh_start
from mbd.deletion.methods import DeletionOutcome, ModelBefore
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.model.checkpoint import load_model, save_model
from mbd.model.joint import from_tensors
from mbd.model.predictor import Model
from mbd.params import Params, load_params
from mbd.privacy.gaussian import delta_of, epsilon_by_paper, zcdp
from mbd.privacy.noise import NoiseKey, commit
from mbd.registry import BACKBONES
from mbd.tensors import Array
from mbd.training.joint import train_joint
from tests.features.build import synthetic_set
from tests.refusals import refused, refused_as_no_modality, refused_as_revoked
from tests.training.build import networks_alone

KEY, SALT = b"a key that only this test knows!", b"and some salt for its commitment"
AUDIO = DeletionTarget(modalities=("audio",))
SCALING = ("mean", "scale")
SMALL = [f"model.joint.{width}=16" for width in ("hidden", "embedding", "property_dim")]


def params(*settings: str) -> Params:
    return load_params(None, [*SMALL, "deletion.certified.finetune_epochs=2", *settings])


NO_TUNING = params("deletion.certified.finetune_epochs=0")


def key() -> NoiseKey:
    return NoiseKey(KEY, SALT)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> ModelBefore:
    data = FeatureSet.open(synthetic_set(tmp_path_factory.mktemp("certified") / "set"))
    work = tmp_path_factory.mktemp("work")
    trained = train_joint(data, params("training.epochs=3"), work=work, progress=False)
    return ModelBefore(trained.record, trained.tensors, data)


@pytest.fixture(scope="module")
def outcome(before: ModelBefore) -> DeletionOutcome:
    return delete(AUDIO, before, params(), key=key())


def same(one: DeletionOutcome, other: DeletionOutcome) -> bool:
    return all(np.array_equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def with_weights(before: ModelBefore, change: float) -> ModelBefore:
    weights = {
        name: tensor if name.endswith(SCALING) else (tensor * change).astype(np.float32)
        for name, tensor in before.tensors.items()
    }
    return replace(before, tensors=weights)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_sigma_achieves_what_is_claimed(before: ModelBefore, epsilon: float) -> None:
    settings = params(
        "deletion.certified.finetune_epochs=0", f"deletion.epsilon={epsilon}", "deletion.certified.radius=3"
    )
    outcome = delete(AUDIO, before, settings)
    facts, guarantee = outcome.facts, outcome.record.guarantee
    assert (guarantee.kind, guarantee.epsilon, guarantee.delta) == ("certified", epsilon, 1e-5)
    assert facts["sensitivity"]["value"] == 2 * facts["clip_radius"] == 6
    assert facts["delta_achieved"] == delta_of(epsilon, facts["sigma"], 6.0) <= 1e-5
    assert facts["epsilon_by_analytic"] <= epsilon
    assert facts["classical_sigma_is_proven"] == (epsilon <= 1)
    assert facts["rho"] == zcdp(facts["sigma"], 6.0)
    assert facts["rho"] == pytest.approx(cost(settings.deletion))
    assert facts["epsilon_by_paper"] == epsilon_by_paper(facts["rho"], 1e-5) > facts["epsilon_by_rdp"] > epsilon
    assert facts["information_bits_at_most"] == pytest.approx(9 / (2 * facts["sigma"] ** 2) / math.log(2))


def test_every_weight_that_saw_the_modality_is_noised_and_nothing_but_scaling_is_not(outcome: DeletionOutcome) -> None:
    exposed = {name for name, entry in outcome.record.tensors.items() if "audio" in entry.sees}
    assert set(outcome.indices) == set(outcome.tensors)
    assert all(np.array_equal(index, np.arange(outcome.tensors[n].size)) for n, index in outcome.indices.items())
    assert set(outcome.facts["tensors_without_noise"]) == set(outcome.tensors) - exposed
    assert set(outcome.facts["tensors_without_noise"]) == {
        f"modality.{m}.{part}" for m in ("text", "visual") for part in ("mean", "scale")
    } | {
        "label_mean",
        "label_scale",
    }
    assert outcome.facts["noised_parameters"] == sum(outcome.tensors[name].size for name in exposed)


def test_before_fine_tuning_the_weights_look_like_a_fresh_start(before: ModelBefore) -> None:
    outcome = delete(AUDIO, before, NO_TUNING, key=key())
    fitted = from_tensors(outcome.record, outcome.tensors).network.in_closed_form()
    learnt = {name: tensor for name, tensor in outcome.tensors.items() if name not in fitted}
    matrices = [tensor for tensor in learnt.values() if tensor.ndim == 2]
    normal = np.concatenate([(tensor * math.sqrt(3 * tensor.shape[1])).ravel() for tensor in matrices])
    assert kstest(normal, "norm").pvalue > 1e-3
    assert all(not tensor.any() for name, tensor in learnt.items() if name.endswith(".bias"))
    assert all(tensor.dtype == np.float32 for tensor in outcome.tensors.values())


@pytest.mark.parametrize("change", [-1.0, 0.0, 1e-3, 1e6])
def test_whatever_the_weights_were_the_noised_ones_move_by_no_more_than_2c(before: ModelBefore, change: float) -> None:
    one, other = (delete(AUDIO, m, NO_TUNING, key=key()) for m in (before, with_weights(before, change)))
    sigma = one.facts["sigma"]
    matrices = [name for name, tensor in one.tensors.items() if tensor.ndim == 2]
    moved = [
        (one.tensors[n].astype(float) - other.tensors[n]) * sigma * math.sqrt(3 * one.tensors[n].shape[1])
        for n in matrices
    ]
    apart = math.sqrt(sum(float((difference**2).sum()) for difference in moved))
    assert 0 < apart <= 2 * (1 + 1e-3)
    assert (apart > 1.5) == (change == -1)


def test_of_the_record_only_the_noised_weights_depend_on_the_old_ones(before: ModelBefore) -> None:
    records = [
        delete(AUDIO, model, NO_TUNING, key=key())
        for model in (before, with_weights(before, 0.0), with_weights(before, 1e6))
    ]
    assert records[0].facts == records[1].facts == records[2].facts
    assert records[0].record.guarantee == records[1].record.guarantee == records[2].record.guarantee
    assert records[0].record == records[1].record == records[2].record


def test_the_bytes_of_the_modality_are_not_needed(
    before: ModelBefore, outcome: DeletionOutcome, tmp_path: Path
) -> None:
    shutil.copytree(before.data.folder, tmp_path / "set")
    for file in (tmp_path / "set").rglob("audio.safetensors"):
        file.unlink()
    erased = replace(before, data=replace(before.data, folder=tmp_path / "set"))
    assert same(delete(AUDIO, erased, params(), key=key()), outcome)


def test_the_key_decides_and_a_fresh_one_is_drawn_each_time(before: ModelBefore, outcome: DeletionOutcome) -> None:
    assert same(delete(AUDIO, before, params(), key=key()), outcome)
    fresh = [delete(AUDIO, before, NO_TUNING) for _ in range(2)]
    assert not same(fresh[0], fresh[1])
    assert fresh[0].facts["noise"]["commitment"] != fresh[1].facts["noise"]["commitment"]


def test_the_key_is_destroyed_and_in_no_output(before: ModelBefore, tmp_path: Path) -> None:
    secret = key()
    outcome = delete(AUDIO, before, params(), key=secret)
    assert secret.destroyed
    assert outcome.facts["noise"]["commitment"] == commit(KEY, SALT)
    save_model(tmp_path, outcome.record, outcome.tensors)
    text = json.dumps([outcome.facts, outcome.record.guarantee.assumptions, outcome.phases.seconds])
    for content in (text.encode(), *(file.read_bytes() for file in tmp_path.iterdir())):
        for hidden in (KEY, SALT, KEY.hex().encode(), SALT.hex().encode()):
            assert hidden not in content
    assert outcome.facts["noise"]["key"] == "destroyed"


def test_a_key_in_escrow_is_said_to_be_there(before: ModelBefore, tmp_path: Path) -> None:
    escrow = tmp_path / "escrow.jsonl"
    settings = params("deletion.certified.finetune_epochs=0", f"deletion.certified.escrow={escrow}")
    outcome = delete(AUDIO, before, settings)
    kept = json.loads(escrow.read_text())
    assert outcome.facts["noise"]["commitment"] == commit(bytes.fromhex(kept["key"]), bytes.fromhex(kept["salt"]))
    assert outcome.facts["noise"]["key"] == "in escrow"
    assert "in escrow" in outcome.record.guarantee.assumptions[-1]
    again = NoiseKey(bytes.fromhex(kept["key"]), bytes.fromhex(kept["salt"]))
    assert same(delete(AUDIO, before, settings.model_copy(), key=again), outcome)


def test_noise_of_a_public_seed_can_be_drawn_again_and_so_guarantees_nothing(before: ModelBefore) -> None:
    settings = params("deletion.certified.finetune_epochs=0", "deletion.noise_seed=7")
    one, other = (delete(AUDIO, before, settings) for _ in range(2))
    assert same(one, other)
    other_seed = params("deletion.certified.finetune_epochs=0", "deletion.noise_seed=8")
    assert not same(one, delete(AUDIO, before, other_seed))
    guarantee = one.record.guarantee
    assert (guarantee.kind, guarantee.epsilon, guarantee.delta) == ("empirical", None, None)
    assert one.facts["noise"]["key"] == "public"


def test_the_model_takes_no_such_input_and_its_folder_is_valid(outcome: DeletionOutcome, tmp_path: Path) -> None:
    save_model(tmp_path, outcome.record, outcome.tensors)
    record, tensors = load_model(tmp_path)
    assert record.revoked == ("audio",)
    assert not any("audio" in file for file in record.data.files)
    assert any("text" in file for file in record.data.files)
    model = Model(record, from_tensors(record, tensors))
    rows = {m: np.zeros((2, dim), np.float32) for m, dim in record.modalities.items()}
    assert model.predict(rows).shape == (2,)
    with refused_as_revoked("audio"):
        model.predict({**rows, "audio": np.zeros((2, 6), np.float32)})


def test_the_linear_map_is_that_of_a_model_that_never_saw_the_modality(before: ModelBefore, tmp_path: Path) -> None:
    outcome = delete(AUDIO, before, NO_TUNING, key=key())
    retained = FeatureSet.open(before.data.folder, without=("audio",))
    reference = train_joint(retained, params("training.epochs=1"), work=tmp_path, progress=False)
    fitted = from_tensors(outcome.record, outcome.tensors).network.in_closed_form()
    assert "modality.text.beside.weight" in fitted
    for name in fitted:
        assert outcome.tensors[name].tobytes() == reference.tensors[name].tobytes(), name


def test_fine_tuning_brings_the_utility_back(before: ModelBefore) -> None:
    test = before.data.split("test")

    def error(outcome: DeletionOutcome) -> float:
        model = networks_alone(outcome.record, outcome.tensors)
        scores: Array = model.predict({m: test.features[m] for m in model.modalities})
        return float(np.abs(scores - test.labels).mean())

    tuned = delete(AUDIO, before, params("deletion.certified.finetune_epochs=20"), key=key())
    assert error(tuned) < 0.75 * error(delete(AUDIO, before, NO_TUNING, key=key()))
    assert len(tuned.facts["finetuning"]["history"]) == tuned.facts["finetuning"]["epochs"] == 20


def test_automatic_fine_tuning_stops_when_the_error_on_valid_rows_does(before: ModelBefore) -> None:
    settings = params("deletion.certified.finetune_epochs=auto", "training.epochs=60", "training.learning_rate=0.1")
    facts = delete(AUDIO, before, settings, key=key()).facts["finetuning"]
    errors = [row["valid_mae"] for row in facts["history"]]
    assert facts["asked"] == "auto"
    assert facts["epochs"] == len(errors) < 60
    assert int(np.argmin(errors)) == len(errors) - 1 - 5
    few = params("deletion.certified.finetune_epochs=auto", "training.epochs=3")
    assert delete(AUDIO, before, few, key=key()).facts["finetuning"]["epochs"] == 3


def test_without_a_number_the_backbone_says_how_long_fine_tuning_takes(before: ModelBefore) -> None:
    facts = delete(AUDIO, before, load_params(None, SMALL), key=key()).facts["finetuning"]
    assert (facts["asked"], facts["epochs"]) == (BACKBONES.get("joint").finetune_epochs, 5)
    assert BACKBONES.get("mbd.model.examples.late_fusion:LateFusion").finetune_epochs == "auto"


def test_deleting_again_and_deleting_two(before: ModelBefore) -> None:
    first = delete(AUDIO, before, NO_TUNING)
    second = delete(
        DeletionTarget(modalities=("visual",)), replace(before, record=first.record, tensors=first.tensors), params()
    )
    both = delete(DeletionTarget(modalities=("visual", "audio")), before, params())
    for outcome in (second, both):
        assert set(outcome.record.revoked) == {"audio", "visual"}
        assert list(outcome.record.modalities) == ["text"]
        assert {n: t.shape for n, t in outcome.tensors.items()} == {n: t.shape for n, t in both.tensors.items()}
        assert "audio" in outcome.record.guarantee.assumptions[0]
        assert "visual" in outcome.record.guarantee.assumptions[0]


@pytest.mark.parametrize("epochs", [0, 1])
def test_scaling_is_fitted_again_to_the_retained_data(before: ModelBefore, epochs: int) -> None:
    scaling = ["label_mean", "label_scale", *(f"modality.{m}.{part}" for m in ("text", "visual") for part in SCALING)]
    moved = {**before.tensors, **{name: before.tensors[name] + 5 for name in scaling}}
    settings = params(f"deletion.certified.finetune_epochs={epochs}")
    outcome = delete(AUDIO, replace(before, tensors=moved), settings)
    assert all(np.array_equal(outcome.tensors[name], before.tensors[name]) for name in scaling)


def test_what_saw_a_modality_that_was_revoked_earlier_is_noised_too(before: ModelBefore) -> None:
    earlier = before.record.model_copy(update={"revoked": ("smell",)})
    entries = {n: e.model_copy(update={"sees": (*e.sees, "smell")}) for n, e in earlier.tensors.items()}
    outcome = delete(AUDIO, replace(before, record=earlier.model_copy(update={"tensors": entries})), NO_TUNING)
    assert outcome.facts["tensors_without_noise"] == []
    assert outcome.facts["noised_parameters"] == sum(tensor.size for tensor in outcome.tensors.values())


def test_a_fresh_start_has_the_spread_of_training_and_no_bias(before: ModelBefore) -> None:
    fresh = fresh_start(before.record, {"w": np.ones((2, 3)), "b": np.ones(2)}, 2.0, 0)
    assert fresh["w"] == pytest.approx(np.full((2, 3), 1 / 6))
    assert not fresh["b"].any()


def test_what_cannot_be_done_is_refused(before: ModelBefore) -> None:
    with refused_as_no_modality("smell"):
        delete(DeletionTarget(modalities=("smell",)), before, params())
    uncut = replace(before, record=before.record.model_copy(update={"revoked": ("visual",)}))
    with refused(UsageError, key="deletion.method"):
        delete(AUDIO, uncut, params())
    name = "head.weight"
    broken = replace(before, tensors={**before.tensors, name: np.full_like(before.tensors[name], np.nan)})
    with refused(DataError, key=name):
        delete(AUDIO, broken, params())
