"""Adapters of low rank: what PEFT would merge is merged, and an adapter that does not fit is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mbd.errors import DataError
from mbd.model.lora import merge_adapter
from mbd.randomness import stream
from mbd.tensors import Array
from tests.refusals import refused


def normal(*shape: int) -> Array:
    return stream(0, str(shape)).standard_normal(shape).astype(np.float32)


BASE = {"layer.query.weight": normal(4, 3), "layer.query.bias": normal(4), "words.weight": normal(9, 4)}
A, B = normal(2, 3), normal(4, 2)
WRAPPED = "base_model.model."
FACTORS = {f"{WRAPPED}layer.query.lora_A.weight": A, f"{WRAPPED}layer.query.lora_B.weight": B}


def adapter(folder: Path, tensors: dict[str, Array], **settings: Any) -> Path:
    configuration = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(configuration))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, 3.0),
        ({"use_rslora": True}, 6 / 2**0.5),
        ({"alpha_pattern": {"query": 1}}, 0.5),
        ({"alpha_pattern": {"key": 1}}, 3.0),
    ],
)
def test_the_product_of_the_factors_is_added(tmp_path: Path, settings: dict[str, Any], scale: float) -> None:
    merged = merge_adapter(BASE, adapter(tmp_path, FACTORS, **settings), {})
    np.testing.assert_allclose(merged["layer.query.weight"], BASE["layer.query.weight"] + scale * B @ A, rtol=1e-5)
    assert merged["words.weight"] is BASE["words.weight"]
    assert merged["layer.query.weight"].dtype == np.float32


def test_weights_that_are_stored_the_other_way_round_and_embeddings_take_the_transposed(tmp_path: Path) -> None:
    base = {**BASE, "layer.query.weight": BASE["layer.query.weight"].T.copy()}
    merged = merge_adapter(base, adapter(tmp_path, FACTORS, fan_in_fan_out=True), {})
    np.testing.assert_allclose(merged["layer.query.weight"], base["layer.query.weight"] + 3 * (B @ A).T, rtol=1e-5)
    a, b = normal(2, 9), normal(4, 2)
    words = {f"{WRAPPED}words.lora_embedding_A": a, f"{WRAPPED}words.lora_embedding_B": b}
    merged = merge_adapter(BASE, adapter(tmp_path, words), {})
    np.testing.assert_allclose(merged["words.weight"], BASE["words.weight"] + 3 * (b @ a).T, rtol=1e-5)


def test_layers_that_were_saved_whole_replace_those_of_the_model(tmp_path: Path) -> None:
    merged = merge_adapter(BASE, adapter(tmp_path, {f"{WRAPPED}layer.query.bias": np.ones(4, np.float32)}), {})
    assert merged["layer.query.bias"].tolist() == [1, 1, 1, 1]


def test_an_adapter_of_a_submodule_finds_it_by_a_new_beginning(tmp_path: Path) -> None:
    base = {f"encoder.{name}": x for name, x in BASE.items()}
    with refused(DataError, key="layer.query.weight", value="(4, 3) in the adapter, missing in the model") as refusal:
        merge_adapter(base, adapter(tmp_path, FACTORS), {})
    assert "model.rename" in str(refusal.value.hint)
    merged = merge_adapter(base, tmp_path, {WRAPPED: "encoder."})
    np.testing.assert_allclose(merged["encoder.layer.query.weight"] - BASE["layer.query.weight"], 3 * B @ A, atol=1e-5)


@pytest.mark.parametrize(
    ("tensors", "settings", "message"),
    [
        (FACTORS, {"peft_type": "IA3"}, "only adapters of low rank"),
        (FACTORS, {"use_dora": True}, "only adapters of low rank"),
        ({next(iter(FACTORS)): A}, {}, "no two matrices"),
        ({f"{WRAPPED}layer.query.lora_magnitude_vector": normal(4)}, {}, "does not fit"),
    ],
)
def test_what_cannot_be_merged_is_refused(
    tmp_path: Path, tensors: dict[str, Array], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        merge_adapter(BASE, adapter(tmp_path, tensors, **settings), {})


def test_a_folder_without_a_configuration_is_bad_data(tmp_path: Path) -> None:
    with refused(DataError, key=None, file=tmp_path / "adapter_config.json"):
        merge_adapter(BASE, tmp_path, {})
    (tmp_path / "adapter_config.json").write_text("[]")
    with refused(DataError, key="peft_type"):
        merge_adapter(BASE, tmp_path, {})
