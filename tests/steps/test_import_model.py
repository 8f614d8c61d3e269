"""Models that were trained elsewhere: from a state_dict to a model folder, and an error of its own for each mistake."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from mbd.errors import DataError, UsageError
from mbd.formats.features import Shape
from mbd.model.checkpoint import load_model
from mbd.model.examples.late_fusion import LateFusion
from mbd.model.predictor import load
from mbd.params import Params, load_params
from mbd.steps import import_model
from tests.features.build import synthetic_set
from tests.foreign_modules import FOREIGN, foreign_set

DIMS = {"text": 12, "audio": 6, "visual": 8}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_set(tmp_path_factory.mktemp("import") / "data")


def module(hidden: int = 8, dims: dict[str, int] | None = None) -> LateFusion:
    torch.manual_seed(0)
    return LateFusion({m: Shape.vector(d) for m, d in (dims or DIMS).items()}, 1, hidden)


SETTINGS = ("model.backbone=mbd.model.examples.late_fusion:LateFusion", "model.options={hidden: 8}")


def params(*settings: str) -> Params:
    return load_params(None, [*SETTINGS, *settings])


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_an_imported_model_answers_as_the_module_did(data: Path, tmp_path: Path, suffix: str) -> None:
    own, file = module(), tmp_path / f"weights.{suffix}"
    if suffix == "pt":
        torch.save(own.state_dict(), file)
    else:
        save_file(own.state_dict(), file, metadata={"format": "pt"})
    result = import_model.run(params(), file, data, ["text", "audio", "visual"], tmp_path / "model")
    assert set(result.metrics) == {"valid", "test"}
    rng = np.random.default_rng(0)
    rows = {m: rng.standard_normal((4, d), dtype=np.float32) for m, d in DIMS.items()}
    with torch.no_grad():
        expected = own({m: torch.from_numpy(x) for m, x in rows.items()}, {m: torch.ones(4) > 0 for m in rows})
    assert np.allclose(load(tmp_path / "model").predict(rows), expected[:, 0].numpy(), atol=1e-5)
    record = load_model(tmp_path / "model")[0]
    assert record.tensors["encoders.audio.0.weight"].belongs_to == "audio"
    assert record.tensors["head.weight"].sees == ("text", "audio", "visual")


def test_a_model_trained_on_some_modalities_takes_these_alone(data: Path, tmp_path: Path) -> None:
    torch.save(module(dims={"text": 12, "visual": 8}).state_dict(), tmp_path / "w.pt")
    import_model.run(params(), tmp_path / "w.pt", data, ["text", "visual"], tmp_path / "model")
    assert list(load(tmp_path / "model").modalities) == ["text", "visual"]


def test_what_exists_for_a_modality_that_training_never_saw_is_zero_as_after_a_training_here(tmp_path: Path) -> None:
    foreign = FOREIGN["shared trunk"]
    state = foreign.factory(foreign.shapes, 1).state_dict()
    torch.save(state, tmp_path / "w.pt")
    data, named = foreign_set(tmp_path / "data", foreign.kind), f"model.branches.audio={list(foreign.branches)}"
    settings = load_params(None, [f"model.backbone={foreign.backbone}", named])
    import_model.run(settings, tmp_path / "w.pt", data, ["text", "visual"], tmp_path / "model")
    tensors = load_model(tmp_path / "model")[1]
    assert not tensors["maps.audio.weight"].any()
    assert np.array_equal(tensors["maps.text.weight"], state["maps.text.weight"].numpy())


class Planted:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch planted",)


def test_code_in_a_pickle_is_never_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"head.weight": Planted()}, tmp_path / "w.pt")
    with pytest.raises(DataError, match="more than tensors"):
        import_model.run(params(), tmp_path / "w.pt", data, ["text"], tmp_path / "model")
    assert not (tmp_path / "planted").exists()
    assert not (tmp_path / "model").exists()


def test_a_checkpoint_of_lightning_is_imported_and_a_table_says_what_became_of_its_tensors(
    data: Path, tmp_path: Path
) -> None:
    state = {f"model.{name}": x for name, x in module().state_dict().items()} | {"loss.weight": torch.ones(3)}
    checkpoint = {"epoch": 3, "state_dict": state, "optimizer_states": [{"state": {0: {"step": torch.ones(1)}}}]}
    torch.save(checkpoint, tmp_path / "last.ckpt")
    result = import_model.run(params(), tmp_path / "last.ckpt", data, ["text", "audio", "visual"], tmp_path / "model")
    assert [line.split() for line in import_model.to_text(result).splitlines()[:4]] == [
        ["in", "the", "file", "in", "the", "module", "tensors", "numbers"],
        ["model.encoders.…", "encoders.…", "18", "496"],
        ["model.head.…", "head.…", "2", "9"],
        ["loss…", "not", "used", "1", "3"],
    ]
    own = load_model(tmp_path / "model")[1]
    assert np.array_equal(own["head.weight"], state["model.head.weight"].numpy())


def test_other_names_are_refused_with_the_line_to_write_which_then_works(data: Path, tmp_path: Path) -> None:
    state = {name.replace("encoders.audio", "speech.net"): x for name, x in module().state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(DataError, match="do not fit the module") as refusal:
        import_model.run(params(), tmp_path / "w.pt", data, ["text", "audio", "visual"], tmp_path / "model")
    line = """--set 'model.rename={"speech.net.": "encoders.audio."}'"""
    assert refusal.value.hint == f"if these are the same layers, write {line}"
    renamed = params(line.removeprefix("--set ").strip("'"))
    import_model.run(renamed, tmp_path / "w.pt", data, ["text", "audio", "visual"], tmp_path / "model")
    assert "encoders.audio.0.weight" in load_model(tmp_path / "model")[1]


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_a_damaged_file_is_bad_data(data: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(DataError):
        import_model.run(params(), tmp_path / name, data, ["text"], tmp_path / "model")


def test_a_missing_file_is_an_error_that_says_what_to_give(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file") as refusal:
        import_model.run(params(), tmp_path / "w.pt", data, ["text"], tmp_path / "model")
    assert "safetensors" in str(refusal.value.hint)
    assert not (tmp_path / "model").exists()


def test_a_state_dict_that_does_not_fit_is_refused_with_the_tensor(data: Path, tmp_path: Path) -> None:
    torch.save(module().state_dict(), tmp_path / "w.pt")
    with pytest.raises(DataError, match="do not fit the module") as refusal:
        import_model.run(
            params("model.options={hidden: 9}"),
            tmp_path / "w.pt",
            data,
            ["text", "audio", "visual"],
            tmp_path / "model",
        )
    assert refusal.value.key == "encoders.text.0.weight"
    assert not (tmp_path / "model").exists()


def test_the_factory_and_known_modalities_have_to_be_named(data: Path, tmp_path: Path) -> None:
    torch.save(module().state_dict(), tmp_path / "w.pt")
    with pytest.raises(UsageError, match="factory"):
        import_model.run(load_params(None, []), tmp_path / "w.pt", data, ["text"], tmp_path / "model")
    with pytest.raises(UsageError, match="no modality 'smell'"):
        import_model.run(params(), tmp_path / "w.pt", data, ["smell"], tmp_path / "model")
