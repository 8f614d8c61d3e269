"""`spec` of `model.json` has fields of its own: each parameter of a backbone has its place there."""

import pytest
from pydantic import BaseModel

from mbd.formats.model import JointSpec, LatticeSpec, LossWeights
from mbd.params import load_params
from mbd.params.learning import JointSettings, LatticeSettings, LossesSettings


@pytest.mark.parametrize(
    ("spec", "settings", "more"),
    [
        (JointSpec, JointSettings, {"training"}),
        (LossWeights, LossesSettings, set()),
        (LatticeSpec, LatticeSettings, {"shapes", "source", "training"}),
    ],
)
def test_every_parameter_of_a_backbone_is_recorded(
    spec: type[BaseModel], settings: type[BaseModel], more: set[str]
) -> None:
    assert set(spec.model_fields) == set(settings.model_fields) | more


def test_what_was_recorded_gives_the_parameters_back() -> None:
    settings = load_params(None, ["model.lattice.tags=[audio+text]", "model.lattice.trust=0.5"]).model.lattice
    spec = LatticeSpec.model_validate(settings.model_dump())
    stored = LatticeSpec.model_validate(spec.to_plain())
    assert "member" not in spec.to_plain()
    assert LatticeSettings.model_validate(stored.recorded().model["lattice"]) == settings
