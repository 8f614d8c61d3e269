"""No number that is released depends on the deleted modality in the rows that a deletion reads."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from mbd.deletion import certified, exact, surgery
from mbd.deletion.methods import DeletionOutcome, ModelBefore
from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.params import Params, load_params
from mbd.tensors import Array
from mbd.training.module import train_module
from mbd.training.trained import Trained
from tests.deletion.fixed_shapes import NormedTrunk
from tests.features.build import synthetic_set
from tests.refusals import refused

AUDIO = DeletionTarget(modalities=("audio",))
BRANCHES = "model.branches={audio: [encoders.audio]}"
HERE = "tests.deletion.fixed_shapes"
MODULES = {
    "low-rank fusion": (f"{HERE}:LowRankFusion",),
    "low-rank fusion, branches": (f"{HERE}:LowRankFusion", BRANCHES),
    "norm in the modality's path": (f"{HERE}:NormedTrunk",),
    "norm fed with zeros": (f"{HERE}:UnmaskedTrunk",),
    "norm fed with zeros, branches": (f"{HERE}:UnmaskedTrunk", BRANCHES),
    "a trunk that shrinks": (f"{HERE}:NormedTrunk", "model.options={fixed: false}"),
    "norms that shrink": ("tests.model.modules:Concatenation",),
}
UNBRANCHED = ("low-rank fusion", "norm fed with zeros")
"""of which nothing is known to be audio's own but inputs"""
every_module = pytest.mark.parametrize("name", MODULES)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_set(tmp_path_factory.mktemp("statistics") / "data")


@pytest.fixture(scope="module")
def other_audio(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data with other audio in every split, missing in other rows."""
    folder = tmp_path_factory.mktemp("statistics") / "other"
    shutil.copytree(data, folder)
    rng = np.random.default_rng(5)
    for file in folder.glob("splits/*/audio.safetensors"):
        arrays = load_file(file)
        arrays["available"] = rng.random(len(arrays["available"])) < 0.7
        arrays["features"] = rng.normal(3, 9, arrays["features"].shape).astype(np.float32)
        arrays["features"][~arrays["available"]] = 0
        save_file(arrays, file)
    return folder


def params_of(name: str, *settings: str) -> Params:
    backbone, *rest = MODULES[name]
    # a budget of less than one weight: Algorithm 1 chooses weights by looking at audio, the cut does not
    fixed = ("training.epochs=2", "deletion.surgery.budget=1e-9", "deletion.surgery.mantissa_bits=15")
    return load_params(None, [f"model.backbone={backbone}", *rest, *fixed, *settings])


_TRAINED: dict[str, Trained] = {}


def model_before(data: Path, name: str, folder: Path) -> ModelBefore:
    """A model that was trained on `data`, whose deletion reads `folder`."""
    if name not in _TRAINED:
        _TRAINED[name] = train_module(FeatureSet.open(data), params_of(name), work=data / "none", progress=False)
    return ModelBefore(_TRAINED[name].record, _TRAINED[name].tensors, FeatureSet.open(folder))


def assert_same_bytes(one: DeletionOutcome, other: DeletionOutcome) -> None:
    assert {n: np.asarray(t).tobytes() for n, t in one.tensors.items()} == {
        n: np.asarray(t).tobytes() for n, t in other.tensors.items()
    }


@pytest.mark.parametrize("name", [name for name in MODULES if name not in UNBRANCHED])
def test_surgery_releases_the_same_bytes_whatever_the_audio_of_the_calibration_rows(
    name: str, data: Path, other_audio: Path
) -> None:
    one, other = (surgery.delete(AUDIO, model_before(data, name, f), params_of(name)) for f in (data, other_audio))
    assert_same_bytes(one, other)


@every_module
def test_certified_releases_the_same_bytes_whatever_the_audio_of_any_row(
    name: str, data: Path, other_audio: Path, tmp_path: Path
) -> None:
    params = params_of(
        name, "deletion.noise_seed=1", f"deletion.ledgers={tmp_path}", "deletion.certified.finetune_epochs=1"
    )
    assert_same_bytes(*(certified.delete(AUDIO, model_before(data, name, f), params) for f in (data, other_audio)))


@every_module
def test_exact_releases_the_same_bytes_whatever_the_audio_of_any_row(name: str, data: Path, other_audio: Path) -> None:
    assert_same_bytes(*(exact.delete(AUDIO, model_before(data, name, f), params_of(name)) for f in (data, other_audio)))


@pytest.mark.parametrize("name", UNBRANCHED)
def test_surgery_of_inputs_alone_is_refused(name: str, data: Path) -> None:
    with refused(UsageError, key="model.branches.audio"):
        surgery.delete(AUDIO, model_before(data, name, data), params_of(name))


def test_the_cut_of_a_low_rank_fusion_is_compared_without_the_modality(data: Path) -> None:
    name = "low-rank fusion, branches"
    outcome = surgery.delete(AUDIO, model_before(data, name, data), params_of(name))
    assert outcome.facts["cut"]["same_predictions_without_it"]


def trunk_inputs(tensors: dict[str, Array], data: Path) -> Array:
    """What the norm of the trunk is given for the calibration rows without audio, computed by the module alone."""
    rows = FeatureSet.open(data, without=("audio",)).split("calibration").load()
    features = {m: torch.from_numpy(np.array(x)) for m, x in rows.features.items()}
    there = {m: torch.from_numpy(np.array(bits)) for m, bits in rows.available.items()}
    features["audio"], there["audio"] = torch.zeros(len(rows), 6), torch.zeros(len(rows), dtype=torch.bool)
    shapes = FeatureSet.open(data).shapes
    module = NormedTrunk(shapes, 1).eval()
    module.load_state_dict({name: torch.from_numpy(np.array(x)) for name, x in tensors.items()})
    seen: list[torch.Tensor] = []
    module.trunk[1].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        module(features, there)
    return seen[0].numpy()


def test_a_shared_norm_has_the_statistics_of_rows_without_the_modality(data: Path) -> None:
    name = "norm in the modality's path"
    outcome = surgery.delete(AUDIO, model_before(data, name, data), params_of(name))
    given = trunk_inputs(dict(outcome.tensors), data)
    assert np.allclose(outcome.tensors["trunk.1.running_mean"], given.mean(0), rtol=1e-3, atol=1e-3)
    assert not np.allclose(_TRAINED[name].tensors["trunk.1.running_mean"], given.mean(0), rtol=1e-2, atol=1e-2)


def test_a_norm_of_the_modality_alone_has_no_statistics_left(data: Path) -> None:
    name = "norm in the modality's path"
    outcome = surgery.delete(AUDIO, model_before(data, name, data), params_of(name))
    own = {n: t for n, t in outcome.tensors.items() if n.startswith("encoders.audio")}
    assert own
    assert not any(np.asarray(t).any() for t in own.values())
