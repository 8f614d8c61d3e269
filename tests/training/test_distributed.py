"""Two processes give the loss curve and the weights of one."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbd.model.checkpoint import load_model
from mbd.params import load_params
from mbd.steps import train
from mbd.training.distributed import ProcessGroup
from tests.training.build import SMALL, joint_data
from tests.training.two_processes import run_by_two

# 107 rows: the last batch has one row, so the second process has none of it.
SETTINGS = [*SMALL, "training.batch_size=53", "training.epochs=6"]
MODULE = ["model.backbone=mbd.model.examples.late_fusion:LateFusion", "training.optimiser=adamw"]


@given(st.integers(1, 200), st.integers(1, 9))
def test_every_row_is_one_process_s(rows: int, size: int) -> None:
    parts = [range(rows)[ProcessGroup(rank, size).part(rows)] for rank in range(size)]
    assert [row for part in parts for row in part] == list(range(rows))


@pytest.mark.slow
@pytest.mark.parametrize(
    "own",
    [
        ["model.joint.losses.gamma=0.5"],
        [*MODULE, "training.learning_rate=0.005", "training.accumulation=2"],
    ],
    ids=["joint", "a module"],
)
def test_two_processes_give_the_loss_curve_of_one(tmp_path: Path, quick: Path, own: list[str]) -> None:
    data, settings = joint_data(tmp_path / "set"), [*SETTINGS, *own]
    train.run(load_params(None, settings), data, tmp_path / "one")
    given = [part for setting in settings for part in ("--set", setting)]
    run_by_two(quick, tmp_path, "train", "--features", str(data), "--out", str(tmp_path / "two"), *given)
    one, two = (_history(tmp_path / name / "history.csv") for name in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=2e-5, atol=1e-6)
    (_, alone), (_, together) = (load_model(tmp_path / name) for name in ("one", "two"))
    for name, tensor in alone.items():
        np.testing.assert_allclose(together[name], tensor, rtol=1e-3, atol=2e-5, err_msg=name)


def _history(file: Path) -> list[list[float]]:
    with file.open() as stream:
        return [[float(value) for value in row.values()] for row in csv.DictReader(stream)]
