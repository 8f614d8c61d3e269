"""Modules as others publish them: positional tensors, masks, batches as dictionaries, outputs of every kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from mbd.errors import UsageError
from mbd.formats.features import Shape
from mbd.model.contract import Architecture, example
from tests.foreign_modules import SHAPES, PublishedCrossModal
from tests.model.modules import MIXED, VECTORS, SixStreams
from tests.refusals import refused


class Remembering(nn.Module):
    """Keeps what it is called with."""

    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.seen: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    def forward(self, *arguments: Any, **named: Any) -> Tensor:
        self.seen = arguments, named
        first = next(iter([*arguments, *named.values()]))
        first = next(iter(first.values())) if isinstance(first, dict) else first
        return torch.zeros(len(first)) * self.scale


def call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Tensor]]:
    """Call a module with rows of which the second lacks audio; return what it got, and the features."""
    module = Architecture(Remembering, MIXED, 1, inputs=inputs).build()
    assert isinstance(module, Remembering)
    features, available = example(MIXED, 3, seed=0)
    features["audio_lengths"] = torch.tensor([8, 5, 2])
    assert module(features, {**available, "audio": torch.tensor([True, False, True])}).shape == (3, 1)
    return *module.seen, features


def test_arguments_are_passed_in_the_order_of_the_list() -> None:
    (audio, text, lengths), named, features = call(["audio", "text", "audio_lengths"])
    assert torch.equal(text, features["text"])
    assert torch.equal(audio[::2], features["audio"][::2])
    assert not audio[1].any()
    assert lengths.tolist() == [8, 1, 2]
    assert not named


def test_arguments_are_passed_by_name_with_masks_as_hugging_face_and_as_torch_has_them() -> None:
    inputs = {"input_ids": "text", "attention_mask": "audio_mask", "ignored": "audio_padding", "has": "audio_available"}
    positional, named, _ = call(inputs)
    assert not positional
    assert named["attention_mask"].tolist() == [[1] * 8, [1] + [0] * 7, [1, 1] + [0] * 6]
    assert named["attention_mask"].dtype == torch.int64
    assert torch.equal(named["ignored"], named["attention_mask"] == 0)
    assert named["has"].tolist() == [True, False, True]


def test_a_batch_is_passed_as_one_dictionary() -> None:
    (batch,), _, features = call([{"words": "text", "picture": "image"}])
    assert set(batch) == {"words", "picture"}
    assert torch.equal(batch["words"], features["text"])


@dataclass
class Answer:
    """An output as an object."""

    scores: Tensor


class Pair(NamedTuple):
    """An output as a tuple with names."""

    hidden: Tensor
    scores: Tensor


class Answering(nn.Module):
    """Returns its scores in whatever `wrap` makes of them."""

    def __init__(self, text: int, outputs: int, wrap: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.head, self.wrap = nn.Linear(text, outputs), wrap

    def forward(self, text: Tensor) -> object:
        return self.wrap(self.head(text))


@pytest.mark.parametrize(
    ("wrap", "output"),
    [
        (lambda x: {"scores": x, "hidden": x[:, :0]}, "scores"),
        (lambda x: {"M": {"scores": x}}, "M.scores"),
        (lambda x: (x[:, :0], x), 1),
        (lambda x: (x[:, :0], x), -1),
        (lambda x: Pair(x[:, :0], x), "scores"),
        (Answer, "scores"),
        (lambda x: [Answer(x)], "0.scores"),
        (lambda x: x, None),
        (lambda x: x[:, 0], None),
    ],
)
def test_the_output_is_found_in_what_the_module_returns(
    wrap: Callable[[Tensor], object], output: str | int | None
) -> None:
    architecture = Architecture(Answering, {"text": VECTORS["text"]}, 1, {"wrap": wrap}, inputs=["text"], output=output)
    module = architecture.build()
    architecture.check(module)
    features, available = example(architecture.modalities, 4, seed=0)
    assert isinstance(module, Answering)
    assert torch.equal(module(features, available), module.head(features["text"]))


@pytest.mark.parametrize("output", [None, "score", 7])
def test_an_output_that_is_not_there_is_refused_with_the_line_to_write(output: str | int | None) -> None:
    options = {"wrap": lambda x: {"hidden": x.repeat(1, 24), "scores": x}}
    architecture = Architecture(
        Answering, {"text": VECTORS["text"]}, 1, options, inputs=["text"], output=output, name="own:Answering"
    )
    with refused(UsageError, key="model.output") as refusal:
        architecture.check(architecture.build())
    assert refusal.value.hint == "it returns hidden (2 × 24), scores (2 × 1); write --set model.output=scores"


def test_an_input_that_stands_for_nothing_is_refused_with_those_that_do() -> None:
    with refused(UsageError, key="model.inputs") as refusal:
        Architecture(Remembering, MIXED, 1, inputs=["text", "image_mask"]).build()
    assert str(refusal.value.hint).startswith("there are text, text_available, text_lengths, text_mask, text_padding")


def test_a_modality_that_no_input_names_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    architecture = Architecture(Remembering, MIXED, 1, inputs=["text", "image"], name="own:Remembering")
    architecture.check(architecture.build())
    assert caplog.messages == ["own:Remembering never gets audio: model.inputs does not name it"]


def test_a_factory_gets_what_its_signature_names_and_its_options() -> None:
    architecture = Architecture(
        SixStreams, VECTORS, 2, {"text": 3, "audio": 2, "video": 2, "width": 2}, inputs=["text", "audio", "video"]
    )
    module = architecture.build()
    assert isinstance(module, SixStreams)
    assert module.out.weight.shape == (2, 12)
    assert Architecture(SixStreams, VECTORS, 1, inputs=["text"]).build().state_dict()["project.a.weight"].shape[1] == 4


def test_a_signature_names_a_modality_with_a_blank_as_python_can() -> None:
    class Gaze(nn.Module):
        def __init__(self, eye_gaze: int, outputs: int) -> None:
            super().__init__()
            self.out = nn.Linear(eye_gaze, outputs)

    module = Architecture(Gaze, {"eye gaze": Shape.vector(3)}, 2, inputs=["eye gaze"]).build()
    assert module.state_dict()["out.weight"].shape == (2, 3)


def test_a_published_module_keeps_its_names_and_takes_branches_by_them() -> None:
    branches = {"audio": ("pairs.l_with_a", "pairs.v_with_a", "memories.a")}
    shapes, inputs = SHAPES["sequences"], ["text", "audio", "visual"]
    architecture = Architecture(PublishedCrossModal, shapes, 1, branches=branches, inputs=inputs)
    module = architecture.build().eval()
    architecture.check(module)
    published = PublishedCrossModal(shapes["text"], shapes["audio"], shapes["visual"], 1)
    assert list(module.state_dict()) == list(published.state_dict())
    assert architecture.without(["audio"]) is architecture
    features, available = example(shapes, 4, seed=0)
    without = {**available, "audio": torch.zeros(4, dtype=torch.bool)}
    other = {**features, "audio": features["audio"] + 1}
    assert torch.equal(module(features, without), module(other, without))
    published.load_state_dict(module.state_dict())
    assert torch.equal(module(features, available), published.eval()(*(features[m] for m in inputs)))


def test_the_shape_of_a_vector_is_a_number_for_a_factory() -> None:
    class Layers(nn.Module):
        def __init__(self, modalities: Mapping[str, Any], outputs: int) -> None:
            super().__init__()
            text, audio = modalities["text"], modalities["audio"]
            self.norm, self.frames = nn.LayerNorm(text), nn.GRU(audio, 2)
            self.attention = nn.MultiheadAttention(text, 2)
            self.out = nn.Linear(text + 2 * audio, outputs)
            self.widths = (text.width, text.kind, text.size, str(audio))

    module = Architecture(Layers, VECTORS, 1).build()
    assert module.widths == (6, "vector", (6,), "vector 4")
    assert int(Shape.vector(3)) == 3
    with pytest.raises(TypeError, match="a sequence 8 × 4 is no number"):
        int(MIXED["audio"])
