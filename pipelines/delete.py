"""Pipeline `delete`: modalities of the model in production, or of persons, are deleted, attacked, certified, published.

It starts at the current release of `model`, as the log has it, with the data that it was made from and its registered
reference: nothing is trained that is registered. The certified model becomes the current release. Refused by the gate,
the run fails in `certify`. With `purge_copies` every copy of the old weights is removed when all is published.
`mbd request run` does the same without Kubeflow.
"""

from functools import partial
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
    put = partial(place, platform)

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
        named = {"params": params, "name": model, "method": method, "epsilon": epsilon, "overrides": overrides}
        begun = fetch(**named, modalities=modalities, subjects=subjects)
        start = put(begun, Need.DATA, Need.LINEAGE_KEY).outputs
        data = {"params": start["resolved"], "dataset": start["dataset"]}
        wanted = {"modalities": start["Output"], "subjects": subjects}
        trained = put(registered_reference(**data, **wanted, model=start["model"]), Need.DATA, Need.GPU)
        models = {"before": start["model"], "reference": trained.outputs["reference"]}
        done = delete(**data, **wanted, model=models["before"], reference=models["reference"])
        models["after"] = put(done, Need.DATA, Need.GPU, Need.LINEAGE_KEY).outputs["deleted"]
        measured = evaluate(**data, model=models["after"], reference=models["reference"], subjects=subjects)
        utility = put(measured, Need.DATA, Need.LINEAGE_KEY).outputs["evaluation"]
        leakage = put(attack(**data, **wanted, **models), Need.DATA).outputs["leakage"]
        evidence = {"leakage": leakage, "evaluation": utility, "request": request, "run": run}
        signed = put(
            certify(**data, **evidence, deleted=models["after"]), Need.DATA, Need.SIGNING_KEYS, retried=False
        ).outputs["certificate"]
        final = {"params": start["resolved"], "deleted": models["after"]}
        released = put(publish(**final, certificate=signed), Need.DATA, Need.SIGNING_KEYS).outputs["published"]
        # Not in a dsl.If: a task that is skipped leaves a run that succeeded in the state RUNNING.
        purged = purge(**final, published=released, requested=purge_copies)
        proof = put(purged, Need.DATA, Need.SIGNING_KEYS).outputs["proof"]
        put(require_purged(proof=proof), retried=False)

    return mbd_delete
