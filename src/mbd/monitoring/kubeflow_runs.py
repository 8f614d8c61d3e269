"""How the last run of each pipeline has ended on Kubeflow, asked of its API.

Each task reports its own end, as the step does on the command line. Where a pod is lost, or Kubeflow fails before any
task starts (its driver cannot read the pipeline root, say), no task does; the exporter then knows it from here, if
`monitoring.kubeflow` is set.
"""

import json
import logging
import os
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.params.platform import KUBEFLOW_TOKEN, PIPELINES, PlatformSettings

_OURS, _PAGE, _TIMEOUT_SECONDS = "mbd-", 100, 10
_FAILED, _ENDED = {"FAILED"}, {"FAILED", "SUCCEEDED"}
_log = logging.getLogger(__name__)


def add_last_runs(samples: Samples, platform: PlatformSettings) -> None:
    """Set whether the last ended run of each pipeline failed; values stay where Kubeflow cannot be asked."""
    try:
        ended = dict(_last_runs(platform))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("Kubeflow could not be asked for the last runs: %r", error)
        samples.set(metrics.KUBEFLOW_UP, 0)
        return
    samples.set(metrics.KUBEFLOW_UP, 1)
    for pipeline, state in ended.items():
        samples.set(metrics.KUBEFLOW_FAILED, state in _FAILED, pipeline=pipeline)


def _last_runs(platform: PlatformSettings) -> Iterator[tuple[str, str]]:
    """Yield the name of each pipeline of ours and the state of its last run that has ended."""
    own = {"namespace": platform.namespace} if platform.namespace else {}
    listed = _get(platform, "pipelines", **own).get("pipelines", ())
    names = {entry["pipeline_id"]: entry["display_name"].removeprefix(_OURS) for entry in listed}
    for run in _get(platform, "runs", sort_by="created_at desc", **own).get("runs", ()):
        pipeline = (run.get("pipeline_version_reference") or {}).get("pipeline_id")
        if names.get(pipeline) in PIPELINES and run.get("state") in _ENDED:
            yield names.pop(pipeline), run["state"]


def _get(platform: PlatformSettings, kind: str, **query: str) -> dict[str, Any]:
    address = f"{(platform.kubeflow_host or '').rstrip('/')}/apis/v2beta1/{kind}"
    token = os.environ.get(KUBEFLOW_TOKEN)
    request = urllib.request.Request(  # noqa: S310 -- the operator's own parameter
        f"{address}?{urlencode({'page_size': str(_PAGE), **query})}",
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
        content: dict[str, Any] = json.loads(answer.read())
    return content
