"""Pipeline `reaudit`, for a schedule: the model that was published last without a modality is attacked again.

The reference is trained without everything that was ever revoked, on the data that the attacks need; a model before is
not needed, and should be gone. What the attacks found is signed and logged: passed, the certificate's next date is set;
refused, the certificate is refuted (it no longer verifies, and an alert fires), and the run fails with the reason.
"""

from typing import Any

from kfp import dsl

from components.steps import attack, features, notify, published, reaudit, reference
from mbd.params.platform import PlatformSettings
from pipelines.parts import resolved
from pipelines.placement import Need, place


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""

    @dsl.pipeline(name="mbd-reaudit", description="Attack what is published again; confirm or refute its certificate.")
    def mbd_reaudit(
        modality: str,
        model: str = "",
        overrides: list[str] = [],  # noqa: B006 -- a value of the compiled form
        params: str = "",
    ) -> None:
        run, named = dsl.PIPELINE_JOB_ID_PLACEHOLDER, {"params": params, "model": model, "overrides": overrides}
        end = notify(pipeline="reaudit", run=run, modality=modality, **named)
        place(end, platform, cached=False)
        with dsl.ExitHandler(end, name="attack-again"):
            values = resolved(platform, **named)
            released = place(published(params=values, modality=modality), platform, Need.DATA, cached=False).outputs
            data = place(features(params=values), platform, Need.DATA).outputs["dataset"]
            never_exposed = place(
                reference(params=values, dataset=data, modalities=released["revoked"]), platform, Need.DATA, Need.GPU
            ).outputs["reference"]
            leakage = place(
                attack(
                    params=values,
                    dataset=data,
                    after=released["model"],
                    reference=never_exposed,
                    modalities=released["modalities"],
                ),
                platform,
                Need.DATA,
                cached=False,
            ).outputs["leakage"]
            place(
                reaudit(
                    params=values,
                    certificate=released["certificate"],
                    leakage=leakage,
                    run=run,
                ),
                platform,
                Need.STATE,
                Need.SIGNING_KEYS,
                cached=False,
                retried=False,
            )

    return mbd_reaudit
