"""Pipeline `delete`: a request becomes a deleted model, evidence, a certificate, and its publication.

The model is trained here, and so is the reference, which never sees the modality; both come from Kubeflow's cache where
an earlier run has made them. Everything from `delete` on is done again. Refused by the gate, the run fails in
`certify`. However it ends, Prometheus learns of it. With `purge_copies` every copy of the old weights is removed when
all is published.
"""

from typing import Any

from kfp import dsl

from components.attack.component import attack
from components.certify.component import certify
from components.delete.component import delete
from components.evaluate.component import evaluate
from components.notify.component import notify
from components.publish.component import publish
from components.purge.component import purge
from mbd.params.platform import PlatformSettings
from pipelines.parts import model_and_reference
from pipelines.placement import place


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""

    @dsl.pipeline(name="mbd-delete", description="Make a model forget modalities, attack it, certify and publish it.")
    def mbd_delete(
        params: str, modalities: list[str], subjects: list[str], request: str = "", purge_copies: bool = False
    ) -> None:
        end = notify(
            params=params,
            pipeline="delete",
            run=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
            modalities=modalities,
            purged=purge_copies,
        )
        place(end, platform, cached=False, opens=False)
        with dsl.ExitHandler(end, name="delete-and-certify"):
            data, model, never_exposed = model_and_reference(params, modalities, platform)
            deleted = place(
                delete(
                    params=params,
                    dataset=data,
                    model=model,
                    reference=never_exposed,
                    modalities=modalities,
                    subjects=subjects,
                ),
                platform,
                trains=True,
                cached=False,
                keeps=True,
            ).outputs["deleted"]
            utility = place(
                evaluate(params=params, dataset=data, model=deleted, reference=never_exposed), platform, cached=False
            ).outputs["evaluation"]
            leakage = place(
                attack(
                    params=params,
                    dataset=data,
                    before=model,
                    after=deleted,
                    reference=never_exposed,
                    modalities=modalities,
                    subjects=subjects,
                ),
                platform,
                cached=False,
            ).outputs["leakage"]
            certificate = place(
                certify(
                    params=params,
                    dataset=data,
                    deleted=deleted,
                    leakage=leakage,
                    evaluation=utility,
                    request=request,
                    run=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
                ),
                platform,
                cached=False,
                retried=False,
                signs=True,
                keeps=True,
            ).outputs["certificate"]
            released = place(
                publish(params=params, certificate=certificate, deleted=deleted), platform, cached=False, signs=True
            ).outputs["published"]
            # Not in a dsl.If: a task that is skipped leaves a run that succeeded in the state RUNNING.
            place(
                purge(params=params, published=released, deleted=deleted, requested=purge_copies),
                platform,
                cached=False,
                signs=True,
                keeps=True,
            )

    return mbd_delete
