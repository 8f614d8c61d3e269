"""The white-box run reads the attribute off a model that takes m*, and not off one that does not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mbd.attacks import pathway, reconstruction, whitebox
from mbd.attacks.context import make_context
from mbd.features.contract import FeatureSet
from mbd.params import load_params
from mbd.params.deletion import AttacksSettings
from mbd.steps import features, train
from tests.attacks.models import (
    LATTICE,
    audited,
    blind_fusion,
    constant,
    context_of,
    difference,
    interval,
    noisy_input,
    renamed,
    target_of,
    uncut,
    untrained,
)

ATTACKS = (pathway.attack, whitebox.attack, whitebox.attack_outputs, reconstruction.attack)
VARIETY = {
    "two modalities": ((), ("features.source.synthetic.dims={text: 20, audio: 12}",), "surgery"),
    "four modalities": ((), ("features.source.synthetic.dims={text: 20, audio: 12, visual: 9, pose: 7}",), "surgery"),
    "classes": ((), ("features.source.synthetic.classes=3",), "surgery"),
    "lattice": (LATTICE, (), "exact"),
    "lattice of classes": (LATTICE, ("features.source.synthetic.classes=3",), "exact"),
}


def test_the_full_model_leaks_only_while_it_is_fed(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    full, reference = (
        whitebox.attack(target_of(model_workspace, name), attack_context) for name in ("model", "reference")
    )
    assert [evidence.measure for evidence in full] == ["accuracy_fed", "accuracy_not_fed"]
    fed, hidden = (difference(one, other, attack_context.params) for one, other in zip(full, reference, strict=True))
    assert fed.low > 0.05
    assert hidden.low <= 0 <= hidden.high


@pytest.mark.parametrize("made", [renamed, blind_fusion, noisy_input, uncut])
def test_a_deletion_that_is_none_leaks(
    model_workspace: Path, tmp_path: Path, made: Callable[[Path, Path], Path]
) -> None:
    made(model_workspace, tmp_path / "false")
    attack_context = context_of(model_workspace)
    found, beside = (
        whitebox.attack(target_model, attack_context)[0]
        for target_model in (target_of(tmp_path, "false"), target_of(model_workspace, "reference", "reference"))
    )
    assert difference(found, beside, attack_context.params).low > 0.03


@pytest.mark.parametrize("made", [untrained, constant])
def test_a_useless_model_passes_every_adversary(
    model_workspace: Path, tmp_path: Path, made: Callable[[Path, Path], Path]
) -> None:
    made(model_workspace, tmp_path / "useless")
    attack_context = context_of(model_workspace)
    for run in ATTACKS:
        found = run(target_of(tmp_path, "useless"), attack_context)
        beside = run(target_of(model_workspace, "reference", "reference"), attack_context)
        for one, other in zip(found, beside, strict=True):
            apart = difference(one, other, attack_context.params)
            assert apart.low <= 0.03, one.measure
            assert apart.high >= -0.03, one.measure


@pytest.mark.parametrize("kind", VARIETY)
def test_whatever_the_model_it_leaks_before_and_not_after(kind: str, tmp_path: Path) -> None:
    settings, data, method = VARIETY[kind]
    model_workspace = audited(tmp_path, *settings, features=data, method=method)
    attack_context = context_of(model_workspace)
    for run in ATTACKS:
        full, deleted, reference = (
            run(target_of(model_workspace, name), attack_context) for name in ("model", "deleted", "reference")
        )
        names = [evidence.measure for evidence in full]
        assert names == [e.measure for e in deleted] == [e.measure for e in reference]
        for one, other in zip(deleted, reference, strict=True):
            apart = difference(one, other, attack_context.params)
            assert apart.low <= 0 <= apart.high, one.measure
        if run in (pathway.attack, whitebox.attack):
            assert difference(full[0], reference[0], attack_context.params).low > 0.05


def test_the_same_attack_gives_the_same_evidence(model_workspace: Path) -> None:
    one, same = (whitebox.attack(target_of(model_workspace, "model"), context_of(model_workspace)) for _ in range(2))
    assert [evidence.rows.tolist() for evidence in one] == [evidence.rows.tolist() for evidence in same]


@pytest.mark.real_data
def test_real_models_leak_before_deletion(real_mosi: Path, tmp_path: Path) -> None:
    source = ("kind=npz", f"path={real_mosi}", "modalities=[text, audio, visual]")
    params = load_params(None, [*(f"features.source.{value}" for value in source), "training.epochs=3"])
    features.run(params, tmp_path / "data")
    train.run(params, tmp_path / "data", tmp_path / "model")
    train.run(params, tmp_path / "data", tmp_path / "reference", ("audio",))
    attack_context = make_context(FeatureSet.open(tmp_path / "data"), "audio", AttacksSettings())
    assert attack_context.attribute.origin == "principal component"
    for run in (pathway, whitebox):
        full, reference = (run.attack(target_of(tmp_path, name), attack_context)[0] for name in ("model", "reference"))
        assert difference(full, reference, attack_context.params).low > 0.1
        found = interval(reference, attack_context.params)
        assert found.low <= reference.chance <= found.high
