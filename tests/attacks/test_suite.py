"""The whole audit on small models: who passes, who is refused, and for which reason."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.audit_input import open_audit
from mbd.attacks.context import AttackContext
from mbd.attacks.suite import run_suite
from mbd.attacks.target_model import Role, TargetModel
from mbd.errors import DataError
from mbd.formats.leakage import LeakageRecord
from mbd.model.checkpoint import load_model, save_model
from mbd.params import load_params
from mbd.params.deletion import AttacksSettings
from mbd.registry import ATTACKS
from mbd.steps import delete, train
from tests.attacks import defective_models, models
from tests.evaluation.models import TINY
from tests.refusals import refused

FAST = AttacksSettings(resamples=200, relearn_rows=(32,))
AS_RELEASED = FAST.model_copy(update={"variants": ()})
"""enough to be refused"""


def audit(model_workspace: Path, after: Path, *modalities: str, params: AttacksSettings = FAST) -> LeakageRecord:
    audit_input = open_audit(
        model_workspace / "data",
        model_workspace / "model",
        after,
        model_workspace / "reference",
        modalities or ("audio",),
    )
    return run_suite(audit_input, params).record


def kinds(record: LeakageRecord) -> set[str]:
    """The kinds of reasons why a model was refused."""
    return {re.split(r"[ .]", reason)[0] for reason in record.reasons}


def test_surgery_with_our_defaults_passes_and_the_full_model_leaks(model_workspace: Path) -> None:
    record = audit(model_workspace, model_workspace / "deleted", params=AttacksSettings())
    assert (record.decision, record.reasons) == ("passed", ())
    leaks = {a.attack for a in record.attacks if a.before and a.reference and a.before.low > a.reference.high}
    assert {"pathway", "whitebox", "reconstruction", "relearn"} <= leaks
    assert {a.attack for a in record.attacks} == {*ATTACKS.builtin, "diff"}
    ids = [a.id for a in record.attacks if a.variant == "as released"]
    revived = [name.replace(".", "_") for x in ("blackbox.", "reconstruction.") for name in ids if name.startswith(x)]
    assert [name for name in ids if name.startswith("diff.")] == [f"diff.{name}" for name in revived]
    assert {a.variant for a in record.attacks} == {"as released", "int8", "pruned"}
    assert all((a.decision == "informational") == (a.attack == "diff") for a in record.attacks)


def test_the_full_model_is_refused_by_every_kind_of_attack_that_sees_it(model_workspace: Path) -> None:
    record = audit(model_workspace, model_workspace / "model", params=AS_RELEASED)
    assert kinds(record) >= {"pathway", "whitebox", "reconstruction", "relearn", "invariant"}
    assert "invariant (input): the model still takes audio as input" in record.reasons


def test_the_reference_itself_passes(model_workspace: Path) -> None:
    record = audit(model_workspace, model_workspace / "reference")
    assert record.decision == "passed"
    gaps = [a.difference for a in record.attacks if a.difference]
    assert all(gap.value == 0 and 0 < gap.high == -gap.low <= 1 for gap in gaps)  # the same answers on these rows


@pytest.mark.parametrize("make", [models.untrained, models.constant])
def test_a_useless_model_is_refused_for_utility_only(
    model_workspace: Path, tmp_path: Path, make: Callable[[Path, Path], Path]
) -> None:
    assert kinds(audit(model_workspace, make(model_workspace, tmp_path / "evil"))) == {"utility"}


@pytest.mark.parametrize("make", [models.renamed, models.blind_fusion, models.noisy_input, defective_models.forged])
def test_a_model_that_only_hides_is_refused_by_attacks_and_by_its_files(
    model_workspace: Path, tmp_path: Path, make: Callable[[Path, Path], Path]
) -> None:
    record = audit(model_workspace, make(model_workspace, tmp_path / "evil"), params=AS_RELEASED)
    assert kinds(record) >= {"pathway", "reconstruction", "invariant"}


@pytest.mark.parametrize("settings", [("order=importance", "importance_quantile=1"), ("order=saliency",)])
def test_surgery_without_the_cut_is_refused(model_workspace: Path, tmp_path: Path, settings: tuple[str, ...]) -> None:
    """As printed in the paper, and with the better order; thresholds are quantiles, because no fixed one fits."""
    params = load_params(None, [*TINY, "deletion.surgery.cut=false", *(f"deletion.surgery.{s}" for s in settings)])
    delete.run(params, model_workspace / "data", model_workspace / "model", ["audio"], [], tmp_path / "printed")
    record = audit(model_workspace, tmp_path / "printed", params=AS_RELEASED)
    assert kinds(record) >= {"pathway", "whitebox", "relearn", "invariant"}


def test_a_certified_deletion_passes_beside_its_claim(model_workspace: Path, tmp_path: Path) -> None:
    settings = ["deletion.method=certified", "deletion.certified.finetune_epochs=6", "training.epochs=6"]
    params = load_params(None, [*TINY, *settings, f"deletion.ledgers={tmp_path / 'ledgers'}"])
    delete.run(params, model_workspace / "data", model_workspace / "model", ["audio"], [], tmp_path / "certified")
    record = audit(model_workspace, tmp_path / "certified")
    assert kinds(record) <= {"utility"}  # the noise is fresh, and may cost more than the margin on so few rows
    assert record.lower_bound
    assert (record.lower_bound.claimed, record.lower_bound.decision) == (1.0, "passed")
    assert record.suite.deletion
    assert record.suite.deletion["epsilon"] == 1.0


def test_an_exact_deletion_of_two_modalities_passes(model_workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(model_workspace / "data")
    params = load_params(None, [*models.LATTICE, "deletion.method=exact"])
    gone = ("audio", "visual")
    train.run(params, tmp_path / "data", tmp_path / "model")
    train.run(params, tmp_path / "data", tmp_path / "reference", gone)
    delete.run(params, tmp_path / "data", tmp_path / "model", list(gone), [], tmp_path / "deleted")
    record = audit(tmp_path, tmp_path / "deleted", *gone)
    assert record.reasons == ()
    assert record.modalities == gone
    assert {a.modality for a in record.attacks} == set(gone)
    assert {u.regime for u in record.utility} == {"text"}
    assert {i.name: i.decision for i in record.invariants}["exact"] == "passed"
    assert record.lower_bound
    assert (record.lower_bound.epsilon, record.lower_bound.claimed) == (0, 0)


def test_models_of_the_same_bytes_are_attacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = models.audited(tmp_path, *models.LATTICE, method="exact")
    attacked: list[Role] = []
    blackbox = ATTACKS.get("blackbox")

    def counting(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
        attacked.append(target_model.role)
        return blackbox.run(target_model, attack_context)

    monkeypatch.setitem(ATTACKS._loaded, "blackbox", Attack(counting, blackbox.asks))
    record = audit(folder, folder / "deleted")
    assert attacked == ["before", "after", "after", "after"]  # as released, after rounding, after pruning
    assert all(a.after == a.reference for a in record.attacks if a.decision != "informational")
    assert record.decision == "passed"


def test_weights_that_are_no_model_are_named(model_workspace: Path, tmp_path: Path) -> None:
    record, tensors = load_model(model_workspace / "reference")
    fewer = {name: entry for name, entry in record.tensors.items() if name != "head.bias"}
    (tmp_path / "m").mkdir()
    save_model(tmp_path / "m", record.model_copy(update={"tensors": fewer}), {n: tensors[n] for n in fewer})
    with refused(DataError, match="cannot be run", file=tmp_path / "m" / "model.safetensors"):
        audit(model_workspace, tmp_path / "m")
