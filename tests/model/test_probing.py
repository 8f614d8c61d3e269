"""What of a module exists for one modality alone is found by probing, for layers of every kind."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mbd.errors import UsageError
from mbd.formats.features import Shape
from mbd.model import probing
from mbd.model.checkpoint import kept_columns
from mbd.model.contract import Architecture
from mbd.model.examples.crossmodal import CrossModalTransformer
from mbd.model.examples.late_fusion import LateFusion
from mbd.model.examples.tensor_fusion import TensorFusion
from mbd.model.joint import provenance, to_tensor_dict
from mbd.model.networks import JointNetwork
from mbd.model.probing import Provenance, TensorProbe, probe
from mbd.params.learning import JointSettings
from tests.foreign_modules import FOREIGN, ForeignModule
from tests.model.modules import (
    MIXED,
    SEQUENCES,
    SIX_STREAMS_BRANCHES,
    VECTORS,
    Concatenation,
    Perception,
    Recurrent,
    Tensors,
    WrappedSixStreams,
)
from tests.refusals import refused

SHRINKING = {
    "late fusion": Architecture(LateFusion, VECTORS, 1, {"hidden": 8}),
    "tensor fusion": Architecture(TensorFusion, VECTORS, 2, {"code": 2, "hidden": 5}),
    "cross-modal transformer": Architecture(CrossModalTransformer, SEQUENCES, 1, {"width": 8, "heads": 2}),
    "transformer over tokens and vectors": Architecture(
        CrossModalTransformer,
        {"text": MIXED["text"], "audio": Shape.vector(3), "video": SEQUENCES["video"]},
        3,
        {"width": 8, "heads": 2, "layers": 1},
    ),
    "batch norm and weight norm": Architecture(Concatenation, VECTORS, 1),
    "recurrent": Architecture(Recurrent, SEQUENCES, 2),
    "embedding, convolutions, tied weights": Architecture(Perception, MIXED, 3),
}


def dead_entries(found: Provenance) -> int:
    """How many entries exist for the modality alone."""
    return sum(int((~part.alive).sum()) for part in found.tensors.values())


def test_the_same_architecture_is_probed_once_and_another_one_again() -> None:
    found = probe(Architecture(LateFusion, VECTORS, 1, {"hidden": 8}), "audio")
    assert probe(Architecture(LateFusion, dict(VECTORS), 1, {"hidden": 8}), "audio") is found
    other_order = {m: VECTORS[m] for m in reversed(VECTORS)}
    for other in (
        Architecture(LateFusion, VECTORS, 1, {"hidden": 9}),
        Architecture(LateFusion, VECTORS, 2, {"hidden": 8}),
        Architecture(LateFusion, other_order, 1, {"hidden": 8}),
        Architecture(partial(LateFusion), VECTORS, 1, {"hidden": 8}),
    ):
        assert probe(other, "audio") is not found
    assert probe(SHRINKING["late fusion"], "text").gone == ("text",)


@pytest.mark.parametrize("name", SHRINKING)
def test_alive_positions_are_those_of_the_smaller_model(name: str) -> None:
    architecture = SHRINKING[name]
    for modality in architecture.modalities:
        found = probe(architecture, modality)
        assert architecture.without([modality]) is not architecture
        assert found.same_function, modality
        assert dead_entries(found)


def test_columns_of_a_modality_may_be_interleaved() -> None:
    kept = probe(SHRINKING["tensor fusion"], "audio").tensors["fusion.weight"].kept
    assert kept is not None
    # text, audio and video have two code entries and a constant; what remains has the constant of audio.
    expected = [t * 9 + v for t in range(3) for v in range(3)]
    assert kept[1].tolist() == expected


def test_dead_entries_of_a_kept_tensor_become_zero() -> None:
    found = probe(SHRINKING["late fusion"], "audio")
    kept = found.tensors["head.weight"].kept
    alive = np.arange(8)[None] != 3
    cut = TensorProbe(alive, kept).cut(np.ones((1, 8), np.float32))
    assert cut.tolist() == [[1, 1, 1, 0, 1, 1, 1, 1]]


def test_statistics_of_batch_norm_are_found_as_filled_by_training() -> None:
    found = probe(SHRINKING["batch norm and weight norm"], "audio")
    assert found.filled == tuple(f"norms.{m}.running_{part}" for m in sorted(VECTORS) for part in ("mean", "var"))
    assert found.tensors["norms.audio.running_var"].dead
    assert found.tensors["norms.text.running_var"].alive.all()
    assert found.tensors["hidden.weight"].kept is not None  # not the two tensors that weight norm keeps instead


def test_tied_weights_live_and_die_together() -> None:
    found = probe(SHRINKING["embedding, convolutions, tied weights"], "text")
    assert found.tensors["words.weight"].dead
    assert found.tensors["mixing.weight"].dead
    found = probe(SHRINKING["embedding, convolutions, tied weights"], "image")
    assert found.tensors["words.weight"].alive.all()  # every token id of the vocabulary
    assert found.tensors["mixing.weight"].alive.all()


def test_a_model_of_fixed_shape_has_dead_entries_only_by_its_branches() -> None:
    architecture = Architecture(WrappedSixStreams, SEQUENCES, 1)
    assert architecture.without(["audio"]) is architecture
    plain = probe(architecture, "audio")
    assert plain.only_inputs
    assert [name for name, part in plain.tensors.items() if not part.alive.all()] == ["project.a.weight"]
    named = probe(Architecture(WrappedSixStreams, SEQUENCES, 1, branches=SIX_STREAMS_BRANCHES), "audio")
    assert not named.only_inputs
    dead = {name.split(".")[1] for name, part in named.tensors.items() if part.dead}
    assert dead == {"a", "a_with_l", "a_with_v", "l_with_a", "v_with_a"}
    assert dead_entries(named) > 10 * dead_entries(plain)


def test_a_factory_that_ignores_the_modalities_has_a_fixed_shape() -> None:
    def factory(modalities: Mapping[str, Shape], outputs: int) -> nn.Module:
        del modalities
        return LateFusion(VECTORS, outputs, hidden=4)

    architecture = Architecture(factory, VECTORS, 1)
    assert architecture.without(["audio"]) is architecture
    assert all(part.kept is not None for part in probe(architecture, "audio").tensors.values())


def test_probing_finds_what_the_record_of_a_joint_model_says() -> None:
    settings = JointSettings(hidden=8, embedding=6, property_dim=5)

    def factory(modalities: Mapping[str, Shape], outputs: int) -> nn.Module:
        return JointNetwork({m: s.width for m, s in modalities.items()}, outputs, settings)

    found = probe(Architecture(factory, VECTORS, 1), "audio")
    dims = {m: s.width for m, s in VECTORS.items()}
    for name, entry in provenance(to_tensor_dict(JointNetwork(dims, 1, settings)), dims).items():
        kept = found.tensors[name].kept
        assert (kept is None) == (entry.belongs_to == "audio")
        if kept is not None and entry.shape:
            assert kept[-1].tolist() == np.flatnonzero(kept_columns(entry, ["audio"])).tolist()
    assert found.same_function


def test_probing_twice_finds_the_same() -> None:
    first = probe(SHRINKING["recurrent"], "video")
    probing._probe.cache_clear()
    second = probe(SHRINKING["recurrent"], "video")
    assert second is not first
    assert all(np.array_equal(part.alive, second.tensors[name].alive) for name, part in first.tensors.items())


def foreign(name: str, *, named: bool = True) -> Architecture:
    """A published-style module of fixed shape, with the branches of audio named or not."""
    module: ForeignModule = FOREIGN[name]
    return Architecture(module.factory, module.shapes, 1, branches={"audio": module.branches} if named else {})


@pytest.mark.parametrize("name", FOREIGN)
def test_what_no_modality_uses_is_listed_and_left_as_it_is(name: str) -> None:
    found = probe(foreign(name), "audio")
    whole = {tensor for tensor, number in found.unused.items() if number == found.tensors[tensor].alive.size}
    assert whole == {tensor for tensor in found.tensors if tensor.startswith(FOREIGN[name].unused)} - {""}
    assert all(found.tensors[tensor].alive.all() for tensor in whole)


def test_padding_and_positions_beyond_the_longest_row_are_unused_and_every_word_is_alive() -> None:
    found = probe(foreign("gated shift"), "audio")
    assert found.unused["words.weight"] == 8  # one row of 30
    assert found.unused["positions.weight"] == 18 * 8  # of 24 positions for 6 words
    assert found.tensors["words.weight"].alive.all()
    without_words = probe(foreign("gated shift", named=False), "text")
    assert not without_words.tensors["words.weight"].alive[1:].any()


def test_products_of_rectified_codes_are_all_alive_and_go_with_the_branch() -> None:
    assert not dead_entries(probe(foreign("tensor fusion", named=False), "audio"))
    code, hidden = 4, 8
    fusion = probe(foreign("tensor fusion"), "audio").tensors["fusion.weight"]
    assert (~fusion.alive).sum() == hidden * (code + 1) * code * (code + 1)  # all but those of audio's constant


def test_a_buffer_that_counts_is_not_filled_from_the_data() -> None:
    found = probe(foreign("shared trunk"), "audio")
    assert "batches" not in found.filled
    assert "norms.text.running_mean" in found.filled


def test_the_unused_part_of_a_branch_goes_with_it() -> None:
    class WithPooler(LateFusion):
        """Of fixed shape; each encoder has a layer that nothing calls."""

        def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
            del modalities
            super().__init__(VECTORS, outputs)
            for encoder in self.encoders.values():
                encoder.add_module("pooler", nn.ModuleDict({"dense": nn.Linear(2, 2)}))

    class Fixed(WithPooler):
        def forward(self, features: Tensors, available: Tensors) -> Tensor:
            codes = [encoder[0](features[m]) for m, encoder in self.encoders.items()]  # type: ignore[index]
            masked = [code * available[m][:, None] for m, code in zip(self.encoders, codes, strict=True)]
            scores: Tensor = self.head(torch.stack(masked).sum(0))
            return scores

    found = probe(Architecture(Fixed, VECTORS, 1), "audio")
    assert found.tensors["encoders.audio.pooler.dense.weight"].dead
    assert found.tensors["encoders.text.pooler.dense.weight"].alive.all()
    assert "encoders.text.pooler.dense.weight" in found.unused


class Positional(nn.Module):
    """Encoders by number: without the first modality, the names of the others change."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
        super().__init__()
        self.names = list(modalities)
        self.encoders = nn.ModuleList(nn.Linear(s.width, outputs) for s in modalities.values())

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        parts = [e(features[m]) * available[m][:, None] for m, e in zip(self.names, self.encoders, strict=True)]
        return torch.stack(parts).sum(0)


