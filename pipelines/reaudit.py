"""Pipeline `reaudit`, for a schedule: the current release without a modality is attacked again.

The attacks are after everything that was ever deleted from it, so a schedule outlives later deletions. The reference is
trained without all of it, on the data that the attacks need; a model before is not needed, and should be gone. What the
attacks found is signed and logged: passed, the certificate's next date is set; refused, the certificate is refuted (it
no longer verifies, and an alert fires), and the run fails with the reason.
"""

from typing import Any

from kfp import dsl

from components.steps import attack, features, published, reaudit, reference
from mbd.params.platform import PlatformSettings
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
        begun = features(params=params, model=model, overrides=overrides, audits=True)
        # Not from the cache: persons may have revoked their recordings since.
        start = place(begun, platform, Need.DATA, cached=False).outputs
        data = {"params": start["resolved"], "dataset": start["dataset"]}
        released = place(
            published(params=start["resolved"], modality=modality), platform, Need.DATA, cached=False
        ).outputs
        never_exposed = place(
            reference(**data, modalities=released["revoked"]), platform, Need.DATA, Need.GPU, cached=False
        ).outputs["reference"]
        leakage = place(
            attack(**data, after=released["model"], reference=never_exposed, modalities=released["revoked"]),
            platform,
            Need.DATA,
            cached=False,
        ).outputs["leakage"]
        place(
            reaudit(
                params=start["resolved"],
                certificate=released["certificate"],
                leakage=leakage,
                run=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
            ),
            platform,
            Need.STATE,
            Need.SIGNING_KEYS,
            cached=False,
            retried=False,
        )

    return mbd_reaudit
