"""The published-style modules of the tests have the traits that they stand for, and data that needs audio."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mbd.features.contract import FeatureSet
from mbd.model.contract import Architecture, example
from tests.foreign_modules import FOREIGN, SHAPES, ForeignModule, Kind, foreign_set


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_module_has_a_fixed_shape_and_its_branches_close_audio_off(foreign: ForeignModule) -> None:
    architecture = Architecture(foreign.factory, foreign.shapes, 1, branches={"audio": foreign.branches})
    module = architecture.build().eval()
    architecture.check(module)
    assert architecture.without(["audio"]) is architecture
    features, available = example(foreign.shapes, 4, seed=0)
    without = {**available, "audio": torch.zeros(4, dtype=torch.bool)}
    assert not torch.allclose(module(features, available), module(features, without))


@pytest.mark.parametrize("kind", SHAPES)
def test_the_label_has_a_part_that_only_audio_tells(tmp_path: Path, kind: Kind) -> None:
    rows = FeatureSet.open(foreign_set(tmp_path / "data", kind)).split("train").load()
    hidden = rows.features["audio"].reshape(len(rows), -1).mean(1)
    assert np.corrcoef(hidden, rows.labels)[0, 1] ** 2 > 0.2
    assert abs(np.corrcoef(hidden, rows.features["visual"].reshape(len(rows), -1).mean(1))[0, 1]) < 0.2
