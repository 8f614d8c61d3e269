"""A module of one's own from training to a verified certificate, and the gate that refuses what is not deleted."""

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

import mbd
from mbd.attacks.target_model import open_target
from mbd.certificate.verification import Verdict
from mbd.deletion.module import ONLY_INPUTS
from mbd.formats.deletion import read_deletion
from mbd.formats.features import Shape
from mbd.model.examples.late_fusion import LateFusion
from tests.certificate.build import leakage_record, write_leakage
from tests.command import run_mbd
from tests.features.build import synthetic_set
from tests.model.modules import SIX_STREAMS_BRANCHES, Tensors
from tests.steps.model_workspace import LOOP, ModelWorkspace

LATE = {"model.backbone": "mbd.model.examples.late_fusion:LateFusion", "model.options": {"hidden": 12}}
SIX_STREAMS = {
    "model.backbone": "tests.model.modules:SixStreamsOfVectors",
    "model.branches": {m: list(names) for m, names in SIX_STREAMS_BRANCHES.items()},
}
"""as published cross-modal transformers are: three modalities written into the code, six streams, no masks"""
TENSOR = {"model.backbone": "mbd.model.examples.tensor_fusion:TensorFusion", "model.options": {"code": 3, "hidden": 12}}
ROWS = "features.source.synthetic.rows={train: 300, valid: 80, test: 200, calibration: 80}"


@pytest.fixture(
    scope="module",
    params=[LATE, *(pytest.param(module, marks=pytest.mark.slow) for module in (TENSOR, SIX_STREAMS))],
    ids=["late fusion", "tensor fusion", "six streams"],
)
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    folder, module = tmp_path_factory.mktemp("any"), request.param
    return ModelWorkspace(folder, module, lambda out: synthetic_set(out, ROWS), imported=module is SIX_STREAMS)


