"""How the last run of each pipeline has ended on Kubeflow, asked of its API.

Each task reports its own end, as the step does on the command line. Where a pod is lost, or Kubeflow fails before any
task starts (its driver cannot read the pipeline root, say), no task does; the exporter then knows it from here, if
`monitoring.kubeflow` is set.
"""

import json
import logging
import os
import urllib.request
from collections import Counter
from typing import Any
from urllib.parse import urlencode

from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.params.platform import KUBEFLOW_TOKEN, PIPELINES, PlatformSettings

_OURS, _PAGE, _TIMEOUT_SECONDS = "mbd-", 100, 10
_FAILED, _ENDED = {"FAILED"}, {"FAILED", "SUCCEEDED"}
_LOG = logging.getLogger(__name__)


def add_last_runs(samples: Samples, platform: PlatformSettings) -> None:
    """Set how many schedules of each pipeline have failed last; values stay where Kubeflow cannot be asked."""
    try:
        failures = _failures(platform)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _LOG.warning("Kubeflow could not be asked for the last runs: %r", error)
        samples.set(metrics.KUBEFLOW_UP, 0)
        return
    samples.set(metrics.KUBEFLOW_UP, 1)
    for pipeline, count in failures.items():
        samples.set(metrics.KUBEFLOW_FAILED, count, pipeline=pipeline)


def _failures(platform: PlatformSettings) -> Counter[str]:
    """Return for each pipeline how many of its schedules failed when they last ran, and so for runs without one.

    Of runs of the experiment the newest hundred are looked at; a schedule that is gone or disabled does not count.
    """
    own = {"namespace": platform.namespace} if platform.namespace else {}
    named = {"operation": "EQUALS", "key": "display_name", "stringValue": platform.experiment}
    experiments = _get(platform, "experiments", filter=json.dumps({"predicates": [named]}), **own).get(
        "experiments", ()
    )
    listed = _get(platform, "pipelines", **own).get("pipelines", ())
    names = {entry["pipeline_id"]: entry["display_name"].removeprefix(_OURS) for entry in listed}
    failures = Counter[str](dict.fromkeys(PIPELINES, 0))  # what has no run any more has no failure either
    for experiment in experiments:
        own |= {"experiment_id": experiment["experiment_id"]}
        schedules = _get(platform, "recurringruns", **own).get("recurringRuns", ())
        open_groups = {job["recurring_run_id"] for job in schedules if job.get("status") != "DISABLED"}
        seen = set()
        for run in _get(platform, "runs", sort_by="created_at desc", **own).get("runs", ()):
            name = names.get((run.get("pipeline_version_reference") or {}).get("pipeline_id"))
            group = name, run.get("recurring_run_id")
            if name not in PIPELINES or run.get("state") not in _ENDED or group in seen:
                continue
            seen.add(group)
            failures[name] += run["state"] in _FAILED and (group[1] is None or group[1] in open_groups)
    return failures


def request_kubeflow(url: str) -> urllib.request.Request:
    """Return a request to Kubeflow with the token of the environment, if there is one; no redirect takes it along."""
    request = urllib.request.Request(url)  # noqa: S310 -- the operator's own parameter
    if token := os.environ.get(KUBEFLOW_TOKEN):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    return request


def _get(platform: PlatformSettings, kind: str, **query: str) -> dict[str, Any]:
    address = f"{(platform.kubeflow_host or '').rstrip('/')}/apis/v2beta1/{kind}"
    url = f"{address}?{urlencode({'page_size': str(_PAGE), **query})}"
    with urllib.request.urlopen(request_kubeflow(url), timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
        content: dict[str, Any] = json.loads(answer.read())
    return content
