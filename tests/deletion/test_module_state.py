"""State that is not floating-point may hold what training saw: a deletion does not release it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mbd.attacks.audit_input import open_audit
from mbd.attacks.invariants import invariants
from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.formats.features import Shape
from mbd.model.checkpoint import load_model, save_model
from mbd.params import Params, load_params
from mbd.steps import delete, train
from tests.foreign_modules import foreign_set
from tests.refusals import refused


class Remembering(nn.Module):
    """Late fusion that keeps the audio of the first batches of training, as bytes."""

    bank: Tensor

    def __init__(self, modalities: dict[str, Shape], outputs: int, reads: bool = False) -> None:
        super().__init__()
        self.reads = reads
        self.maps = nn.ModuleDict({m: nn.Linear(s.width, 4) for m, s in modalities.items()})
        self.head = nn.Linear(4, outputs)
        self.register_buffer("bank", torch.zeros((16, 4), dtype=torch.uint8))

    def forward(self, features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor:
        """Return scores."""
        if self.training and "audio" in features and len(features["audio"]) >= 16:
            self.bank.copy_((features["audio"][:16] * 32 + 128).clamp(0, 255).byte())
        hidden = sum(m(features[name]) * available[name][:, None] for name, m in self.maps.items())
        scores: Tensor = self.head(torch.tanh(hidden))
        return scores + self.bank.float().mean() / 64 if self.reads else scores


BACKBONE = "model.backbone=tests.deletion.test_module_state:Remembering"
TRAINING = ("training.epochs=2", "training.threads=1", "training.batch_size=32")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    foreign_set(folder / "data", "vectors")
    train.run(params(), folder / "data", folder / "model")
    train.run(params(), folder / "data", folder / "reference", ("audio",))
    return folder


def params(*settings: str) -> Params:
    return load_params(None, [BACKBONE, *TRAINING, *settings])


def test_a_bank_of_bytes_has_seen_what_training_saw_and_is_not_released(workspace: Path, tmp_path: Path) -> None:
    record, tensors = load_model(workspace / "model")
    assert tensors["bank"].any()
    assert record.tensors["bank"].sees == ("text", "audio", "visual")
    delete.run(params(), workspace / "data", workspace / "model", ["audio"], [], tmp_path / "deleted")
    record, tensors = load_model(tmp_path / "deleted")
    assert not tensors["bank"].any()
    assert record.tensors["bank"].sees == ()


def test_a_model_that_predicts_from_such_state_is_refused_by_the_name_of_it(workspace: Path, tmp_path: Path) -> None:
    reading = params("model.options={reads: true}")
    train.run(reading, workspace / "data", tmp_path / "model")
    with refused(DataError, key="bank"):
        delete.run(reading, workspace / "data", tmp_path / "model", ["audio"], [], tmp_path / "deleted")


def test_the_gate_finds_state_that_the_reference_does_not_have(workspace: Path, tmp_path: Path) -> None:
    delete.run(params(), workspace / "data", workspace / "model", ["audio"], [], tmp_path / "deleted")
    record, tensors = load_model(tmp_path / "deleted")
    audio = FeatureSet.open(workspace / "data").split("train").take(slice(16)).features["audio"]
    (tmp_path / "filled").mkdir()
    save_model(tmp_path / "filled", record, {**tensors, "bank": (audio * 32 + 128).astype(np.uint8)})
    data, before, reference = (workspace / name for name in ("data", "model", "reference"))
    audit = open_audit(data, before, tmp_path / "filled", reference, ["audio"])
    found = {invariant.name: invariant for invariant in invariants(audit)}
    assert found["shape"].decision == "refused"
    assert "bank" in found["shape"].reason
