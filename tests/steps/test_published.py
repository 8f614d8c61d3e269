"""Models as others publish them, by `model.inputs` alone: from their own weights to a verified certificate."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import mbd
from mbd.formats.model import ModuleSpec
from mbd.model.checkpoint import load_model
from tests.foreign_modules import SHAPES, PublishedTensorFusion, foreign_set
from tests.steps.model_workspace import LOOP, METHODS, ModelWorkspace

POSITIONAL = {
    "model.backbone": "tests.foreign_modules:PublishedTensorFusion",
    "model.inputs": ["text", "audio", "visual"],
    "model.branches": {"audio": ["audio_net"]},
}
OPTIONS = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "vocab_size": 30,
    "visual_embedding_dim": 5,
}
VISUAL_BERT = {
    "model.backbone": "transformers:VisualBertForVisualReasoning",
    "model.inputs": {
        "input_ids": "text",
        "attention_mask": "text_mask",
        "visual_embeds": "visual",
        "visual_attention_mask": "visual_mask",
    },
    "model.output": "logits",
    "model.options": OPTIONS,
    "model.branches": {"visual": ["visual_bert.embeddings.visual_projection"]},
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    folder = tmp_path_factory.mktemp("published")
    return ModelWorkspace(folder, POSITIONAL, lambda out: foreign_set(out, "vectors"), imported=True)


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_modality_ends_in_a_verified_certificate(
    workspace: ModelWorkspace, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace.deletes_with_a_verified_certificate(method)


def test_the_gate_refuses_what_is_not_deleted(workspace: ModelWorkspace, tmp_path: Path) -> None:
    workspace.refuses_what_is_not_deleted(tmp_path)


def test_a_model_of_transformers_is_built_by_its_configuration(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    data = foreign_set(tmp_path / "data", "tokens", "features.source.modalities=[text, visual]")
    params, file = {**LOOP, **VISUAL_BERT}, tmp_path / "published" / "model.safetensors"
    torch.manual_seed(0)
    configuration = transformers.VisualBertConfig.from_dict({"num_labels": 1, **OPTIONS})
    published = transformers.VisualBertForVisualReasoning(configuration).eval()
    published.save_pretrained(file.parent)
    mbd.import_model(file, data, ["text", "visual"], tmp_path / "model", params=params)
    rows = mbd.FeatureSet.open(data).split("test").load()
    given = {name: torch.from_numpy(np.array(x)) for name, x in rows.inputs().items()}
    masks = {m: (torch.arange(6) < given[f"{m}_lengths"][:, None]).long() for m in ("text", "visual")}
    with torch.no_grad():
        expected = published(
            given["text"], masks["text"], visual_embeds=given["visual"], visual_attention_mask=masks["visual"]
        ).logits[:, 0]
    assert np.allclose(mbd.load(tmp_path / "model").predict(rows.inputs()), expected.numpy(), atol=1e-5)
    mbd.delete(
        data, tmp_path / "model", ["visual"], tmp_path / "deleted", params={**params, "deletion.method": "surgery"}
    )
    assert list(mbd.load(tmp_path / "deleted").modalities) == ["text"]


def test_an_adapter_is_merged_into_the_weights_of_a_folder(tmp_path: Path) -> None:
    data = foreign_set(tmp_path / "data", "vectors")
    torch.manual_seed(0)
    shapes = SHAPES["vectors"]
    published = PublishedTensorFusion(shapes["text"], shapes["audio"], shapes["visual"], 1)
    for name in ("base", "adapter"):
        (tmp_path / name).mkdir()
    save_file(published.state_dict(), tmp_path / "base" / "model.safetensors")
    a, b = torch.ones(2, 8), torch.ones(1, 2)
    factors = {"base_model.model.out.lora_A.weight": a, "base_model.model.out.lora_B.weight": b}
    save_file(factors, tmp_path / "adapter" / "adapter_model.safetensors")
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 4}')
    mbd.import_model(
        tmp_path / "base",
        data,
        ["text", "audio", "visual"],
        tmp_path / "model",
        adapter=tmp_path / "adapter",
        params=POSITIONAL,
    )
    tensors = load_model(tmp_path / "model")[1]
    assert np.allclose(tensors["out.weight"], published.out.weight.detach().numpy() + 2 * np.ones((1, 8)) * 2)


def test_a_model_says_how_it_is_called_and_is_trained_again_in_the_same_way(tmp_path: Path) -> None:
    data = foreign_set(tmp_path / "data", "vectors")
    params = {**POSITIONAL, "training.epochs": 1}
    mbd.train(data, tmp_path / "model", params=params)
    record = mbd.load(tmp_path / "model").record
    assert record.spec["inputs"] == ["text", "audio", "visual"]
    assert "output" not in record.spec
    assert ModuleSpec.model_validate(record.spec).recorded().model["inputs"] == ("text", "audio", "visual")
