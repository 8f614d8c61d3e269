"""Surgery in all its variants: what is edited, what is said, and what is never claimed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.deletion.methods import DeletionOutcome, ModelBefore
from mbd.deletion.surgery import delete, edit
from mbd.errors import UsageError
from mbd.formats.deletion import DeletionTarget
from mbd.model.checkpoint import save_model
from mbd.model.joint import from_tensors
from mbd.model.predictor import Model
from mbd.params import load_params
from mbd.params.deletion import DeletionSettings, SurgerySettings
from mbd.privacy.gaussian import analytic_sigma, classical_sigma
from mbd.privacy.noise import NoiseKey
from mbd.tensors import Array
from tests.deletion.models import home_with_models, model_before
from tests.evaluation.models import tiny_model
from tests.refusals import refused_as_revoked

AS_PRINTED = ("cut=false", "order=importance", "threshold=absolute", "saliency_threshold=0.001")
MOST_SALIENT = ("cut=false", "saliency_quantile=0")
AUDIO = DeletionTarget(modalities=("audio",))


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_models(tmp_path_factory.mktemp("home"), "training.epochs=10")


def operated(
    model_workspace: Path, *settings: str, request: DeletionTarget = AUDIO, key: NoiseKey | None = None
) -> DeletionOutcome:
    params = load_params(None, [s if s.startswith("deletion.") else f"deletion.surgery.{s}" for s in settings])
    return delete(request, model_before(model_workspace), params, key=key)


def changed(before: dict[str, Array], outcome: DeletionOutcome) -> dict[str, list[int]]:
    differs = {name: np.flatnonzero(before[name] != tensor).tolist() for name, tensor in outcome.tensors.items()}
    return {name: positions for name, positions in differs.items() if positions}


def test_by_default_the_cut_takes_all_that_is_salient_and_nothing_is_left_to_edit(model_workspace: Path) -> None:
    outcome, reference = operated(model_workspace), model_before(model_workspace, "silent")
    assert {n: t.shape for n, t in outcome.tensors.items()} == {n: t.shape for n, t in reference.tensors.items()}
    assert (outcome.record.revoked, outcome.indices) == (("audio",), {})
    facts = outcome.facts
    assert (facts["selection"]["salient"], facts["selection"]["chosen"]) == (0, 0)
    assert "no remaining parameter" in facts["selection"]["note"]
    assert facts["variant"] == "with the structural cut"


@pytest.mark.parametrize("edit_kind", ["zero", "noise"])
@pytest.mark.parametrize("order", ["importance", "saliency"])
def test_edits_touch_exactly_the_listed_positions(model_workspace: Path, order: str, edit_kind: str) -> None:
    outcome = operated(model_workspace, "cut=false", f"order={order}", f"edit={edit_kind}")
    before = dict(model_before(model_workspace).tensors)
    listed = {name: positions.tolist() for name, positions in outcome.indices.items()}
    assert changed(before, outcome) == listed
    total = sum(
        tensor.size
        for name, tensor in before.items()
        if not name.endswith((".mean", ".scale")) and not name.startswith("label_")
    )
    selection = outcome.facts["selection"]
    assert selection["parameters"] == total
    assert 0 < selection["chosen"] == sum(map(len, listed.values())) <= int(0.03 * total)
    assert selection["by_tensor"] == {name: len(positions) for name, positions in listed.items()}
    if edit_kind == "zero":
        assert all(
            (tensor.ravel()[listed[name]] == 0).all() for name, tensor in outcome.tensors.items() if name in listed
        )


def test_as_printed_takes_the_least_important_and_says_what_will_become_of_it(model_workspace: Path) -> None:
    printed, salient = operated(model_workspace, *AS_PRINTED), operated(model_workspace, *MOST_SALIENT)
    assert printed.facts["selection"]["chosen"] == salient.facts["selection"]["chosen"]
    assert printed.facts["variant"] == "as printed in the paper; the gate will refuse it"
    assert salient.facts["variant"] == "without the structural cut; the gate will refuse it"
    assert printed.facts["selection"]["share_of_energy"] < salient.facts["selection"]["share_of_energy"]
    assert printed.facts["selection"]["share_of_saliency"] < salient.facts["selection"]["share_of_saliency"]
    assert printed.facts["selection"]["saliency_threshold"] == 0.001


def generated_audio(model_workspace: Path, tensors: Mapping[str, Array]) -> Array:
    model = model_before(model_workspace)
    test = model.data.split("test").load()
    return from_tensors(model.record, tensors).reconstruct(test.features, test.available)["audio"]


def test_zeroing_the_most_salient_moves_the_reconstruction_and_as_printed_hardly_does(model_workspace: Path) -> None:
    before = generated_audio(model_workspace, model_before(model_workspace).tensors)
    printed, salient = (
        float(((generated_audio(model_workspace, operated(model_workspace, *variant).tensors) - before) ** 2).mean())
        for variant in (AS_PRINTED, MOST_SALIENT)
    )
    assert salient > 20 * printed


def test_without_the_cut_the_modality_stays_built_in_but_is_refused(model_workspace: Path, tmp_path: Path) -> None:
    outcome = operated(model_workspace, *AS_PRINTED)
    assert tuple(outcome.record.modalities) == ("text", "audio", "visual")
    assert tuple(outcome.record.inputs) == ("text", "visual")
    model = Model(outcome.record, from_tensors(outcome.record, outcome.tensors))
    test = model_before(model_workspace).data.split("test").load()
    with refused_as_revoked("audio"):
        model.predict(test.features)
    assert np.isfinite(model.predict({m: test.features[m] for m in model.modalities})).all()


def test_noise_is_that_of_the_key_at_the_papers_sigma(model_workspace: Path) -> None:
    key, again = (NoiseKey(bytes(range(32)), bytes(32)) for _ in range(2))
    commitment = key.commitment
    outcome = operated(model_workspace, "cut=false", "edit=noise", "deletion.epsilon=2", key=key)
    facts, before = outcome.facts["edit"], model_before(model_workspace).tensors
    assert key.destroyed
    assert facts["noise"]["commitment"] == commitment
    chosen = [before[name].ravel()[p].astype(np.float64) for name, p in outcome.indices.items()]
    sensitivity = 2 * float(np.sqrt(sum(values @ values for values in chosen)))
    assert facts["sensitivity"]["value"] == pytest.approx(sensitivity, rel=1e-12)
    assert facts["sigma"] == pytest.approx(classical_sigma(2, 1e-5, sensitivity))
    assert facts["analytic_sigma"] == pytest.approx(analytic_sigma(2, 1e-5, sensitivity))
    for name, positions in outcome.indices.items():
        noise = outcome.tensors[name].ravel()[positions] - before[name].ravel()[positions]
        expected = facts["sigma"] * again.gaussian(name, positions.shape)
        assert noise == pytest.approx(expected, rel=1e-4, abs=1e-4)


def numbers_called(value: Any, key: str) -> list[object]:
    if isinstance(value, dict):
        own = [v for k, v in value.items() if k == key]
        return own + [found for v in value.values() for found in numbers_called(v, key)]
    return []


@pytest.mark.parametrize("variant", [(), AS_PRINTED, ("cut=false", "edit=noise"), (*AS_PRINTED, "edit=noise")])
def test_no_variant_claims_an_epsilon(model_workspace: Path, variant: tuple[str, ...]) -> None:
    outcome = operated(model_workspace, *variant)
    guarantee = outcome.record.guarantee
    assert (guarantee.kind, guarantee.epsilon, guarantee.delta) == ("empirical", None, None)
    assert not numbers_called(dict(outcome.facts), "epsilon")
    assert any("no ε is claimed" in sentence for sentence in outcome.record.guarantee.assumptions)
    json.dumps(outcome.facts, allow_nan=False)


def test_the_same_deletion_gives_the_same_facts_and_bytes(model_workspace: Path, tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        outcome = operated(model_workspace, "cut=false")
        (tmp_path / name).mkdir()
        digests.append((save_model(tmp_path / name, outcome.record, outcome.tensors).sha256, json.dumps(outcome.facts)))
    assert digests[0] == digests[1]


@pytest.mark.parametrize("variant", [("mantissa_bits=12",), ("cut=false",)])
def test_several_at_once_and_again_later(model_workspace: Path, variant: tuple[str, ...]) -> None:
    both = operated(model_workspace, *variant, request=DeletionTarget(modalities=("visual", "audio")))
    assert both.record.revoked == ("audio", "visual")
    assert tuple(both.record.inputs) == ("text",)
    first = operated(model_workspace, *variant)
    params = load_params(None, [f"deletion.surgery.{s}" for s in variant])
    second = delete(
        DeletionTarget(modalities=("visual",)),
        ModelBefore(first.record, first.tensors, model_before(model_workspace).data),
        params,
    )
    assert second.record.revoked == ("audio", "visual")
    assert tuple(second.record.inputs) == ("text",)
    if "cut=false" not in variant:
        assert all(np.array_equal(both.tensors[name], tensor) for name, tensor in second.tensors.items())
    else:
        assert all(name.startswith("modality.visual.") for name in second.indices)


def test_the_importance_is_a_choice(model_workspace: Path) -> None:
    settings = ("cut=false", "order=importance", "saliency_quantile=0.2")
    one, other = (operated(model_workspace, *settings, f"importance={kind}") for kind in ("swiftprune", "gauss_newton"))
    assert (one.facts["selection"]["importance"], other.facts["selection"]["importance"]) == (
        "swiftprune",
        "gauss_newton",
    )
    assert {n: p.tolist() for n, p in one.indices.items()} != {n: p.tolist() for n, p in other.indices.items()}


def test_the_calibration_rows_that_were_used_are_recorded(model_workspace: Path) -> None:
    facts = operated(model_workspace).facts["calibration"]
    assert facts == {"requested": 5000, "rows": 64, "rows_with_modality": {"audio": 64}, "at_least_2000": False}


def test_a_model_without_generators_can_be_cut_but_not_operated_on(model_workspace: Path, tmp_path: Path) -> None:
    tiny_model(model_workspace / "data", tmp_path / "model", "model.joint.reconstruction=false")
    (tmp_path / "data").symlink_to(model_workspace / "data")
    assert operated(tmp_path).indices == {}
    with pytest.raises(UsageError, match="surgery has nothing to edit"):
        operated(tmp_path, "cut=false")


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**16), kind=st.sampled_from(["zero", "noise"]), share=st.floats(0, 1))
def test_an_edit_changes_what_is_listed_and_nothing_else(seed: int, kind: str, share: float) -> None:
    rng = np.random.default_rng(seed)
    tensors: dict[str, Array] = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("a", (4, 5)), ("b", (9,)))}
    tensors["b"].setflags(write=False)
    indices = {name: np.flatnonzero(rng.random(tensor.size) < share) for name, tensor in tensors.items()}
    indices = {name: positions for name, positions in indices.items() if len(positions)}
    before = {name: tensor.copy() for name, tensor in tensors.items()}
    after, _ = edit(tensors, indices, DeletionSettings(surgery=SurgerySettings.model_validate({"edit": kind})))
    for name, tensor in after.items():
        expected = np.zeros(tensor.size, bool)
        expected[indices.get(name, [])] = True
        assert np.array_equal((tensor != before[name]).ravel(), expected)
        assert tensor.dtype == np.float32
        assert np.array_equal(tensors[name], before[name])