@pytest.mark.parametrize("method", ["surgery", "exact", "certified"])
def test_a_deleted_modality_ends_in_a_verified_certificate(
    workspace: ModelWorkspace, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = workspace.delete(method)
    leakage = workspace.attack(after)
    held = {record.name: record.decision for record in leakage.invariants}
    assert "refused" not in held.values(), leakage.reasons
    assert leakage.decision == "passed", leakage.reasons
    monkeypatch.chdir(tmp_path)
    verdict = workspace.certified(after)
    assert not [check for check in verdict.checks if check.outcome == "failed"]
    assert verdict.check("input shapes").outcome == "passed"


def test_the_gate_refuses_what_is_not_deleted(workspace: ModelWorkspace, tmp_path: Path) -> None:
    workspace.refuses_what_is_not_deleted(tmp_path)


def test_the_old_weights_put_back_give_the_old_answers_of_a_cut_model(workspace: ModelWorkspace) -> None:
    before, after = open_target(workspace["model"], "before"), open_target(workspace.delete("surgery"), "after")
    revived = after.with_old(before, "audio")
    for name, tensor in revived.tensors.items():
        kept = tensor != 0  # the surgery has set some more to zero
        assert np.allclose(tensor[kept], before.tensors[name][kept], rtol=2**-4)


def test_activations_are_seen_by_white_box_attacks(workspace: ModelWorkspace) -> None:
    rows = mbd.FeatureSet.open(workspace["data"]).split("test").load()
    seen = open_target(workspace["model"], "before").extract(rows, "audio", fed=True)
    assert {"encoders.audio.0", "encoders.audio", "project.a"} & set(seen.activations)
    assert all(len(values) == len(rows) for values in seen.activations.values())


def test_an_exact_deletion_is_reproduced_by_training_again(
    workspace: ModelWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = reproduced(workspace, workspace.delete("exact"))
    assert verdict.check("reproduction").outcome == "passed", verdict.check("reproduction").reason


def test_an_exact_deletion_from_a_joint_model_is_reproduced_by_training_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    joint = {"model.joint.hidden": 8, "training.epochs": 2, "training.batch_size": 16}
    workspace = ModelWorkspace(tmp_path, joint, lambda out: synthetic_set(out, ROWS))
    verdict = reproduced(workspace, workspace.delete("exact"))
    assert verdict.check("reproduction").outcome == "passed", verdict.check("reproduction").reason


def reproduced(workspace: ModelWorkspace, after: Path, **evidence: object) -> Verdict:
    """Certify an exact deletion on evidence that passes, and verify it by training again."""
    deletion = read_deletion(after)
    assert deletion
    mbd.make_keys("build/keys")
    mbd.evaluate(workspace["data"], [after], "evaluation", params=workspace.params)
    write_leakage(Path("leakage"), leakage_record(deletion).model_copy(update=evidence))
    mbd.certify(after, "leakage", "evaluation", "bundle", params=workspace.params)
    other = {"training.epochs": 1}  # the certificate says how it was trained
    trust = "build/keys/trust.json"
    return mbd.verify("bundle", model=after, trust=trust, offline=True, features=workspace["data"], params=other)


@pytest.mark.slow
def test_a_lattice_of_networks_ends_in_a_reproduced_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = {
        "model.backbone": "lattice",
        "model.lattice.member": LATE["model.backbone"],
        "model.lattice.options": {"hidden": 8},
        "model.lattice.folds": 2,
        "training.epochs": 2,
    }
    monkeypatch.chdir(tmp_path)
    workspace = ModelWorkspace(tmp_path, networks, lambda out: synthetic_set(out, ROWS))
    after = workspace.delete("exact")
    leakage = workspace.attack(after)
    assert leakage.decision == "passed", leakage.reasons
    verdict = reproduced(workspace, after, reference=leakage.reference)
    assert verdict.check("input shapes").outcome == "passed"
    assert verdict.check("reproduction").outcome == "passed", verdict.check("reproduction").reason


def test_a_fixed_shape_without_branches_is_warned_about_in_record_report_certificate_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params = {
        **LOOP,
        "training.epochs": 1,
        "model.backbone": "tests.foreign_modules:EarlyFusion",
        "certificate.model": "own",
    }
    synthetic_set(tmp_path / "data")
    mbd.train("data", "model", params=params)
    result = mbd.delete("data", "model", ["audio"], "deleted", params=params)
    assert result
    warning = ONLY_INPUTS.format(modality="audio")
    assert result.record.facts["cut"]["warnings"] == [warning]
    mbd.make_keys("build/keys")
    mbd.evaluate("data", ["deleted"], "evaluation", params=params)
    write_leakage(tmp_path / "leakage", leakage_record(result.record))
    certified = mbd.certify("deleted", "leakage", "evaluation", "bundle", params=params)
    assert warning in certified.statement.predicate.guarantee.assumptions
    assert warning.split(":")[1] in Path("bundle/report.md").read_text()
    assert warning in result.to_text()
    mbd.publish("bundle", "deleted", "file://build/store", out="published", params=params)
    verify = ("verify", "published", "--model", "deleted", "--offline", "--trust", "build/keys/trust.json")
    assert warning in run_mbd(*verify).stdout
    mbd.train("data", "reference", without=["audio"], params=params)
    attack = ("attack", "--features", "data", "--after", "deleted", "--reference", "reference", "--modality", "audio")
    quick = ("attacks.figures=false", "attacks.resamples=100", "attacks.relearn_rows=[32]", "attacks.variants=[]")
    settings = (part for setting in quick for part in ("--set", setting))
    assert warning in run_mbd(*attack, "--out", "leaks", *settings).stdout


class Unbuildable(LateFusion):
    """Fails for the shapes of the data."""

    def __init__(self, modalities: dict[str, Shape], outputs: int) -> None:
        super().__init__(modalities, outputs)
        self.lacking = modalities["smell"]


class TwoOutputs(LateFusion):
    """Returns two numbers for each row, whatever is asked for."""

    def __init__(self, modalities: dict[str, Shape], outputs: int) -> None:
        super().__init__(modalities, outputs + 1)


class Mixing(LateFusion):
    """Takes a mean over the batch: rows without audio move with that of others."""

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        return super().forward(features, available) + features["audio"].mean()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.backbone": "nowhere.at_all:Factory"}, "cannot be imported"),
        ({"model.backbone": f"{__name__}:Unbuildable"}, "fails for the shapes given"),
        ({"model.backbone": f"{__name__}:TwoOutputs"}, "must return one row"),
        ({"model.backbone": f"{__name__}:Mixing"}, "still move with"),
        ({**SIX_STREAMS, "model.branches": {"audio": ["streams.none"]}}, "no submodule 'streams.none'"),
        ({**SIX_STREAMS, "model.branches": {"smell": ["mix"]}}, "no modality 'smell'"),
    ],
    ids=["no import", "no shapes", "no output", "moves", "no branch", "no modality"],
)
def test_a_module_that_cannot_be_used_is_an_error_with_a_hint_and_leaves_nothing(
    any_data: Path, tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(mbd.UsageError, match=message) as refusal:
        mbd.train(any_data, tmp_path / "model", params={**LOOP, **settings})
    assert refusal.value.hint
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def any_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_set(tmp_path_factory.mktemp("bad") / "data")
