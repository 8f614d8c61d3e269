"""Pipeline `train`, for a schedule: a model and its references are trained, evaluated and registered.

A reference is trained for each modality of `requests.revocable`, side by side, so that deleting it later trains
nothing. What is revoked for the model's name is left out. The model becomes the current release unless it is worse than
the one that is (`registration.metric`, `registration.margin`); a model that lost is registered and not current. Nothing
is answered from Kubeflow's cache: a training that is asked for again is done again.
"""

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
            begun.after(*(place(part, platform, Need.DATA, cached=False) for part in parts))
        made = place(begun, platform, Need.DATA, cached=False).outputs
        data = {"params": made["resolved"], "dataset": made["dataset"]}
        whole = place(train(**data), platform, Need.DATA, Need.GPU, cached=False).outputs["model"]
        with dsl.ParallelFor(items=made["Output"], name="each-modality") as modality:
            never_exposed = place(reference(**data, modality=modality), platform, Need.DATA, Need.GPU, cached=False)
        place(evaluate(**data, model=whole), platform, Need.DATA, cached=False)
        references = dsl.Collected(never_exposed.outputs["reference"])
        place(
            register(**data, model=whole, references=references, run=dsl.PIPELINE_JOB_ID_PLACEHOLDER),
            platform,
            Need.DATA,
            Need.SIGNING_KEYS,
            cached=False,
        )

    return mbd_train
