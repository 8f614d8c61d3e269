"""Pipeline `sweep`: the same deletion at many settings (r, η_s, |B|, ε …), each attacked and evaluated on its own.

`settings` is a list of texts `a.b=value …` that are laid over the parameters, for example
`["deletion.epsilon=0.5", "deletion.epsilon=2"]`. Nothing is certified or published, and a certified deletion is
charged to ledgers of its own, because a study is not a release.
"""

from typing import Any

from kfp import dsl

from components.steps import attack, delete, evaluate, features, reference, train
from components.steps import settings as overlay
from mbd.params.platform import PlatformSettings
from pipelines.placement import Need, place


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""

    @dsl.pipeline(name="mbd-sweep", description="Delete at many settings; attack and evaluate each result.")
    def mbd_sweep(settings: list[str], modalities: list[str], params: str = "") -> None:
        begun = place(features(params=params), platform, Need.DATA).outputs
        values, data = begun["resolved"], begun["dataset"]
        model = place(train(params=values, dataset=data), platform, Need.DATA, Need.GPU).outputs["model"]
        never_exposed = place(
            reference(params=values, dataset=data, modalities=modalities), platform, Need.DATA, Need.GPU
        ).outputs["reference"]
        with dsl.ParallelFor(items=settings, name="each-setting") as setting:
            own = place(overlay(params=values, setting=setting), platform).outputs["resolved"]
            deleted = place(
                delete(
                    params=own,
                    dataset=data,
                    model=model,
                    reference=never_exposed,
                    modalities=modalities,
                    subjects=[],
                ),
                platform,
                Need.DATA,
                Need.GPU,
                cached=False,
            ).outputs["deleted"]
            place(
                evaluate(params=own, dataset=data, model=deleted, reference=never_exposed),
                platform,
                Need.DATA,
                cached=False,
            )
            place(
                attack(
                    params=own,
                    dataset=data,
                    before=model,
                    after=deleted,
                    reference=never_exposed,
                    modalities=modalities,
                ),
                platform,
                Need.DATA,
                cached=False,
            )

    return mbd_sweep
