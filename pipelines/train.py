"""Pipeline `train`: features of a revision; for each seed a model, its never-exposed reference, and tables."""

from typing import Any

from kfp import dsl

from components.evaluate.component import evaluate
from components.features.component import features
from components.reference.component import reference
from components.train.component import train
from components.train_part.component import train_part
from mbd.params.platform import PlatformSettings
from pipelines.placement import place


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""
    parts = _parts(platform) if platform.training_tasks > 1 else None

    @dsl.pipeline(name="mbd-train", description="Train a model and its never-exposed reference for each seed.")
    def mbd_train(params: str, seeds: list[int], modalities: list[str]) -> None:
        data = place(features(params=params), platform)
        with dsl.ParallelFor(items=seeds, name="each-seed") as seed:
            given = {"params": params, "dataset": data.outputs["dataset"], "seed": seed}
            if parts:  # the networks of the reference are among those of the model
                given["parts"] = parts(**given).output
            model = place(train(**given), platform, trains=True)
            never_exposed = place(reference(**given, modalities=modalities), platform, trains=True)
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


def _parts(platform: PlatformSettings) -> Any:  # noqa: ANN401
    """Return the pipeline that trains the networks of a lattice by several tasks; its output is what joins them.

    It is one of its own, because in a loop inside a loop kfp.local takes the inner item for the outer one.
    """
    numbers = list(range(1, platform.training_tasks + 1))

    @dsl.pipeline(name="train-parts")
    def train_parts(params: str, dataset: dsl.Input[dsl.Dataset], seed: int) -> list[dsl.Model]:
        with dsl.ParallelFor(items=numbers, name="each-part") as number:
            own = train_part(params=params, dataset=dataset, seed=seed, number=number, count=len(numbers))
            trained = place(own, platform, trains=True)
        return dsl.Collected(trained.outputs["part"])  # type: ignore[no-any-return]

    return train_parts
