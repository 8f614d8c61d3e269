"""Models that were trained elsewhere: to a model folder, an error for each mistake, and what is said of branches."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import mbd
from mbd.errors import DataError, UsageError
from mbd.formats.features import Shape
from mbd.model.checkpoint import load_model
from mbd.model.examples.late_fusion import LateFusion
from mbd.model.predictor import load
from mbd.params import Params, load_params
from mbd.steps import import_model
from tests.command import run_mbd
from tests.features.build import synthetic_set
from tests.foreign_modules import FOREIGN, foreign_set
from tests.refusals import refused

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
    with refused(DataError, key="encoders.audio.0.weight") as refusal:
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
    with refused(DataError, match="no such file", hint="safetensors"):
        import_model.run(params(), tmp_path / "w.pt", data, ["text"], tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_state_dict_that_does_not_fit_is_refused_with_the_tensor(data: Path, tmp_path: Path) -> None:
    torch.save(module().state_dict(), tmp_path / "w.pt")
    with refused(DataError, key="encoders.text.0.weight"):
        import_model.run(
            params("model.options={hidden: 9}"),
            tmp_path / "w.pt",
            data,
            ["text", "audio", "visual"],
            tmp_path / "model",
        )
    assert not (tmp_path / "model").exists()


def test_the_factory_and_known_modalities_have_to_be_named(data: Path, tmp_path: Path) -> None:
    torch.save(module().state_dict(), tmp_path / "w.pt")
    with refused(UsageError, key="model.backbone", value="joint"):
        import_model.run(load_params(None, []), tmp_path / "w.pt", data, ["text"], tmp_path / "model")
    with refused(UsageError, key="--trained-on"):
        import_model.run(params(), tmp_path / "w.pt", data, ["smell"], tmp_path / "model")


FOREIGN_MODULE = FOREIGN["cross-modal"]
SETTING = "model.branches.audio=[pairs.l_with_a, pairs.v_with_a, memories.a]"
TRAINING = {"training.epochs": 1, "training.optimiser": "adamw"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and a cross-modal model of fixed shape that was trained without branches."""
    folder = tmp_path_factory.mktemp("branches")
    sizes = {"train": 48, "valid": 16, "test": 16, "calibration": 16}
    foreign_set(folder / "data", FOREIGN_MODULE.kind, sizes=sizes)
    mbd.train(folder / "data", folder / "model", params={**TRAINING, "model.backbone": FOREIGN_MODULE.backbone})
    return folder


def test_the_proposal_is_a_table_with_sizes_and_the_line_that_accepts_it(folder: Path) -> None:
    shown = run_mbd("branches", folder / "model", "--modality", "audio").stdout
    rows = [line.split() for line in shown.splitlines()]
    assert ["pairs.l_with_a", "text,", "audio", "164", "no"] in rows
    assert "audio: 1,656 of 3,469 numbers exist for it alone with these branches; " in shown
    assert "memories.l, memories.v, mix and out heard audio in training too" in shown
    assert f"to accept: --set '{SETTING}'" in shown


def test_json_has_every_modality_and_what_is_missing(folder: Path) -> None:
    proposals = json.loads(run_mbd("branches", folder / "model", "--json").stdout)
    assert list(proposals) == ["text", "audio", "visual"]
    assert proposals["audio"]["setting"] == SETTING
    assert proposals["audio"]["missing"] == list(FOREIGN_MODULE.branches)
    assert proposals["audio"]["cut"] < proposals["audio"]["cut_with_proposal"]


def test_several_modalities_are_looked_at_one_by_one_and_together(folder: Path) -> None:
    both = ("--modality", "audio", "--modality", "visual")
    proposals = json.loads(run_mbd("branches", folder / "model", *both, "--json").stdout)
    assert list(proposals) == ["audio", "visual", "audio and visual"]
    assert proposals["audio and visual"]["gone"] == ["audio", "visual"]


def test_branches_of_the_parameters_are_compared_with_the_proposal(folder: Path) -> None:
    settings = ("--set", f"model.backbone={FOREIGN_MODULE.backbone}", "--set", SETTING)
    shown = run_mbd("branches", folder / "model", "--modality", "audio", *settings).stdout
    assert "all are named" in shown
    assert "to accept" not in shown


def test_an_import_prints_the_proposal(folder: Path, tmp_path: Path) -> None:
    weights = ("--weights", folder / "model" / "model.safetensors", "--features", folder / "data")
    trained_on = [part for m in FOREIGN_MODULE.shapes for part in ("--trained-on", m)]
    settings = ("--set", f"model.backbone={FOREIGN_MODULE.backbone}")
    done = run_mbd("import", *weights, *trained_on, *settings, "--out", tmp_path / "model")
    assert f"to accept: --set '{SETTING}'" in done.stderr
    named = run_mbd("import", *weights, *trained_on, *settings, "--set", SETTING, "--out", tmp_path / "named")
    assert "model.branches.audio" not in named.stderr.partition("next:")[0]


def test_a_deletion_that_would_cut_inputs_alone_is_refused_with_the_proposal(folder: Path, tmp_path: Path) -> None:
    params = {**TRAINING, "model.backbone": FOREIGN_MODULE.backbone, "deletion.method": "surgery"}
    with refused(mbd.UsageError, hint=SETTING):
        mbd.delete(folder / "data", folder / "model", ["audio"], tmp_path / "deleted", params=params)
    assert not (tmp_path / "deleted").exists()


def test_only_modules_of_ones_own_and_modalities_that_they_take_have_branches(folder: Path, tmp_path: Path) -> None:
    refused = run_mbd("branches", folder / "model", "--modality", "smell")
    assert refused.exit_code == 2
    assert "the model takes no smell" in refused.stderr
    synthetic_set(tmp_path / "data")
    mbd.train(tmp_path / "data", tmp_path / "joint", params={**TRAINING, "model.backbone": "joint"})
    refused = run_mbd("branches", tmp_path / "joint")
    assert refused.exit_code == 2
    assert "only a module of one's own has branches" in refused.stderr
