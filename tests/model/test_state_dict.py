"""Weights from outside: every kind of file that others write, and an error for what cannot be read."""

import argparse
import collections
import json
import random
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from mbd.errors import DataError
from mbd.model.state_dict import read_state
from tests.refusals import refused

STATE = {"fc.weight": torch.arange(6.0).reshape(2, 3), "fc.bias": torch.ones(2), "steps": torch.tensor(7)}


def assert_is_state(path: Path) -> None:
    found = read_state(path)
    assert {name: x.tolist() for name, x in found.items()} == {name: x.tolist() for name, x in STATE.items()}
    assert found["fc.weight"].dtype == np.float32
    assert found["steps"].dtype == np.int64


class Hyperparameters(dict[str, object]):
    """A class of a package that is not installed where the file is read."""


@pytest.mark.parametrize(
    "checkpoint",
    [
        STATE,
        collections.OrderedDict({name: torch.nn.Parameter(x, x.is_floating_point()) for name, x in STATE.items()}),
        {name: x.double() if x.is_floating_point() else x for name, x in STATE.items()},
        {"epoch": 3, "state_dict": STATE, "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2)}}}]},
        {"model_state_dict": STATE, "ema": {"fc.weight": torch.ones(2, 3)}, "best": np.float64(0.5)},
        {"net": STATE, "args": argparse.Namespace(lr=0.1), "path": PurePosixPath("/runs")},
        {"state_dict": STATE, "hyper_parameters": Hyperparameters(lr=0.1)},
    ],
    ids=["plain", "parameters", "doubles", "lightning", "several", "other objects", "unknown class"],
)
def test_a_state_dict_is_found_in_what_torch_saved(tmp_path: Path, checkpoint: object) -> None:
    torch.save(checkpoint, tmp_path / "last.ckpt")
    assert_is_state(tmp_path / "last.ckpt")


def test_a_folder_of_hugging_face_holds_weights_in_one_file_or_in_several(tmp_path: Path) -> None:
    for name in ("one", "some"):
        (tmp_path / name).mkdir()
    save_file(STATE, tmp_path / "one" / "model.safetensors")
    assert_is_state(tmp_path / "one")
    parts = {f"model-0000{i + 1}-of-00003.safetensors": name for i, name in enumerate(STATE)}
    for part, name in parts.items():
        save_file({name: STATE[name]}, tmp_path / "some" / part)
    index = {"weight_map": {name: part for part, name in parts.items()}}
    (tmp_path / "some" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_is_state(tmp_path / "some")
    (tmp_path / "some" / "model.safetensors.index.json").write_text("[]")
    with refused(DataError, file=tmp_path / "some" / "model.safetensors.index.json"):
        read_state(tmp_path / "some")
    (tmp_path / "none").mkdir()
    with refused(DataError, file=tmp_path / "none"):
        read_state(tmp_path / "none")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (lambda: torch.eye(2).to_sparse(), "sparse"),
        (lambda: torch.eye(2).to_sparse_csr(), "sparse"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "quantised"),
        (lambda: torch.empty(2, device="meta"), "without values"),
        (lambda: torch.ones(2, dtype=torch.complex64), "complex"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]), "nested"),
    ],
)
def test_a_tensor_of_another_kind_is_named(tmp_path: Path, tensor: object, problem: str) -> None:
    assert callable(tensor)
    torch.save({"fc.weight": tensor()}, tmp_path / "w.pt")
    with refused(DataError, match=problem, key="fc.weight"):
        read_state(tmp_path / "w.pt")


@pytest.mark.parametrize("found", [None, {}, [torch.ones(1)], {"a": 1}, {0: torch.ones(1)}, torch.nn.Linear(1, 1)])
def test_what_is_no_state_dict_is_bad_data(tmp_path: Path, found: object) -> None:
    torch.save(found, tmp_path / "w.pt")
    with refused(DataError, match="not a state_dict", file=tmp_path / "w.pt"):
        read_state(tmp_path / "w.pt")


def test_several_that_could_be_meant_are_named(tmp_path: Path) -> None:
    torch.save({"teacher": STATE, "student": STATE}, tmp_path / "w.pt")
    with refused(DataError, hint="save one of them alone: teacher, student"):
        read_state(tmp_path / "w.pt")


class Planted:
    """What would call a function when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("open('planted', 'w')",)


def test_a_function_in_a_checkpoint_is_never_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": STATE, "callbacks": Planted()}, tmp_path / "w.ckpt")
    assert_is_state(tmp_path / "w.ckpt")
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_damaged_file_is_bad_data_however_it_is_damaged(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"w.{suffix}"
    state: dict[str, Tensor] = dict(STATE)
    torch.save({"state_dict": state}, file) if suffix == "pt" else save_file(state, file)
    whole, draw = file.read_bytes(), random.Random(0)
    for _ in range(100):
        damaged = bytearray(whole[: draw.randrange(len(whole))] if draw.random() < 0.5 else whole)
        for _ in range(draw.randint(1, 8)):
            if damaged:
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        file.write_bytes(damaged)
        try:
            read_state(file)
        except DataError:
            continue