class Leaking(LateFusion):
    """Multiplies nothing by `available`: biases of an absent modality go on."""

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        scores: Tensor = self.head(torch.stack([e(features[m]) for m, e in self.encoders.items()]).sum(0))
        return scores


class Noisy(LateFusion):
    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        return super().forward(features, available) + torch.rand(1)


class Remembering(LateFusion):
    memory: Any = 0.0

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        scores: Tensor = super().forward(features, available) + self.memory
        self.memory = features["audio"].mean()
        return scores


class Mixing(LateFusion):
    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        return super().forward(features, available) + features["audio"].mean()


@pytest.mark.parametrize(
    ("module", "modality", "message"),
    [
        (Positional, "text", "encoders.0.weight"),
        (Leaking, "audio", "encoders.audio.0.bias"),
        (Noisy, "audio", "draws random numbers in evaluation mode"),
        (Remembering, "audio", "hidden state"),
        (Mixing, "audio", "rows without audio still move with audio"),
    ],
)
def test_a_module_that_cannot_be_cut_is_refused_with_the_reason(
    module: type[nn.Module], modality: str, message: str
) -> None:
    with refused(UsageError, match=message):
        probe(Architecture(module, VECTORS, 1, name=module.__name__), modality)


def test_a_cut_that_changes_the_function_is_recorded() -> None:
    class Halved(LateFusion):
        def forward(self, features: Tensors, available: Tensors) -> Tensor:
            return super().forward(features, available) / len(self.encoders)

    found: Provenance = probe(Architecture(Halved, VECTORS, 1), "audio")
    assert any(part.kept is None for part in found.tensors.values())
    assert not found.same_function
