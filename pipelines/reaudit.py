"""Pipeline `reaudit`, for a schedule: the model that was published last without a modality is attacked again.

The reference is trained without everything that was ever revoked, on the data that the attacks need; a model before is
not needed, and should be gone. What the attacks found is signed and logged: passed, the certificate's next date is set;
refused, the certificate is refuted (it no longer verifies, and an alert fires), and the run fails with the reason.
"""

from typing import Any

from kfp import dsl

from components.attack.component import attack
from components.features.component import features
from components.notify.component import notify
from components.published.component import published
from components.reaudit.component import reaudit
from components.reference.component import reference
from mbd.params.platform import PlatformSettings
from pipelines.placement import place


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""

    @dsl.pipeline(name="mbd-reaudit", description="Attack what is published again; confirm or refute its certificate.")
    def mbd_reaudit(params: str, modality: str) -> None:
        end = notify(params=params, pipeline="reaudit", run=dsl.PIPELINE_JOB_ID_PLACEHOLDER, modality=modality)
        place(end, platform, cached=False, opens=False)
        with dsl.ExitHandler(end, name="attack-again"):
            released = place(published(params=params, modality=modality), platform, cached=False).outputs
            data = place(features(params=params), platform).outputs["dataset"]
            never_exposed = place(
                reference(params=params, dataset=data, modalities=released["revoked"]), platform, trains=True
            ).outputs["reference"]
            leakage = place(
                attack(
                    params=params,
                    dataset=data,
                    after=released["model"],
                    reference=never_exposed,
                    modalities=released["modalities"],
                ),
                platform,
                cached=False,
            ).outputs["leakage"]
            place(
                reaudit(
                    params=params,
                    certificate=released["certificate"],
                    leakage=leakage,
                    run=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
                ),
                platform,
                cached=False,
                retried=False,
                signs=True,
                keeps=True,
                opens=False,
            )

    return mbd_reaudit
