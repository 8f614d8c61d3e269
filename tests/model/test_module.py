"""A module of fixed shape that lost a modality: closed where we load it, open to somebody who has the file."""

import numpy as np
import pytest
import torch
from torch import Tensor

from mbd.errors import UsageError
from mbd.formats.features import Shape
from mbd.formats.model import DataRecord, ModelRecord
from mbd.model.checkpoint import describe
from mbd.model.contract import Architecture
from mbd.model.joint import to_tensor_dict
from mbd.model.module import ModuleBackbone, from_tensors, spec_of
from mbd.model.predictor import Model
from mbd.randomness import stream
from mbd.tensors import Array
from tests.model.modules import FixedVectors, Tensors

SHAPES = {"text": Shape.vector(6), "audio": Shape.vector(4), "visual": Shape.vector(5)}
NAME = "tests.model.test_module:Rebuilding"


class Rebuilding(FixedVectors):
    """A module of fixed shape that also makes text of all it is given."""

    def reconstruct(self, features: Tensors, available: Tensors) -> Tensors:
        mixed: Tensor = torch.cat([self.encoders[m](features[m]) for m in self.encoders], dim=1)
        return {"text": mixed[:, -12:-6]}


def a_model(*taken: str, revoked: tuple[str, ...] = (), closed: bool = True) -> Model:
    """A module that is built for three modalities and takes some of them."""
    architecture = Architecture(Rebuilding, SHAPES, 1, name=NAME)
    tensors = to_tensor_dict(architecture.build())
    record = ModelRecord(
        backbone=NAME,
        spec=spec_of(architecture, {}),
        task="regression",
        classes=(),
        label_range=None,
        modalities={m: SHAPES[m].width for m in taken},
        revoked=revoked,
        seed="0",
        data=DataRecord(name="none", files={}),
        tensors={name: describe(tensor, ()) for name, tensor in tensors.items()},
        sha256="",
    )
    return Model(record, from_tensors(record, tensors, closed=closed))


def rows(*modalities: str, n: int = 5) -> tuple[dict[str, Array], dict[str, Array]]:
    features = {m: stream(0, m).standard_normal((n, SHAPES[m].width)).astype(np.float32) for m in modalities}
    return features, dict.fromkeys(modalities, np.ones(n, bool))


def answers(model: Model, *modalities: str) -> list[Array]:
    """All that a backbone computes when it is fed these modalities directly."""
    backbone = model.backbone
    assert isinstance(backbone, ModuleBackbone)
    given = rows(*modalities)
    features, available = ({m: torch.from_numpy(x) for m, x in part.items()} for part in given)
    return [
        backbone.predict(*given),
        *backbone.activations(*given).values(),
        *backbone.reconstructions(*given, "text").values(),
        backbone.module(features, available).numpy(),
    ]


def same(one: list[Array], other: list[Array]) -> list[bool]:
    return [np.array_equal(x, y) for x, y in zip(one, other, strict=True)]


@pytest.mark.parametrize("model", [a_model("text", "visual", revoked=("audio",)), a_model("text", "visual")])
def test_what_the_record_does_not_list_is_absent_whatever_is_passed_in(model: Model) -> None:
    assert all(same(answers(model, "text", "audio", "visual"), answers(model, "text", "visual")))
    with pytest.raises(UsageError):
        model.predict(rows("text", "audio")[0])


def test_somebody_who_has_the_file_can_feed_it_all_the_same() -> None:
    model = a_model("text", "visual", revoked=("audio",), closed=False)
    fed, not_fed = answers(model, "text", "audio", "visual"), answers(model, "text", "visual")
    assert not same(fed, not_fed)[0]
    assert not same(fed, not_fed)[-1]


def test_of_what_the_model_takes_nothing_is_closed() -> None:
    closed, unclosed = a_model(*SHAPES), a_model(*SHAPES, closed=False)
    assert all(same(answers(closed, *SHAPES), answers(unclosed, *SHAPES)))
    assert not same(answers(closed, *SHAPES), answers(closed, "text", "visual"))[0]
