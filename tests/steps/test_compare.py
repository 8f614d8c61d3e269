"""The step `compare`: the ways to delete beside each other, and nothing left of those made for comparison."""

from contextlib import suppress
from pathlib import Path

import pytest

from mbd.errors import GateRefusedError, UsageError
from mbd.params import Params, load_params
from mbd.steps import attack, compare, delete
from tests.deletion.models import home_with_models
from tests.refusals import refused

SMALL = (
    "model.lattice.components=4",
    "model.lattice.landmarks=8",
    "deletion.certified.finetune_epochs=1",
    "attacks.resamples=100",
    "attacks.figures=false",
    "attacks.variants=[]",
    "training.epochs=2",
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a joint model, the reference, and a surgery with its attacks, which the gate may refuse."""
    folder = home_with_models(tmp_path_factory.mktemp("home"))
    params = settings(folder)
    delete.run(params, folder / "data", folder / "model", ["audio"], [], folder / "deleted", folder / "silent")
    with suppress(GateRefusedError):
        before, after, reference = (folder / name for name in ("model", "deleted", "silent"))
        attack.run(params, folder / "data", before, after, reference, ["audio"], folder / "leakage")
    return folder


def settings(folder: Path) -> Params:
    return load_params(None, [*SMALL, f"deletion.ledgers={folder}/ledgers"])


def compared(folder: Path, deletion: Path, out: Path) -> compare.MethodComparison:
    data, model, reference, leakage = (folder / part for part in ("data", "model", "silent", "leakage"))
    return compare.run(settings(folder), data, model, reference, deletion, leakage, out)


def test_three_ways_are_side_by_side_and_only_one_is_the_release(workspace: Path, tmp_path: Path) -> None:
    comparison = compared(workspace, workspace / "deleted", tmp_path / "out")
    assert [(each.method, each.kind, each.backbone) for each in comparison.deletions] == [
        ("exact", "exact", "lattice"),
        ("certified", "certified", "joint"),
        ("surgery", "empirical", "joint"),
    ]
    assert [each.method for each in comparison.deletions if each.released] == ["surgery"]
    assert not comparison.left_out
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "comparison.json",
        "comparison.txt",
        "step.json",
    ]
    text = (tmp_path / "out" / "comparison.txt").read_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "byte for byte" in text
    charged = [file.name for file in (workspace / "ledgers").glob("*") if file.name != "audits"]
    assert not charged, "the certified deletion is not charged to the lineage"


def test_an_audit_of_another_model_is_refused(workspace: Path, tmp_path: Path) -> None:
    exact = load_params(None, [*SMALL, "deletion.method=exact"])
    data, model, silent = (workspace / name for name in ("data", "model", "silent"))
    delete.run(exact, data, model, ["audio"], [], tmp_path / "other", silent)
    with refused(UsageError, file=workspace / "leakage" / "leakage.json"):
        compared(workspace, tmp_path / "other", tmp_path / "out")
