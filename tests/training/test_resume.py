"""A killed training goes on and ends with the bytes of an undisturbed one; a stale snapshot is never used."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mbd.params import load_params
from mbd.steps import train
from mbd.training.joint import train_joint
from mbd.training.loop import Snapshots, TrainingState
from mbd.training.trained import Trained
from tests.digests import path_digest
from tests.training.build import SMALL, joint_data, open_set, small_params

SNAPSHOT = "snapshot.safetensors"


def state() -> TrainingState:
    return TrainingState(
        weights={"a.weight": np.ones((2, 3), np.float32), "empty": np.zeros((2, 0), np.float32)},
        momentum={"a.weight": np.full((2, 3), 0.1, np.float32)},
        best={"a.weight": np.zeros((2, 3), np.float32)},
        history=[{"epoch": 0, "total": 1 / 3}, {"epoch": 1, "total": 0.1}],
    )


def test_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    Snapshots(tmp_path, "key").save(state())
    found = Snapshots(tmp_path, "key").load()
    assert found is not None
    assert found.history == state().history
    for kind in ("weights", "momentum", "best"):
        before, after = getattr(state(), kind), getattr(found, kind)
        assert before.keys() == after.keys()
        assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_a_snapshot_of_something_else_or_a_damaged_one_is_not_used(tmp_path: Path) -> None:
    assert Snapshots(tmp_path, "key").load() is None
    Snapshots(tmp_path, "key").save(state())
    assert Snapshots(tmp_path, "another").load() is None
    file = tmp_path / SNAPSHOT
    file.write_bytes(file.read_bytes()[:-5])
    assert Snapshots(tmp_path, "key").load() is None


def stopped_after(epochs: int, data: Path, work: Path) -> None:
    """Leave the snapshot that a training killed after so many of its four epochs leaves."""
    saved = Snapshots.save

    def save(self: Snapshots, state: TrainingState) -> None:
        saved(self, state)
        if len(state.history) == epochs:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Snapshots, "save", save)
        resumed(data, work)


def resumed(data: Path, work: Path, *settings: str) -> Trained:
    return train_joint(open_set(data), small_params(*settings), work=work, progress=False)


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_stopped_run_continues_to_the_same_end(tmp_path: Path, epochs: int) -> None:
    data = joint_data(tmp_path / "set")
    undisturbed = resumed(data, tmp_path / "one")
    stopped_after(epochs, data, tmp_path / "two")
    again = resumed(data, tmp_path / "two")
    assert again.history == undisturbed.history
    assert all(t.tobytes() == again.tensors[name].tobytes() for name, t in undisturbed.tensors.items())


def test_a_resumed_run_starts_from_its_snapshot(tmp_path: Path) -> None:
    data = joint_data(tmp_path / "set")
    stopped_after(2, data, tmp_path / "work")
    with pytest.MonkeyPatch.context() as patch:
        epochs: list[int] = []
        patch.setattr(Snapshots, "save", lambda _, state: epochs.append(len(state.history)))
        resumed(data, tmp_path / "work")
    assert epochs == [3]


@pytest.mark.parametrize("setting", ["training.seed=1", "model.joint.losses.alpha=0.5", "training.learning_rate=0.01"])
def test_a_snapshot_of_other_parameters_is_not_used(tmp_path: Path, setting: str) -> None:
    data = joint_data(tmp_path / "set")
    stopped_after(2, data, tmp_path / "work")
    fresh, after_stop = resumed(data, tmp_path / "new", setting), resumed(data, tmp_path / "work", setting)
    assert fresh.history == after_stop.history


def test_a_snapshot_of_other_data_is_not_used(tmp_path: Path) -> None:
    one, other = joint_data(tmp_path / "one"), joint_data(tmp_path / "other", seed=1)
    stopped_after(2, one, tmp_path / "work")
    assert resumed(other, tmp_path / "work").history == resumed(other, tmp_path / "new").history


@pytest.mark.slow
def test_killed_in_the_middle_and_run_again_the_step_writes_the_same_bytes(tmp_path: Path) -> None:
    data = joint_data(tmp_path / "set")
    settings = [*SMALL, "training.epochs=25"]
    command = [sys.executable, "-c", "from mbd.cli import main; main()", "train", "--features", str(data)]
    command += ["--out", str(tmp_path / "killed"), *(part for s in settings for part in ("--set", s))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path)
    snapshot, deadline = tmp_path / ".killed.resume" / SNAPSHOT, time.monotonic() + 60
    while not snapshot.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    _, complaint = process.communicate()
    assert process.returncode == -signal.SIGKILL, complaint.decode()
    assert snapshot.exists()
    assert not (tmp_path / "killed").exists()

    params = load_params(None, settings)
    train.run(params, data, tmp_path / "killed")
    train.run(params, data, tmp_path / "undisturbed")
    assert path_digest(tmp_path / "killed") == path_digest(tmp_path / "undisturbed")
    assert {path.name for path in tmp_path.iterdir()} == {"set", "killed", "undisturbed"}
