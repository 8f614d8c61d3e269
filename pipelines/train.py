"""Pipeline `train`: features of a revision; for each seed a model, its never-exposed reference, and tables."""

from typing import Any

from kfp import dsl

from components.evaluate.component import evaluate
from components.features.component import features
from components.reference.component import reference
from components.train.component import train
from mbd.params.platform import PlatformSettings
from pipelines.placement import place


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""

    @dsl.pipeline(name="mbd-train", description="Train a model and its never-exposed reference for each seed.")
    def mbd_train(params: str, seeds: list[int], modalities: list[str]) -> None:
        data = place(features(params=params), platform)
        with dsl.ParallelFor(items=seeds, name="each-seed") as seed:
            model = place(train(params=params, dataset=data.outputs["dataset"], seed=seed), platform, trains=True)
            never_exposed = place(
                reference(params=params, dataset=data.outputs["dataset"], modalities=modalities, seed=seed),
                platform,
                trains=True,
            )
            place(
                evaluate(
                    params=params,
                    dataset=data.outputs["dataset"],
                    model=model.outputs["model"],
                    reference=never_exposed.outputs["reference"],
                ),
                platform,
            )

    return mbd_train
