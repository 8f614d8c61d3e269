"""What the files must show, and which lies are seen through."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.attacks.audit_input import open_audit
from mbd.attacks.invariants import fingerprint, invariants
from mbd.model.checkpoint import load_model, save_model
from mbd.params import load_params
from mbd.steps import delete, train
from tests.attacks import defective_models, models
from tests.evaluation.models import TINY


def judged(model_workspace: Path, after: Path) -> dict[str, str]:
    audit = open_audit(
        model_workspace / "data", model_workspace / "model", after, model_workspace / "reference", ["audio"]
    )
    return {found.name: found.decision for found in invariants(audit)}


@pytest.fixture(scope="module")
def certified(model_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certified deletion from the model of `home`."""
    folder = tmp_path_factory.mktemp("certified")
    ledgers = f"deletion.ledgers={folder / 'ledgers'}"
    params = load_params(None, [*TINY, "deletion.method=certified", "deletion.certified.finetune_epochs=1", ledgers])
    delete.run(params, model_workspace / "data", model_workspace / "model", ["audio"], [], folder / "deleted")
    return folder / "deleted"


@pytest.fixture(scope="module")
def exact(model_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data with a lattice, its exact deletion, and the reference."""
    folder = tmp_path_factory.mktemp("exact")
    (folder / "data").symlink_to(model_workspace / "data")
    params = load_params(None, [*models.LATTICE, "deletion.method=exact"])
    train.run(params, folder / "data", folder / "model")
    train.run(params, folder / "data", folder / "reference", ("audio",))
    delete.run(params, folder / "data", folder / "model", ["audio"], [], folder / "deleted")
    return folder


def test_every_method_keeps_its_promises(model_workspace: Path, certified: Path, exact: Path) -> None:
    common = ["input", "cut", "shape", "content", "record"]
    assert judged(model_workspace, model_workspace / "deleted") == dict.fromkeys(common, "passed")
    assert judged(model_workspace, certified) == dict.fromkeys([*common, "certified"], "passed")
    assert judged(exact, exact / "deleted") == dict.fromkeys([*common, "exact"], "passed")


def test_noise_that_anyone_can_subtract_is_refused_and_no_budget_is_charged_for_it(
    model_workspace: Path, tmp_path: Path
) -> None:
    ledgers = f"deletion.ledgers={tmp_path / 'ledgers'}"
    settings = ["deletion.method=certified", "deletion.certified.finetune_epochs=1", "deletion.noise_seed=0", ledgers]
    params = load_params(None, [*TINY, *settings])
    delete.run(params, model_workspace / "data", model_workspace / "model", ["audio"], [], tmp_path / "deleted")
    decisions = judged(model_workspace, tmp_path / "deleted")
    assert [name for name, decision in decisions.items() if decision != "passed"] == ["noise"]
    assert not (tmp_path / "ledgers").exists()


def test_a_released_exact_model_still_has_to_be_the_reference(exact: Path, tmp_path: Path) -> None:
    shutil.copytree(exact / "deleted", tmp_path / "released", ignore=shutil.ignore_patterns("deletion.json"))
    audit = open_audit(exact / "data", None, tmp_path / "released", exact / "reference", ["audio"])
    assert {found.name: found.decision for found in invariants(audit)}["exact"] == "passed"
    record, tensors = load_model(tmp_path / "released")
    name = min(tensors)
    (tmp_path / "changed").mkdir()
    save_model(tmp_path / "changed", record, {**tensors, name: np.asarray(tensors[name]) + 1})
    audit = open_audit(exact / "data", None, tmp_path / "changed", exact / "reference", ["audio"])
    assert {found.name: found.decision for found in invariants(audit)}["exact"] == "refused"


def test_a_model_that_claims_nothing_is_judged_by_what_it_is(model_workspace: Path) -> None:
    found = judged(model_workspace, model_workspace / "reference")
    assert found == {**dict.fromkeys(["input", "cut", "shape", "content"], "passed"), "record": "informational"}


@pytest.mark.parametrize(
    ("make", "refused"),
    [
        (models.uncut, {"cut", "shape", "content"}),
        (models.blind_fusion, {"cut", "shape", "content"}),
        (models.noisy_input, {"cut", "shape", "content"}),
        (models.renamed, {"input", "shape", "content"}),
        (defective_models.forged, {"shape", "content"}),
        (defective_models.smuggled, {"content", "record"}),
        (defective_models.retouched, {"record"}),
        (models.untrained, set()),
        (models.constant, set()),
    ],
)
def test_lies_are_seen_through(
    model_workspace: Path, tmp_path: Path, make: Callable[[Path, Path], Path], refused: set[str]
) -> None:
    found = judged(model_workspace, make(model_workspace, tmp_path / "evil"))
    assert {name for name, decision in found.items() if decision == "refused"} == refused


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("facts", "sigma"), 0.1),
        (("facts", "rho"), 0.0),
        (("facts", "clip_radius"), 2.0),
        (("facts", "sensitivity"), {"value": 1.0, "reason": "half of it"}),
        (("parameters", "epsilon"), 0.5),
        (("parameters", "certified", "radius"), 3.0),
        (("budget",), None),
        (("budget", "rho_after"), 0.0),
        (("budget", "epsilon_after"), 0.0),
        (("budget", "limit"), 0.5),
        (("facts", "tensors_without_noise"), ["head.weight"]),
    ],
)
def test_numbers_that_do_not_follow_from_each_other_are_refused(
    model_workspace: Path, certified: Path, tmp_path: Path, keys: tuple[str, ...], value: object
) -> None:
    forged = defective_models.rewritten(certified, tmp_path / "forged", *keys, value=value)
    assert judged(model_workspace, forged)["certified"] == "refused"


def test_a_guarantee_that_the_model_does_not_state_is_refused(
    model_workspace: Path, certified: Path, tmp_path: Path
) -> None:
    forged = defective_models.rewritten(certified, tmp_path / "forged", "guarantee", "epsilon", value=0.01)
    found = judged(model_workspace, forged)
    assert (found["record"], found["certified"]) == ("refused", "refused")


def test_lost_or_other_indices_are_refused(model_workspace: Path, tmp_path: Path) -> None:
    shutil.copytree(model_workspace / "deleted", tmp_path / "d")
    (tmp_path / "d" / "indices.safetensors").unlink()
    assert judged(model_workspace, tmp_path / "d")["record"] == "refused"


def test_exact_means_the_bytes_of_the_reference(exact: Path, tmp_path: Path) -> None:
    record, tensors = load_model(exact / "reference")
    model_workspace = tmp_path / "home"
    shutil.copytree(exact, model_workspace, symlinks=True)
    name = next(name for name in tensors if name.endswith("ridge.offset"))
    save_model(model_workspace / "reference", record, tensors | {name: tensors[name] + 1e-6})
    assert judged(model_workspace, model_workspace / "deleted")["exact"] == "refused"
    save_model(model_workspace / "reference", record.model_copy(update={"seed": "1"}), tensors)
    audit = open_audit(
        model_workspace / "data",
        model_workspace / "model",
        model_workspace / "deleted",
        model_workspace / "reference",
        ["audio"],
    )
    (found,) = (i for i in invariants(audit) if i.name == "exact")
    assert found.decision == "refused"
    assert "another seed" in found.reason


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 6), st.integers(1, 6), st.integers(0, 2**32))
def test_values_are_known_again_in_any_order_and_shape(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = rng.standard_normal((rows, columns)).astype(np.float32)
    shuffled = rng.permutation(array.ravel()).reshape(columns, rows)
    assert fingerprint(array) == fingerprint(shuffled) == fingerprint(array.astype(np.float64)) is not None
    changed = array.copy()
    changed[0, 0] += 1
    assert fingerprint(changed) != fingerprint(array)


def test_a_constant_has_no_fingerprint() -> None:
    assert fingerprint(np.zeros(5)) is fingerprint(np.ones((2, 2))) is fingerprint(np.zeros((0, 3))) is None
