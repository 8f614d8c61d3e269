"""How a run of a pipeline has ended, for Prometheus: what it has published counts, not the state Kubeflow gives it.

The exit task of a pipeline may depend on no other task, so it reads the arguments of the pipeline itself.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from mbd.history.replay import read_history
from mbd.kubeflow.common import resolved, task
from mbd.params import Params
from mbd.storage import open_store
from mbd.trust.trust_file import read_trust

_LOG = logging.getLogger(__name__)
_SUCCEEDED = {"SUCCEEDED", "COMPLETE"}


@task
def notify(
    params: str,
    pipeline: str,
    run: str,
    modalities: Sequence[str],
    state: str,
    message: str = "",
    *,
    model: str = "",
    overrides: Sequence[str] = (),
    purged: bool = False,
) -> None:
    """Report to Prometheus how a run of a pipeline has ended, as the step `pipeline-NAME`. Never fails the run."""
    try:
        from mbd.steps.metrics_reporting import Report  # here: nothing fails the run

        values = resolved(params, model, overrides=overrides)
        try:
            succeeded = has_published(values, pipeline, run, modalities, purged=purged)
        except Exception as error:
            _LOG.warning("the store does not say how the run ended (%s); using Kubeflow's state %s", error, state)
            succeeded = state in _SUCCEEDED
        ended, details = "succeeded" if succeeded else "failed", f", {message}" if message else ""
        _LOG.info("%s: %s (Kubeflow: %s%s)", pipeline, ended, state, details)
        report = Report(f"pipeline-{pipeline}", values)
        report.ended(f"pipeline-{pipeline}", None if succeeded else "failure")
        if values.monitoring.mode != "none":
            report.deliver()
    except Exception as error:
        _LOG.warning("the end of the run was not reported: %s", error)


def has_published(params: Params, pipeline: str, run: str, modalities: Sequence[str], *, purged: bool = False) -> bool:
    """Return whether a run has published what its pipeline is for.

    The state that Kubeflow hands to an exit handler does not say: a run that succeeded may be COMPLETE, RUNNING or, if
    a step was ever retried, FAILED. What counts is in the store, signed and logged: the certificate that names the run,
    for an audit the statement about the certificate that names the run, and for a training the registration.

    Args:
        params: They name store, model and trust file.
        pipeline: `train`, `delete` or `reaudit`.
        run: The run's id.
        modalities: What it is about.
        purged: A purge was requested, so a statement that it is complete has to be there, too.

    """
    store, trust = open_store(params.store.url, params.store), read_trust(Path(params.certificate.trust))
    history = read_history(store, trust)
    model = history.model(params.certificate.model)
    if pipeline == "train":
        return any(r.run_id == run for r in model.registrations)
    latest = model.latest(modalities[0])
    if latest is None:
        return False
    about = history.about(latest.digest)
    if pipeline == "reaudit":
        return any(s.effect == "passed" and s.run_id == run for s in about)
    claims = [s.reason for s in about if s.kind == "purge"]
    return latest.run_id == run and (not purged or "complete" in claims)
