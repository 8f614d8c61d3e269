"""Pipeline `reaudit`, for a schedule: the current release without a modality is attacked again.

The attacks are after everything that was ever deleted from it, so a schedule outlives later deletions. The reference is
trained without all of it, on the data that the attacks need; a model before is not needed, and should be gone. What the
attacks found is signed and logged: passed, the certificate's next date is set; refused, the certificate is refuted (it
no longer verifies, and an alert fires), and the run fails with the reason.
"""

from functools import partial
from typing import Any

from kfp import dsl

from components.steps import attack, features, published, reaudit, reference
from mbd.params.platform import PlatformSettings
from pipelines.placement import Need, place


def pipeline(platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline for a platform."""
    put = partial(place, platform)

    @dsl.pipeline(name="mbd-reaudit", description="Attack what is published again; confirm or refute its certificate.")
    def mbd_reaudit(
        modality: str,
        model: str = "",
        overrides: list[str] = [],  # noqa: B006 -- a value of the compiled form
        params: str = "",
    ) -> None:
        begun = features(params=params, model=model, overrides=overrides, audits=True)
        start = put(begun, Need.DATA).outputs
        data = {"params": start["resolved"], "dataset": start["dataset"]}
        released = put(published(params=start["resolved"], modality=modality), Need.DATA).outputs
        trained = put(reference(**data, modalities=released["revoked"]), Need.DATA, Need.GPU)
        models = {"after": released["model"], "reference": trained.outputs["reference"]}
        leakage = put(attack(**data, **models, modalities=released["revoked"]), Need.DATA).outputs["leakage"]
        audit = {"leakage": leakage, "run": dsl.PIPELINE_JOB_ID_PLACEHOLDER}
        logged = reaudit(params=start["resolved"], certificate=released["certificate"], **audit)
        put(logged, Need.STATE, Need.SIGNING_KEYS, retried=False)

    return mbd_reaudit
