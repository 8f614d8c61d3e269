"""Structural claims are looked up in the weights: real deletions pass, and whatever is left over is named."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from mbd.formats.files import INDICES
from mbd.formats.model import ColumnRange, ModelRecord
from mbd.model.checkpoint import load_model
from mbd.params import load_params
from mbd.steps import delete, train
from mbd.tensors import Array, open_tensors
from mbd.verifier.structure import POSITIONS, PRECISION, REMOVED, SHAPES, TENSORS, StructuralClaim, check_structure
from mbd.verifier.verdict import Check
from tests.deletion.models import home_with_models
from tests.evaluation.models import TINY

SHARED = "fusion.hidden.weight"
Edit = Literal["zero", "noise", "all", "none"]


@dataclass(frozen=True)
class Released:
    """A deleted model, and what is claimed of it."""

    claim: StructuralClaim
    record: ModelRecord
    tensors: dict[str, Array]
    indices: dict[str, Array]

    def checks(self) -> dict[str, Check]:
        """Run the checks."""
        return {c.name: c for c in check_structure(self.claim, self.record, self.tensors, self.indices)}

    def with_entry(self, name: str, **change: object) -> "Released":
        """Change the description of one tensor in model.json."""
        entries = dict(self.record.tensors)
        entries[name] = entries[name].model_copy(update=change)
        return replace(self, record=self.record.model_copy(update={"tensors": entries}))


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model_workspace = home_with_models(tmp_path_factory.mktemp("home"))
    train.run(
        load_params(None, ["model.backbone=lattice", "model.lattice.landmarks=8"]),
        model_workspace / "data",
        model_workspace / "lattice",
    )
    return model_workspace


def released(model_workspace: Path, folder: Path, model: str, method: str, *settings: str) -> Released:
    ledgers = f"deletion.ledgers={folder / 'ledgers'}"
    params = load_params(None, [*TINY, f"deletion.method={method}", ledgers, *settings])
    result = delete.run(params, model_workspace / "data", model_workspace / model, ["audio"], [], folder / "deleted")
    assert result
    record, tensors = load_model(folder / "deleted")
    edits: dict[str, Edit] = {"surgery": "none", "certified": "all", "exact": "none"}
    rounding = result.record.rounding
    bits = rounding.mantissa_bits if rounding else None
    claim = StructuralClaim(("audio",), method == "exact", edits[method], result.record.indices.count, bits)
    return Released(claim, record, tensors, dict(open_tensors(folder / "deleted" / INDICES)))


@pytest.fixture(scope="module")
def surgery(model_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(model_workspace, tmp_path_factory.mktemp("surgery"), "model", "surgery")


@pytest.mark.parametrize(
    ("model", "method", "settings"),
    [
        ("model", "surgery", ()),
        ("model", "certified", ("deletion.certified.finetune_epochs=1",)),
        ("lattice", "exact", ()),
    ],
)
def test_every_method_leaves_what_it_claims(
    model_workspace: Path, tmp_path: Path, model: str, method: str, settings: tuple[str, ...]
) -> None:
    checks = released(model_workspace, tmp_path, model, method, *settings).checks()
    assert {c.outcome for c in checks.values()} == {"passed"}, checks


@pytest.mark.parametrize(("landmarks", "outcome"), [(8, "passed"), (64, "passed"), (24, "failed"), (128, "failed")])
def test_the_landmarks_of_a_module_may_be_doubled_up_to_three_times(
    model_workspace: Path, tmp_path: Path, landmarks: int, outcome: str
) -> None:
    lattice = released(model_workspace, tmp_path, "lattice", "exact")
    longer = {
        name: np.resize(tensor, (landmarks, *tensor.shape[1:]))
        for name, tensor in lattice.tensors.items()
        if name.startswith("module.text.landmarks") or name == "module.text.kernel.weights"
    }
    assert len(longer) == 2
    assert replace(lattice, tensors=lattice.tensors | longer).checks()[SHAPES].outcome == outcome


def test_listed_positions_must_be_zero(surgery: Released) -> None:
    tensor = np.array(surgery.tensors[SHARED])
    tensor.reshape(-1)[[3, 7]] = 0
    edited = replace(
        surgery,
        claim=replace(surgery.claim, edit="zero", count=2),
        tensors=surgery.tensors | {SHARED: tensor},
        indices={SHARED: np.array([3, 7])},
    )
    assert edited.checks()[POSITIONS].reason.endswith("all are zero")
    tensor.reshape(-1)[7] = 1e-30
    assert edited.checks()[POSITIONS].outcome == "failed"


@pytest.mark.parametrize(
    "positions",
    [np.array([-1]), np.array([10**9]), np.array([4, 4]), np.array([0.5]), np.array([[1]]), np.array([], np.int64)],
    ids=["negative", "outside", "twice", "no whole number", "table", "none"],
)
def test_listed_positions_must_be_there(surgery: Released, positions: Array) -> None:
    claim = replace(surgery.claim, edit="noise", count=max(positions.size, 1))
    assert replace(surgery, claim=claim, indices={SHARED: positions}).checks()[POSITIONS].outcome == "failed"


def test_the_list_must_be_as_long_as_the_edit_says(surgery: Released) -> None:
    for edit, said in {"none": "1 positions are listed", "all": "not all of"}.items():
        claim = replace(surgery.claim, edit=edit, count=1)  # type: ignore[arg-type]
        assert said in replace(surgery, claim=claim, indices={SHARED: np.array([0])}).checks()[POSITIONS].reason


def test_a_list_that_was_not_given_is_not_checkable(surgery: Released) -> None:
    checks = check_structure(surgery.claim, surgery.record, surgery.tensors, None)
    assert [c.outcome for c in checks if c.name == POSITIONS] == ["not checkable"]


def test_weights_and_record_must_agree(surgery: Released) -> None:
    extra = replace(surgery, tensors=surgery.tensors | {"stowaway": np.zeros(3, np.float32)})
    assert "only the weights has the tensor 'stowaway'" in extra.checks()[TENSORS].reason
    fewer = replace(surgery, tensors={n: t for n, t in surgery.tensors.items() if n != SHARED})
    assert "only model.json has the tensor" in fewer.checks()[TENSORS].reason
    double = replace(surgery, tensors=surgery.tensors | {SHARED: surgery.tensors[SHARED].astype(np.float64)})
    assert "float64" in double.checks()[TENSORS].reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"belongs_to": "audio"}, "exists for audio alone"),
        ({"columns": (ColumnRange(start=0, stop=6, reads="audio"),)}, "input columns that read audio"),
    ],
)
def test_a_trace_in_the_record_is_found(surgery: Released, change: dict[str, object], said: str) -> None:
    assert said in surgery.with_entry(SHARED, **change).checks()[REMOVED].reason


def test_a_model_that_is_still_built_for_the_modality_is_found(surgery: Released) -> None:
    modalities = surgery.record.modalities | {"audio": 6}
    assert "still built for audio" in (
        replace(surgery, record=surgery.record.model_copy(update={"modalities": modalities})).checks()[REMOVED].reason
    )
    forgotten = surgery.record.model_copy(update={"revoked": ()})
    assert "does not list audio as revoked" in replace(surgery, record=forgotten).checks()[REMOVED].reason


def test_columns_that_the_record_conceals_are_found_by_their_shape(surgery: Released) -> None:
    wider = np.zeros((surgery.tensors[SHARED].shape[0], surgery.tensors[SHARED].shape[1] + 6), np.float32)
    concealed = replace(surgery, tensors=surgery.tensors | {SHARED: wider}).with_entry(SHARED, shape=wider.shape)
    checks = concealed.checks()
    assert checks[TENSORS].outcome == checks[REMOVED].outcome == "passed"
    assert "in a joint model for text, visual it is" in checks[SHAPES].reason


def test_columns_must_be_whole_modalities_side_by_side(surgery: Released) -> None:
    for columns in (
        (ColumnRange(start=0, stop=5, reads="text"),),
        (ColumnRange(start=0, stop=12, reads="text"), ColumnRange(start=6, stop=14, reads="visual")),
        (ColumnRange(start=15, stop=27, reads="text"),),
    ):
        assert surgery.with_entry(SHARED, columns=columns).checks()[SHAPES].outcome == "failed"


def test_exact_means_that_nothing_left_has_seen_the_modality(model_workspace: Path, tmp_path: Path) -> None:
    lattice = released(model_workspace, tmp_path, "lattice", "exact")
    exposed = lattice.with_entry("module.text.ridge.weights", sees=("audio", "text"))
    assert "said to have seen audio" in exposed.checks()[REMOVED].reason
    renamed = {name.replace("module.text.", "module.audio."): t for name, t in lattice.tensors.items()}
    assert replace(lattice, tensors=renamed).checks()[SHAPES].outcome == "failed"


def test_of_named_subjects_the_modality_stays(surgery: Released) -> None:
    checks = replace(surgery, claim=replace(surgery.claim, revoked=())).checks()
    assert checks[REMOVED].outcome == "not checkable"
    assert checks[SHAPES].outcome == "passed"


def test_one_bit_below_the_stated_precision_is_found(surgery: Released) -> None:
    """A secret of one bit, hidden where no output changes."""
    assert surgery.checks()[PRECISION].outcome == "passed"
    raw = np.array(surgery.tensors[SHARED], np.float32).view(np.uint32)
    raw[0, 0] |= 1
    hidden = replace(surgery, tensors=surgery.tensors | {SHARED: raw.view(np.float32)})
    check = hidden.checks()[PRECISION]
    assert check.outcome == "failed"
    assert SHARED in check.reason
