"""All three methods on modules of one's own: by a cut that probing found, with noise, and by replacement."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from mbd.deletion import certified, exact, surgery
from mbd.deletion.cut import cut
from mbd.deletion.methods import DeletionOutcome, ModelBefore
from mbd.deletion.module import ONLY_INPUTS
from mbd.deletion.surgery import _under_all_names
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.formats.features import Shape
from mbd.formats.model import ModuleSpec
from mbd.model.contract import Architecture
from mbd.model.joint import to_tensor_dict
from mbd.model.module import architecture_of, from_plain, from_tensors, own_values, to_plain, zero_dead
from mbd.model.predictor import Model
from mbd.params import Params, load_params
from mbd.training.module import train_module
from mbd.training.trained import Trained
from tests.features.build import synthetic_set
from tests.model.modules import MIXED, FixedVectors, Perception
from tests.refusals import refused

MODULES = {
    "late fusion": ("mbd.model.examples.late_fusion:LateFusion", "model.options={hidden: 8}"),
    "tensor fusion": ("mbd.model.examples.tensor_fusion:TensorFusion", "model.options={code: 2, hidden: 8}"),
    "transformer": (
        "mbd.model.examples.crossmodal:CrossModalTransformer",
        "model.options={width: 8, heads: 2, layers: 1}",
    ),
    "batch norm, weight norm": ("tests.model.modules:Concatenation", "model.options={hidden: 8}"),
    "fixed shape": (
        "tests.model.modules:FixedVectors",
        "model.branches={audio: [encoders.audio], visual: [encoders.visual]}",
    ),
}
AUDIO = DeletionTarget(modalities=("audio",))
FINE = "deletion.surgery.mantissa_bits=15"
"""rounding that hardly moves a prediction"""
CUT_ALONE = "deletion.surgery.budget=1e-9"
"""a budget of less than one weight"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_set(tmp_path_factory.mktemp("module") / "data")


def params_of(name: str, *settings: str) -> Params:
    backbone, options = MODULES[name]
    loop = ("training.epochs=2", "training.optimiser=adamw", "training.learning_rate=0.01")
    return load_params(None, [f"model.backbone={backbone}", options, *loop, *settings])


def trained_on(data: Path, name: str, *without: str) -> Trained:
    feature_set = FeatureSet.open(data, without=without)
    return train_module(feature_set, params_of(name), work=data / "none", progress=False)


_TRAINED: dict[tuple[str, ...], Trained] = {}


@pytest.fixture
def before(data: Path, request: pytest.FixtureRequest) -> ModelBefore:
    name = str(request.param)
    if (name,) not in _TRAINED:
        _TRAINED[(name,)] = trained_on(data, name)
    trained = _TRAINED[(name,)]
    return ModelBefore(trained.record, trained.tensors, FeatureSet.open(data))


every_module = pytest.mark.parametrize(("before", "name"), [(name, name) for name in MODULES], indirect=["before"])
late_fusion = pytest.mark.parametrize("before", ["late fusion"], indirect=True)


def model_of(outcome: DeletionOutcome) -> Model:
    return Model(outcome.record, from_tensors(outcome.record, outcome.tensors))


def predictions(outcome: DeletionOutcome, data: FeatureSet) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    rows = data.split("test").load()
    names = outcome.record.inputs
    return model_of(outcome).predict({m: rows.features[m] for m in names}, {m: rows.available[m] for m in names})


@every_module
def test_surgery_gives_the_shapes_of_the_reference_and_the_predictions_without_the_modality(
    before: ModelBefore, name: str, data: Path
) -> None:
    outcome = surgery.delete(AUDIO, before, params_of(name, FINE, CUT_ALONE))
    reference = trained_on(data, name, "audio")
    assert {n: t.shape for n, t in outcome.tensors.items()} == {n: t.shape for n, t in reference.tensors.items()}
    assert outcome.record.spec == reference.record.spec
    assert outcome.record.revoked == ("audio",)
    assert not [n for n, entry in outcome.record.tensors.items() if entry.belongs_to == "audio"]
    assert all(not outcome.tensors[n].ravel()[positions].any() for n, positions in outcome.indices.items())
    if outcome.facts["cut"]["recomputed_statistics"]:
        return  # predictions change with them
    old = Model(before.record, from_tensors(before.record, before.tensors))
    rows = before.data.split("test").load()
    retained = {m: rows.features[m] for m in ("text", "visual")}
    there = {m: rows.available[m] for m in retained}
    assert np.allclose(predictions(outcome, before.data), old.predict(retained, there), atol=1e-3)


