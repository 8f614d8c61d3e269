"""Parts that several pipelines begin with."""

from typing import Any

from components.steps import features, parameters, reference, train
from mbd.params.platform import PlatformSettings
from pipelines.placement import Need, place


def resolved(platform: PlatformSettings, **arguments: Any) -> Any:  # noqa: ANN401 -- kfp has no types
    """Check the arguments of a run; return the artifact with all its parameters, which every other task takes."""
    return place(parameters(**arguments), platform).outputs["written"]


def model_and_reference(params: Any, modalities: Any, platform: PlatformSettings) -> tuple[Any, Any, Any]:  # noqa: ANN401
    """Bring the data, train the model and the one that never sees the modalities; return all three."""
    data = place(features(params=params), platform, Need.DATA).outputs["dataset"]
    model = place(train(params=params, dataset=data), platform, Need.DATA, Need.GPU).outputs["model"]
    never_exposed = place(
        reference(params=params, dataset=data, modalities=modalities), platform, Need.DATA, Need.GPU
    ).outputs["reference"]
    return data, model, never_exposed
