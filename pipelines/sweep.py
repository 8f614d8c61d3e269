"""Pipeline `sweep`: the same deletion at many settings (r, η_s, |B|, ε …), each attacked and evaluated on its own.

`settings` is a list of texts `a.b=value …` that are laid over the parameters, for example
`["deletion.epsilon=0.5", "deletion.epsilon=2"]`. Nothing is certified or published, and a certified deletion is
charged to ledgers of its own, because a study is not a release.
"""

from functools import partial
from typing import Any

from kfp import dsl

from components.steps import attack, delete, evaluate, features, reference, train
from components.steps import settings as overlay
from mbd.params.platform import PlatformSettings
from pipelines.placement import Need, place


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""
    put = partial(place, platform)
    remembered = partial(put, cached=True)

    @dsl.pipeline(name="mbd-sweep", description="Delete at many settings; attack and evaluate each result.")
    def mbd_sweep(settings: list[str], modalities: list[str], params: str = "") -> None:
        begun = remembered(features(params=params), Need.DATA).outputs
        values, data = begun["resolved"], {"dataset": begun["dataset"]}
        model = remembered(train(**data, params=values), Need.DATA, Need.GPU).outputs["model"]
        trained = remembered(reference(**data, params=values, modalities=modalities), Need.DATA, Need.GPU)
        beside = {**data, "reference": trained.outputs["reference"]}
        with dsl.ParallelFor(items=settings, name="each-setting") as setting:
            beside["params"] = remembered(overlay(params=values, setting=setting)).outputs["resolved"]
            done = delete(**beside, model=model, modalities=modalities, subjects=[])
            deleted = put(done, Need.DATA, Need.GPU).outputs["deleted"]
            put(evaluate(**beside, model=deleted), Need.DATA)
            put(attack(**beside, before=model, after=deleted, modalities=modalities), Need.DATA)

    return mbd_sweep
