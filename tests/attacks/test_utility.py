"""What models are worth on retained modalities: the same metrics as everywhere, and never a look at a deleted one."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.attacks.audit_input import open_audit
from mbd.attacks.target_model import Role, TargetModel
from mbd.attacks.utility import correlation, utility
from mbd.errors import DataError
from mbd.evaluation.metrics import pearson, task_metrics
from mbd.features.contract import Split
from mbd.model.predictor import load
from mbd.params import load_params
from mbd.params.deletion import AttacksSettings
from mbd.steps import delete, features, train
from tests.features.build import npz_arrays, small_collection, write_npz


def utilities(model_workspace: Path) -> dict[tuple[str, str], dict[str, float]]:
    audit = open_audit(
        model_workspace / "data",
        model_workspace / "model",
        model_workspace / "deleted",
        model_workspace / "reference",
        ["audio"],
    )
    target_models: dict[Role, TargetModel] = {
        role: TargetModel.of(role, s.record, s.tensors) for role, s in audit.models.items()
    }
    found = utility(audit, target_models, AttacksSettings())
    assert [measured_utility.decides for measured_utility in found] == [
        measured_utility.regime == "text+visual" for measured_utility in found
    ]
    return {(w.metric, w.regime): {role: e.value for role, e in w.found.items()} for w in found}


def test_the_metrics_are_those_of_the_evaluation(model_workspace: Path) -> None:
    found = utilities(model_workspace)
    assert set(found) == {(m, r) for m in ("acc2", "corr") for r in ("text+visual", "text", "visual")}
    audit = open_audit(
        model_workspace / "data",
        model_workspace / "model",
        model_workspace / "deleted",
        model_workspace / "reference",
        ["audio"],
    )
    test = audit.data.split("test").load()
    for role, folder in (("before", "model"), ("after", "deleted"), ("reference", "reference")):
        shown = {m: test.features[m] for m in ("text", "visual")}
        metrics = task_metrics("regression", test.labels, load(model_workspace / folder).predict(shown))
        assert found["acc2", "text+visual"][role] == pytest.approx(metrics["acc2"])
        assert found["corr", "text+visual"][role] == pytest.approx(metrics["corr"], abs=1e-6)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data with three classes, and a lattice that forgot audio."""
    folder = tmp_path_factory.mktemp("classes")
    file = write_npz(folder / "d.npz", npz_arrays(small_collection(classes=3)))
    source = ["features.source.kind=npz", f"features.source.path={file}", "features.source.task=classification"]
    lattice = ["model.backbone=lattice", "model.lattice.landmarks=0", "model.lattice.components=3"]
    params = load_params(None, [*source, *lattice, "deletion.method=exact", "features.calibration.size=0"])
    features.run(params, folder / "data")
    train.run(params, folder / "data", folder / "model")
    train.run(params, folder / "data", folder / "reference", ("audio",))
    delete.run(params, folder / "data", folder / "model", ["audio"], [], folder / "deleted")
    return folder


def test_classes_are_judged_by_accuracy_and_mean_recall(classes: Path) -> None:
    found = utilities(classes)
    audit = open_audit(classes / "data", classes / "model", classes / "deleted", classes / "reference", ["audio"])
    test = audit.data.split("test").load()
    shown = {m: test.features[m] for m in ("text", "visual")}
    metrics = task_metrics("classification", test.labels, load(classes / "deleted").predict(shown))
    for metric in ("wa", "ua"):
        assert found[metric, "text+visual"]["after"] == pytest.approx(metrics[metric])
        assert found[metric, "text+visual"]["after"] == found[metric, "text+visual"]["reference"]


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 40), st.integers(0, 2**32), st.booleans())
def test_weighted_correlation_is_pearsons_of_repeated_rows(n: int, seed: int, constant: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 2))
    if constant:
        rows[:, 1] = 0.1
    counts = rng.integers(0, 4, n)
    counts[:2] = 1
    again = np.repeat(rows, counts, axis=0)
    found = correlation(rows, np.stack([np.ones(n), counts]).astype(float))
    assert found == pytest.approx(
        [pearson(*rows.T) if not constant else 0, 0 if constant else pearson(*again.T)], abs=1e-6
    )


def test_test_rows_without_retained_modalities_are_an_error(
    model_workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Split.available.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(
        Split, "available", property(lambda self: {m: bits & (m == "audio") for m, bits in there(self).items()})
    )
    with pytest.raises(DataError, match="no test row has any of the retained"):
        utilities(model_workspace)