@every_module
def test_salient_weights_are_edited_as_far_as_the_loss_allows(before: ModelBefore, name: str) -> None:
    outcome = surgery.delete(AUDIO, before, params_of(name, FINE))
    found = outcome.facts["selection"]
    assert 0 < found["salient"] <= found["parameters"]
    assert found["chosen"] <= found["limit"] <= 0.03 * found["parameters"]
    assert found["chosen"] <= sum(len(positions) for positions in outcome.indices.values())
    assert all(not outcome.tensors[n].ravel()[positions].any() for n, positions in outcome.indices.items())
    alone = surgery.delete(AUDIO, before, params_of(name, FINE, CUT_ALONE))
    assert alone.facts["selection"]["chosen"] == 0
    assert outcome.rounding
    assert alone.rounding
    assert outcome.rounding.loss <= 1.001 * alone.rounding.loss


def test_a_tied_weight_is_edited_under_all_its_names() -> None:
    positions = {"words.weight": np.array([3])}
    assert _under_all_names(positions, Perception(MIXED, 1)).keys() == {"words.weight", "mixing.weight"}


@every_module
def test_exact_releases_the_bytes_of_training_without_the_modality(before: ModelBefore, name: str, data: Path) -> None:
    outcome = exact.delete(AUDIO, before, params_of(name))
    reference = trained_on(data, name, "audio")
    assert all(np.array_equal(tensor, outcome.tensors[n]) for n, tensor in reference.tensors.items())
    assert outcome.record.tensors == reference.record.tensors
    assert not [n for n, entry in outcome.record.tensors.items() if "audio" in entry.sees]
    assert outcome.record.guarantee.kind == "exact"


@every_module
def test_certified_leaves_a_model_that_predicts_without_the_modality(
    before: ModelBefore, name: str, tmp_path: Path
) -> None:
    settings = (f"deletion.ledgers={tmp_path}", "deletion.certified.finetune_epochs=2")
    outcome = certified.delete(AUDIO, before, params_of(name, *settings))
    assert outcome.record.guarantee.epsilon == 1.0
    assert np.isfinite(predictions(outcome, before.data)).all()
    floating = {n for n, t in before.tensors.items() if np.issubdtype(t.dtype, np.floating)}
    # What the cut of a fixed shape has set to zero needs no noise.
    assert not [n for n in outcome.facts["tensors_without_noise"] if n in floating and outcome.tensors[n].any()]
    same = [n for n, t in outcome.tensors.items() if n in floating and t.any() and np.array_equal(t, before.tensors[n])]
    assert not same


@pytest.mark.parametrize("before", ["batch norm, weight norm"], indirect=True)
def test_statistics_are_computed_from_retained_data(before: ModelBefore) -> None:
    outcome = surgery.delete(AUDIO, before, params_of("batch norm, weight norm", FINE))
    calibration = before.data.split("calibration").load()
    expected = calibration.features["text"][calibration.available["text"]].mean(0)
    assert np.allclose(outcome.tensors["norms.text.running_mean"], expected, atol=1e-4)


@late_fusion
def test_a_given_reference_is_released_without_training(before: ModelBefore, data: Path) -> None:
    reference = trained_on(data, "late fusion", "audio")
    given = ModelBefore(before.record, before.tensors, before.data, (reference.record, reference.tensors))
    outcome = exact.delete(AUDIO, given, params_of("late fusion"))
    assert outcome.facts == {"replaced_by": "the reference"}
    assert "train" not in outcome.phases.seconds
    with refused(DataError, key="--reference"):
        exact.delete(
            AUDIO,
            ModelBefore(before.record, before.tensors, before.data, (before.record, before.tensors)),
            params_of("late fusion"),
        )


@late_fusion
def test_modalities_can_go_one_after_the_other_or_both_at_once(before: ModelBefore) -> None:
    one, weights = cut(before.record, before.tensors, ["audio"])
    after, both = cut(before.record, before.tensors, ["visual", "audio"]), cut(one, weights, ["visual"])
    assert {n: t.tolist() for n, t in after[1].items()} == {n: t.tolist() for n, t in both[1].items()}
    assert list(both[0].modalities) == ["text"]


def test_a_fixed_shape_without_branches_is_warned_about(data: Path) -> None:
    params = load_params(None, ["model.backbone=tests.foreign_modules:EarlyFusion", "training.epochs=1"])
    trained = train_module(FeatureSet.open(data), params, work=data / "none", progress=False)
    outcome = surgery.delete(AUDIO, ModelBefore(trained.record, trained.tensors, FeatureSet.open(data)), params)
    warning = ONLY_INPUTS.format(modality="audio")
    assert outcome.facts["cut"]["warnings"] == [warning]
    assert outcome.record.guarantee.assumptions[0] == warning
    assert "audio" in ModuleSpec.model_validate(outcome.record.spec).shapes


