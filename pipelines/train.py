"""Pipeline `train`, for a schedule: a model and its references are trained, evaluated and registered.

A reference is trained for each modality of `requests.revocable`, side by side, so that deleting it later trains
nothing. What is revoked for the model's name is left out. The model becomes the current release unless it is worse than
the one that is (`registration.metric`, `registration.margin`); a model that lost is registered and not current. Nothing
is answered from Kubeflow's cache: a training that is asked for again is done again.
"""

from functools import partial
from typing import Any

from kfp import dsl

from components.steps import evaluate, extract, features, reference, register, train
from mbd.errors import UsageError
from mbd.params.platform import PlatformSettings
from pipelines.placement import Need, place


def _refuse_no_claim(platform: PlatformSettings) -> None:
    if platform.state_claim is None:
        raise UsageError(
            "tasks that extract side by side share a cache, and there is no volume for it",
            key="platform.state_claim",
            hint="name a claim, or set platform.extraction_tasks to 1",
        )


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""
    put = partial(place, platform)

    @dsl.pipeline(
        name="mbd-train", description="Train a model and its references; register them, and promote the model."
    )
    def mbd_train(
        model: str = "",
        overrides: list[str] = [],  # noqa: B006 -- a value of the compiled form
        params: str = "",
    ) -> None:
        named, shards = {"params": params, "model": model, "overrides": overrides}, platform.extraction_tasks
        begun = features(**named)
        if shards > 1:
            _refuse_no_claim(platform)
            parts = [extract(**named, shard=shard, shards=shards) for shard in range(shards)]
            begun.after(*(put(part, Need.DATA) for part in parts))
        made = put(begun, Need.DATA).outputs
        data = {"params": made["resolved"], "dataset": made["dataset"]}
        whole = put(train(**data), Need.DATA, Need.GPU).outputs["model"]
        with dsl.ParallelFor(items=made["Output"], name="each-modality") as modality:
            never_exposed = put(reference(**data, modality=modality), Need.DATA, Need.GPU)
        put(evaluate(**data, model=whole), Need.DATA)
        references = dsl.Collected(never_exposed.outputs["reference"])
        registered = register(**data, model=whole, references=references, run=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
        put(registered, Need.DATA, Need.SIGNING_KEYS)

    return mbd_train
