"""A modality may have any valid name, also one that is part of a tensor's name: its deletion can be certified."""

from pathlib import Path

import pytest

from mbd.formats.files import INDICES
from mbd.model.checkpoint import load_model
from mbd.params import load_params
from mbd.steps import delete, features, train
from mbd.tensors import open_tensors
from mbd.verifier.structure import StructuralClaim, check_structure
from tests.evaluation.models import TINY
from tests.features.build import npz_arrays, small_collection, write_npz

NAMES = ("landmarks", "rows", "head", "scale", "a", "a.mean")
LATTICE = ("model.backbone=lattice", "model.lattice.landmarks=4", "model.lattice.components=2")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    file = write_npz(folder / "odd.npz", npz_arrays(small_collection(dims=dict.fromkeys(NAMES, 3))))
    source = ["features.source.kind=npz", f"features.source.path={file}"]
    features.run(load_params(None, source), folder / "data")
    train.run(load_params(None, TINY), folder / "data", folder / "joint")
    train.run(load_params(None, LATTICE), folder / "data", folder / "lattice")
    return folder


@pytest.mark.parametrize("modality", ["landmarks", "rows", "head", "scale", "a", "a.mean"])
@pytest.mark.parametrize(("model", "method"), [("joint", "surgery"), ("lattice", "exact")])
def test_its_deletion_passes_every_structural_check(
    models: Path, tmp_path: Path, model: str, method: str, modality: str
) -> None:
    settings = [*TINY, f"deletion.method={method}", f"deletion.ledgers={tmp_path}/ledgers"]
    result = delete.run(
        load_params(None, settings), models / "data", models / model, [modality], [], tmp_path / "deleted"
    )
    assert result
    record, tensors = load_model(tmp_path / "deleted")
    assert set(record.modalities) == set(NAMES) - {modality}
    claim = StructuralClaim((modality,), method == "exact", "none", result.record.indices.count)
    checks = check_structure(claim, record, tensors, open_tensors(tmp_path / "deleted" / INDICES))
    assert {check.name: check.reason for check in checks if check.outcome != "passed"} == {}


@pytest.mark.parametrize("model", ["joint", "lattice"])
def test_what_is_left_of_it_is_still_found(models: Path, model: str) -> None:
    record, tensors = load_model(models / model)
    kept = {name: dim for name, dim in record.modalities.items() if name != "a.mean"}
    liar = record.model_copy(
        update={
            "modalities": kept,
            "revoked": ("a.mean",),
            "tensors": {
                name: entry.model_copy(update={"belongs_to": None, "columns": (), "sees": ()})
                for name, entry in record.tensors.items()
            },
        }
    )
    checks = check_structure(StructuralClaim(("a.mean",), never_saw=True, edit="none", count=0), liar, tensors, {})
    assert [check.name for check in checks if check.outcome == "failed"] == ["input shapes"]