def test_a_fixed_shape_whose_branches_can_be_found_is_refused_until_they_are_named(data: Path) -> None:
    params = load_params(None, ["model.backbone=tests.model.modules:FixedVectors", "training.epochs=1"])
    trained = train_module(FeatureSet.open(data), params, work=data / "none", progress=False)
    with refused(UsageError, key="model.branches.audio", hint="model.branches.audio=[encoders.audio]"):
        surgery.delete(AUDIO, ModelBefore(trained.record, trained.tensors, FeatureSet.open(data)), params)


@pytest.mark.parametrize("first", [[], ["audio"]])
def test_layers_that_two_modalities_share_do_not_stay_when_both_are_gone(data: Path, first: list[str]) -> None:
    params = load_params(None, ["model.backbone=tests.model.modules:Nonverbal", "training.epochs=1", CUT_ALONE])
    trained = train_module(FeatureSet.open(data), params, work=data / "none", progress=False)
    before = ModelBefore(trained.record, trained.tensors, FeatureSet.open(data))
    if first:
        outcome = surgery.delete(DeletionTarget(modalities=tuple(first)), before, params)
        before = ModelBefore(outcome.record, outcome.tensors, FeatureSet.open(data, without=tuple(first)))
    rest = tuple(m for m in ("audio", "visual") if m not in first)
    with refused(UsageError, key="model.branches.audio") as refusal:
        surgery.delete(DeletionTarget(modalities=rest), before, params)
    assert "nonverbal" in str(refusal.value)
    own = own_values(trained.record, trained.tensors, ("audio", "visual"), proposed=True)
    assert own["nonverbal.2.weight"].size == trained.tensors["nonverbal.2.weight"].size


@late_fusion
def test_surgery_without_the_cut_is_refused(before: ModelBefore) -> None:
    with refused(DataError, key="audio", file=None):
        surgery.delete(AUDIO, before, params_of("late fusion", "deletion.surgery.cut=false"))


class WeightNormed(FixedVectors):
    """Of fixed shape, with weight norm on both layers of each encoder."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
        super().__init__(modalities, outputs)
        for encoder in self.encoders.values():
            encoder[0] = nn.utils.parametrizations.weight_norm(encoder[0])  # type: ignore[index,operator]


@pytest.mark.parametrize("branches", ["", "model.branches={audio: [encoders.audio]}"])
def test_a_weight_norm_of_fixed_shape_holds_the_zeros_of_what_was_never_trained(data: Path, branches: str) -> None:
    backbone = "model.backbone=tests.deletion.test_module:WeightNormed"
    params = load_params(None, [backbone, "training.epochs=1", *filter(None, [branches])])
    trained = train_module(FeatureSet.open(data, without=("audio",)), params, work=data / "none", progress=False)
    architecture = architecture_of(trained.record)
    plain = to_plain(architecture, trained.tensors)
    assert not plain["encoders.audio.0.weight"].any()
    assert plain["encoders.text.0.weight"].any()
    assert all(np.isfinite(tensor).all() for tensor in trained.tensors.values())
    again = to_plain(architecture, from_plain(architecture, plain))
    assert all(np.allclose(again[name], tensor, atol=1e-6) for name, tensor in plain.items())


class Product(nn.Module):
    """A weight as the product of two factors."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left @ right

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        left, sizes, right = torch.linalg.svd(weight, full_matrices=False)
        return left * sizes, right


class Doubled(nn.Module):
    """A weight that cannot be set."""

    def forward(self, half: Tensor) -> Tensor:
        return 2 * half


class Parametrised(FixedVectors):
    """Of fixed shape, with a parametrised weight in each encoder."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, by: str) -> None:
        super().__init__(modalities, outputs, width=3)
        for encoder in self.encoders.values():
            register_parametrization(encoder[0], "weight", {"product": Product, "doubled": Doubled}[by]())  # type: ignore[index]


def test_other_parametrisations_hold_the_zeros_of_a_cut_or_are_refused() -> None:
    shapes = {m: Shape.vector(4) for m in ("text", "audio", "visual")}
    for by in ("product", "doubled"):
        architecture = Architecture(Parametrised, shapes, 1, {"by": by}, {"audio": ["encoders.audio"]})
        tensors = to_tensor_dict(architecture.build())
        if by == "doubled":
            with refused(UsageError, key="encoders.text.0.weight"):
                zero_dead(architecture, tensors, ["audio"])
            continue
        cut, before = (to_plain(architecture, x) for x in (zero_dead(architecture, tensors, ["audio"]), tensors))
        assert not cut["encoders.audio.0.weight"].any()
        assert np.allclose(cut["encoders.text.0.weight"], before["encoders.text.0.weight"], atol=1e-6)
