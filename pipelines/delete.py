"""Pipeline `delete`: modalities of the model in production, or of persons, are deleted, attacked, certified, published.

It starts at the current release of `model`, as the log has it, with the data that it was made from and its registered
reference: nothing is trained that is registered. The certified model becomes the current release. Refused by the gate,
the run fails in `certify`. With `purge_copies` every copy of the old weights is removed when all is published.
`mbd request run` does the same without Kubeflow.
"""

from typing import Any

from kfp import dsl

from components.steps import (
    attack,
    certify,
    delete,
    evaluate,
    fetch,
    publish,
    purge,
    registered_reference,
    require_purged,
)
from mbd.params.platform import PlatformSettings
from pipelines.placement import Need, place


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""

    @dsl.pipeline(
        name="mbd-delete", description="Delete modalities from the current model; attack, certify, publish it."
    )
    def mbd_delete(  # noqa: PLR0917 -- arguments of a run
        modalities: list[str],
        model: str = "",
        subjects: list[str] = [],  # noqa: B006 -- a value of the compiled form
        request: str = "",
        method: str = "",
        epsilon: float = 0.0,
        purge_copies: bool = False,
        overrides: list[str] = [],  # noqa: B006
        params: str = "",
    ) -> None:
        run = dsl.PIPELINE_JOB_ID_PLACEHOLDER
        begun = fetch(
            params=params,
            name=model,
            method=method,
            epsilon=epsilon,
            overrides=overrides,
            modalities=modalities,
            subjects=subjects,
        )
        start = place(begun, platform, Need.DATA, Need.LINEAGE_KEY, cached=False).outputs
        data = {"params": start["resolved"], "dataset": start["dataset"]}
        asked = {"modalities": start["Output"], "subjects": subjects}
        never_exposed = place(
            registered_reference(**data, **asked, model=start["model"]), platform, Need.DATA, Need.GPU, cached=False
        ).outputs["reference"]
        deleted = place(
            delete(**data, **asked, model=start["model"], reference=never_exposed),
            platform,
            Need.DATA,
            Need.GPU,
            Need.LINEAGE_KEY,
            cached=False,
        ).outputs["deleted"]
        utility = place(
            evaluate(**data, model=deleted, reference=never_exposed, subjects=subjects),
            platform,
            Need.DATA,
            Need.LINEAGE_KEY,
            cached=False,
        ).outputs["evaluation"]
        leakage = place(
            attack(**data, **asked, before=start["model"], after=deleted, reference=never_exposed),
            platform,
            Need.DATA,
            cached=False,
        ).outputs["leakage"]
        certificate = place(
            certify(**data, deleted=deleted, leakage=leakage, evaluation=utility, request=request, run=run),
            platform,
            Need.DATA,
            Need.SIGNING_KEYS,
            cached=False,
            retried=False,
        ).outputs["certificate"]
        released = place(
            publish(params=start["resolved"], certificate=certificate, deleted=deleted),
            platform,
            Need.DATA,
            Need.SIGNING_KEYS,
            cached=False,
        ).outputs["published"]
        # Not in a dsl.If: a task that is skipped leaves a run that succeeded in the state RUNNING.
        proof = place(
            purge(params=start["resolved"], published=released, deleted=deleted, requested=purge_copies),
            platform,
            Need.DATA,
            Need.SIGNING_KEYS,
            cached=False,
        ).outputs["proof"]
        place(require_purged(proof=proof), platform, cached=False, retried=False)

    return mbd_delete
