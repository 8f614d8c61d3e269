"""Anything that moves with m*'s input is found, by whatever way it gets in."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mbd.attacks import pathway
from mbd.attacks.setting import Setting
from mbd.attacks.suspect import Suspect
from mbd.model.checkpoint import load_model
from tests.attacks.models import blind_fusion, constant, noisy_input, renamed, setting_of, suspect_of, uncut, untrained


def values(suspect: Suspect, setting: Setting) -> list[float]:
    return [evidence.value for evidence in pathway.attack(suspect, setting)]


@pytest.mark.parametrize("name", ["deleted", "reference"])
def test_nothing_moves_in_a_model_without_the_modality(home: Path, name: str) -> None:
    assert values(suspect_of(home, name), setting_of(home)) == [0, 0]


@pytest.mark.parametrize("made", [untrained, constant])
def test_a_useless_model_leaks_nothing(home: Path, tmp_path: Path, made: Callable[[Path, Path], Path]) -> None:
    made(home, tmp_path / "useless")
    assert values(suspect_of(tmp_path, "useless"), setting_of(home)) == [0, 0]


@pytest.mark.parametrize("made", [renamed, blind_fusion, noisy_input, uncut])
def test_a_deletion_that_is_none_is_seen(home: Path, tmp_path: Path, made: Callable[[Path, Path], Path]) -> None:
    made(home, tmp_path / "false")
    share, size = values(suspect_of(tmp_path, "false"), setting_of(home))
    assert share == 1
    assert size > 0.1


def test_a_single_column_that_still_reads_the_modality_is_enough(home: Path) -> None:
    record, tensors = load_model(home / "model")
    almost = {name: np.array(x) for name, x in tensors.items()}
    for name, entry in record.tensors.items():
        for part in entry.columns:
            if part.reads == "audio":
                almost[name][:, part.start : part.stop] = 0
    setting = setting_of(home)
    blind = Suspect.of("after", record, almost)
    assert values(blind, setting) == [0, 0]
    start = next(part.start for part in record.tensors["fusion.hidden.weight"].columns if part.reads == "audio")
    almost["fusion.hidden.weight"][:, start] = 0.01
    share, size = values(Suspect.of("after", record, almost), setting)
    assert share > 0.9
    assert size > 0
