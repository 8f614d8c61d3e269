"""The contract of a model: what a factory must do, what absence is, and an error of its own for each mistake."""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import pytest
import torch
from torch import Tensor, nn

from mbd.errors import UsageError
from mbd.files import sha256_file
from mbd.formats.features import Shape
from mbd.model.contract import Architecture, example, load_factory, source_digest
from mbd.model.examples import late_fusion
from mbd.model.examples.late_fusion import LateFusion
from mbd.model.probing import probe
from mbd.params import load_params
from tests.model.modules import (
    MIXED,
    SEQUENCES,
    SIX_STREAMS_BRANCHES,
    VECTORS,
    Perception,
    Tensors,
    WrappedSixStreams,
)
from tests.refusals import refused


class Inputs(nn.Module):
    """Keeps what it is called with."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.seen: tuple[Tensors, Tensors] = ({}, {})

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        self.seen = features, available
        return torch.zeros(len(available["audio"]), self.outputs)


def test_an_absent_modality_is_zeros_of_length_one_whatever_is_passed_in() -> None:
    module = Architecture(Inputs, MIXED, 1).build()
    assert isinstance(module, Inputs)
    features, available = example(MIXED, 4, seed=0)
    available |= {m: torch.tensor([True, False, True, True]) for m in ("text", "audio")}
    features["audio"][1] = torch.nan
    module(features, available)
    seen, _ = module.seen
    assert not seen["audio"][1].any()
    assert seen["audio_lengths"][1] == seen["text_lengths"][1] == 1
    assert torch.equal(seen["audio"][2], features["audio"][2])
    assert seen["text"].dtype == torch.int64


def test_a_modality_that_is_not_given_is_absent_in_all_rows() -> None:
    module = Architecture(Inputs, MIXED, 1).build()
    assert isinstance(module, Inputs)
    features, available = example({"text": MIXED["text"]}, 3, seed=0)
    module(features, available)
    seen, there = module.seen
    assert seen["image"].shape == (3, 2, 8, 8)
    assert not seen["image"].any()
    assert not there["image"].any()


def test_outputs_of_branches_are_zero_in_the_rows_that_lack_the_modality() -> None:
    architecture = Architecture(WrappedSixStreams, SEQUENCES, 1, branches=SIX_STREAMS_BRANCHES)
    module = architecture.build()
    found: dict[str, Tensor] = {}
    module.get_submodule("memories.a").register_forward_hook(lambda _, __, out: found.update(a=out))
    features, available = example(SEQUENCES, 4, seed=0)
    available["audio"] = torch.tensor([True, False, True, False])
    module.eval()(features, available)
    rows = found["a"].abs().sum((0, 2)) > 0  # frames come first in this model
    assert rows.tolist() == [True, False, True, False]


def test_a_factory_builds_the_same_weights_for_one_seed_and_leaves_the_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (
        Architecture(LateFusion, VECTORS, 1).build(seed=seed).state_dict()["head.weight"] for seed in (0, 0, 1)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_modality_the_architecture_is_smaller_or_fixed() -> None:
    smaller = Architecture(LateFusion, VECTORS, 1).without(["audio"])
    assert list(smaller.modalities) == ["text", "video"]
    fixed = Architecture(WrappedSixStreams, SEQUENCES, 1)
    assert fixed.without(["audio"]) is fixed


def test_the_source_of_a_factory_has_the_digest_of_its_file() -> None:
    assert late_fusion.__file__ is not None
    factory = load_factory("mbd.model.examples.late_fusion:LateFusion")
    assert factory is LateFusion
    assert source_digest(factory) == sha256_file(Path(late_fusion.__file__))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_package.module:Factory", "cannot be imported: ModuleNotFoundError"),
        ("mbd.model.examples.late_fusion:Missing", "cannot be imported: AttributeError"),
        ("mbd.model.probing:PATIENCE", "is a int, which cannot be called"),
    ],
)
def test_a_factory_that_cannot_be_imported_is_named(path: str, message: str) -> None:
    with refused(UsageError, match=message, key="model.backbone", value=path):
        load_factory(path)


def test_a_factory_that_fails_for_the_shapes_given_is_named_with_them() -> None:
    with pytest.raises(UsageError, match="fails for the shapes given") as refusal:
        Architecture(Perception, VECTORS, 1, name="tests:Perception").build()
    assert "tests:Perception for text vector 6" in str(refusal.value.value)


def test_options_that_the_factory_does_not_know_are_refused() -> None:
    with pytest.raises(UsageError, match="unexpected keyword argument 'depth'"):
        Architecture(LateFusion, VECTORS, 1, {"depth": 3}).build()


def test_a_factory_that_returns_no_module_is_refused() -> None:
    with pytest.raises(UsageError, match="returned a dict"):
        Architecture(lambda *_: {}, VECTORS, 1).build()  # type: ignore[arg-type]


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_wrong_output_shape_is_refused(outputs: int) -> None:
    architecture = Architecture(LateFusion, VECTORS, outputs)
    architecture.check(architecture.build())
    with refused(UsageError, match="one row of 2 numbers"):
        Architecture(LateFusion, VECTORS, 2).check(architecture.build())


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        ({"audio": ["streams.x"]}, "no submodule 'streams.x'"),
        ({"audio": ["project.a.weight"]}, "no submodule"),
        ({"audio": ["memories"]}, "never runs"),
    ],
)
def test_branches_that_do_not_exist_or_never_run_are_refused(branches: dict[str, list[str]], message: str) -> None:
    with refused(UsageError, match=message, key="model.branches.audio"):
        Architecture(WrappedSixStreams, SEQUENCES, 1, branches=branches).build()


def test_a_branch_without_an_axis_of_rows_is_refused() -> None:
    class Pooled(LateFusion):
        def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
            super().__init__(modalities, outputs)
            self.mean = nn.Flatten(0)

        def forward(self, features: Tensors, available: Tensors) -> Tensor:
            scores: Tensor = super().forward(features, available) + 0 * self.mean(features["audio"]).mean()
            return scores

    with refused(UsageError, match="no axis of rows", key="model.branches.audio"):
        Architecture(Pooled, VECTORS, 1, branches={"audio": ["mean"]}).build()


def test_branches_are_for_import_paths_only() -> None:
    with pytest.raises(UsageError, match="has branches"):
        load_params(None, ["model.backbone=joint", "model.branches={audio: [x]}"])
    params = load_params(
        None, ["model.backbone=my.package:Factory", "model.branches={audio: [x]}", "model.options={a: 1}"]
    )
    assert params.model.branches == {"audio": ("x",)}


class Counted(LateFusion):
    """Counts how often it is built."""

    built = 0

    def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
        super().__init__(modalities, outputs, hidden=4)
        self.tied = self.head
        self.register_buffer("table", torch.arange(3.0))
        Counted.built += 1


def test_a_factory_that_loads_pretrained_weights_is_called_once_for_any_number_of_modules() -> None:
    architecture = Architecture(Counted, VECTORS, 1)
    first, second = architecture.blank(), Architecture(Counted, dict(VECTORS), 1).blank()
    assert Counted.built == 1
    assert not any(bool(parameter.any()) for parameter in first.parameters())
    assert {id(p) for p in first.parameters()}.isdisjoint(id(p) for p in second.parameters())
    assert first.get_parameter("tied.weight") is first.get_parameter("head.weight")
    assert first.get_buffer("table").tolist() == [0, 1, 2]
    weights = architecture.build().state_dict()
    first.load_state_dict(weights)
    features, available = example(VECTORS, 3, seed=0)
    without = {**available, "audio": torch.zeros(3, dtype=torch.bool)}
    assert torch.equal(first(features, without), first({**features, "audio": features["audio"] * 2}, without))
    Counted.built = 0
    probe(architecture, "audio")
    assert Counted.built == 1  # for fewer modalities


class Locked(LateFusion):
    """Holds something that cannot be copied."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
        super().__init__(modalities, outputs, hidden=4)
        self.lock = Lock()


def test_a_module_that_cannot_be_copied_is_built_again() -> None:
    assert probe(Architecture(Locked, VECTORS, 1), "audio").tensors["encoders.audio.0.weight"].dead


class HeadForAll(nn.Module):
    """An encoder for each modality that it is given, and a head that is wide enough for three of them."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({m: nn.Linear(shape.width, 2) for m, shape in modalities.items()})
        self.head = nn.Linear(6, outputs)

    def forward(self, features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor:
        del available
        scores: Tensor = self.head(torch.cat([encoder(features[m]) for m, encoder in self.encoders.items()], dim=1))
        return scores


def test_a_factory_whose_smaller_model_does_not_run_has_a_fixed_shape() -> None:
    architecture = Architecture(HeadForAll, {m: Shape.vector(3) for m in ("text", "audio", "visual")}, 1)
    assert architecture.without(["audio"]) is architecture
