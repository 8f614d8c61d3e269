"""Runs and schedules on a Kubeflow cluster, each known by its name: asked for twice, it is there once.

A pipeline is uploaded as `mbd-NAME`, each of its versions under the digest of its compiled form. A run carries the
digest of version and arguments in its name, so that the same submission again finds it. A schedule that is asked for
with other settings is replaced under its name; the one before is disabled, and removed when none of its runs is
unfinished, because Kubeflow ends what a schedule has started when it is removed.
"""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import kfp
import requests
from kfp_server_api.exceptions import ApiException
from urllib3.exceptions import HTTPError

from mbd.errors import MbdError, UsageError
from mbd.files import canonical_digest
from mbd.params.platform import KUBEFLOW_TOKEN, PlatformSettings
from mbd.urls import without_credentials
from pipelines.compiling import compiled

_UNFINISHED = {None, "PENDING", "RUNNING", "PAUSED", "CANCELING"}
_DISABLED, _FAILED = "DISABLED", {"FAILED", "ERROR"}
_PAGE = 100
_DRIVER = "-driver"
_INNER = re.compile(r"root|executor(\(\d+\))?|iteration.*")
"""names of nodes that are no task: the whole pipeline, a task's pod and its attempts, a turn of a loop"""
_ENDING = re.compile(r"exit code \d+ \(.*")
"""what the log of a task says of its end (:func:`mbd.kubeflow.common.task`)"""
DEFAULT_ACCOUNT = "pipeline-runner"
"""the service account that the API server puts where none was named"""
_TIMEOUT_SECONDS = 10


class ClusterError(MbdError):
    """The cluster did not do what was asked."""


@dataclass(frozen=True)
class Submission:
    """What would be sent to the cluster."""

    name: str
    pipeline: str
    version: str
    experiment: str
    arguments: Mapping[str, Any]
    cron: str | None = None
    service_account: str | None = None
    pipeline_root: str | None = None


def submission(
    name: str,
    platform: PlatformSettings,
    arguments: Mapping[str, Any],
    *,
    cron: str | None = None,
    title: str | None = None,
) -> Submission:
    """Return what a run (or, with `cron`, a schedule) of the pipeline `name` would be."""
    version = f"mbd-{name}-{canonical_digest(compiled(name, platform))[:12]}"
    default = f"mbd-{name}" if cron else f"{version}-{canonical_digest(dict(arguments))[:12]}"
    return Submission(
        name=title or default,
        pipeline=f"mbd-{name}",
        version=version,
        experiment=platform.experiment,
        arguments=arguments,
        cron=cron,
        service_account=platform.service_account,
        pipeline_root=platform.pipeline_root,
    )


class Scheduled(NamedTuple):
    """A schedule as it is now."""

    outcome: str
    """created, updated or unchanged"""
    identifier: str
    unfinished: list[str]
    """runs of the schedule before, which stays, disabled, until they have ended"""


class TaskState(NamedTuple):
    """A task of a run."""

    name: str
    state: str
    reason: str = ""
    """why it failed, as the log of its pod says"""
    pod: str = ""
    """of a failed task: the pod of its last attempt"""
    log: str = ""
    """of that pod"""


class RunState(NamedTuple):
    """A run and its tasks, in the order of their start."""

    identifier: str
    state: str
    tasks: list[TaskState]

    @property
    def unfinished(self) -> bool:
        """Whether it goes on."""
        return self.state in _UNFINISHED

    @property
    def failed(self) -> list[TaskState]:
        """The tasks that have failed."""
        return [task for task in self.tasks if task.state in _FAILED]


class Cluster:
    """The Kubeflow Pipelines API of `platform.kubeflow_host`; a token comes from the environment."""

    def __init__(self, platform: PlatformSettings) -> None:
        if platform.kubeflow_host is None:
            raise UsageError(
                "no Kubeflow host is named",
                key="platform.kubeflow_host",
                hint="set it to the URL of the Pipelines API; --dry-run shows what would be sent without one",
            )
        self.platform = platform
        with self._asking("connect"), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the client's greeting
            self._get("v2beta1/healthz")  # kfp's client would try for half a minute
            self._client = kfp.Client(
                host=platform.kubeflow_host,
                namespace=platform.namespace or "kubeflow",
                existing_token=os.environ.get(KUBEFLOW_TOKEN),
            )

    def _get(self, path: str) -> str:
        """Return what the API answers at a path that kfp's client does not know."""
        host, token = (self.platform.kubeflow_host or "").rstrip("/"), os.environ.get(KUBEFLOW_TOKEN)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = requests.get(f"{host}/apis/{path}", headers=headers, timeout=_TIMEOUT_SECONDS)
        if not answer.ok:
            raise ApiException(answer.status_code, answer.reason)
        return str(answer.text)

    def submit(self, name: str, wanted: Submission) -> tuple[Literal["submitted", "there already"], str]:
        """Start a run unless one of this name is under way or done; return its id."""
        with self._asking("submit the run"):
            for run in self._all("run", wanted.name):
                if run.state in _UNFINISHED | {"SUCCEEDED"}:
                    return "there already", run.run_id
            started = self._client.run_pipeline(
                experiment_id=self._experiment(wanted),
                job_name=wanted.name,
                params=dict(wanted.arguments),
                service_account=wanted.service_account,
                pipeline_root=wanted.pipeline_root,
                **self._version(name, wanted),
            )
            return "submitted", started.run_id

    def schedule(self, name: str, wanted: Submission) -> Scheduled:
        """Let the schedule of this name be what is wanted."""
        with self._asking("schedule the pipeline"):
            version = self._version(name, wanted)
            others = list(self._all("recurring_run", wanted.name))
            kept = next((job for job in others if _is(job, wanted, version["version_id"])), None)
            if kept:
                others.remove(kept)
                outcome = "updated" if any(job.status != _DISABLED for job in others) else "unchanged"
            else:
                outcome = "updated" if others else "created"
                kept = self._client.create_recurring_run(
                    experiment_id=self._experiment(wanted),
                    job_name=wanted.name,
                    cron_expression=wanted.cron,
                    max_concurrency=1,
                    no_catchup=True,
                    params=dict(wanted.arguments),
                    service_account=wanted.service_account,
                    pipeline_root=wanted.pipeline_root,
                    **version,
                )
            # only now: there is no moment without a schedule
            return Scheduled(outcome, kept.recurring_run_id, self._retire(others))

    def _retire(self, jobs: Sequence[Any]) -> list[str]:
        """Disable schedules, and remove those that have no unfinished run; return the names of unfinished runs."""
        if not jobs:
            return []
        under_way: dict[str, list[str]] = {}
        for run in self._all("run", None):
            if run.state in _UNFINISHED:
                under_way.setdefault(run.recurring_run_id, []).append(run.display_name)
        for job in jobs:
            if job.status != _DISABLED:
                self._client.disable_recurring_run(job.recurring_run_id)
            if job.recurring_run_id not in under_way:
                self._client.delete_recurring_run(job.recurring_run_id)
        return [run for job in jobs for run in under_way.get(job.recurring_run_id, ())]

    def disable(self, title: str) -> list[str]:
        """Stop every schedule of this name; return their ids."""
        with self._asking("disable the schedule"):
            found = [job.recurring_run_id for job in self._all("recurring_run", title)]
            for job in found:
                self._client.disable_recurring_run(job)
        if not found:
            raise UsageError("there is no schedule of this name", key="--title", value=title)
        return found

    def status(self) -> dict[str, list[dict[str, str]]]:
        """Return the experiment's runs, newest first, and its schedules."""
        with self._asking("list runs and schedules"):
            runs = self._all("run", None, sort_by="created_at desc")
            return {
                "runs": [{"name": r.display_name, "id": r.run_id, "state": r.state or "PENDING"} for r in runs],
                "schedules": [
                    {
                        "name": job.display_name,
                        "id": job.recurring_run_id,
                        "cron": job.trigger.cron_schedule.cron if job.trigger else "",
                        "state": job.status or "ENABLED",
                    }
                    for job in self._all("recurring_run", None)
                ],
            }

    def run(self, run: str) -> RunState:
        """Return a run with its tasks, by its id or its name (the newest of this name)."""
        with self._asking("read the run"):
            runs = self._all("run", None, sort_by="created_at desc")
            listed = next((entry for entry in runs if run in (entry.run_id, entry.display_name)), None)
            if listed is None:
                raise UsageError("there is no such run", key="RUN", value=run, hint="`mbd pipeline status` lists them")
            entry = self._client.get_run(listed.run_id)
        details = (entry.run_details.task_details if entry.run_details else None) or []
        nodes = [(detail, [child.pod_name or "" for child in detail.child_tasks or ()]) for detail in details]
        workflows = {_workflow(child) for _, children in nodes for child in children}
        states = []
        for detail, children in sorted(nodes, key=lambda node: str(node[0].start_time or node[0].create_time or "")):
            name, state = detail.display_name or "", detail.state or "PENDING"
            if _INNER.fullmatch(name) or name in workflows | {""}:
                continue
            if name.endswith(_DRIVER):  # Kubeflow's own pod before a task
                states += [TaskState(name, state)] if state in _FAILED else []
            else:
                own = state in _FAILED and len(children) == 1
                states.append(self._why(entry.run_id, name, state, children[0]) if own else TaskState(name, state))
        return RunState(entry.run_id, entry.state or "PENDING", states)

    def _why(self, run: str, name: str, state: str, executor: str) -> TaskState:
        """Return a failed task with what its log says, as far as there is one."""
        for pod in pod_names(executor, self.platform.retries.count):
            with suppress(OSError, ApiException):
                log = self._get(f"v1alpha1/runs/{quote(run)}/nodes/{quote(pod)}/log")
                reasons = _ENDING.findall(log) or log.strip().splitlines()[-1:]
                return TaskState(name, state, reasons[-1] if reasons else "", pod, log)
        return TaskState(name, state)

    def _experiment(self, wanted: Submission) -> str:
        made = self._client.create_experiment(wanted.experiment, namespace=self.platform.namespace)
        return str(made.experiment_id)

    def _version(self, name: str, wanted: Submission) -> dict[str, str]:
        """Return the ids of pipeline and version, uploaded if the cluster has them not."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"{wanted.pipeline}.yaml"
            file.write_text(compiled(name, self.platform), encoding="utf-8")
            pipeline = self._client.get_pipeline_id(wanted.pipeline)
            if pipeline is None:
                uploaded = self._client.upload_pipeline(
                    str(file), pipeline_name=wanted.pipeline, namespace=self.platform.namespace
                )
                pipeline = uploaded.pipeline_id
            listed = self._client.list_pipeline_versions(pipeline, page_size=_PAGE, sort_by="created_at desc")
            for version in listed.pipeline_versions or []:
                if version.display_name == wanted.version:
                    return {"pipeline_id": pipeline, "version_id": version.pipeline_version_id}
            version = self._client.upload_pipeline_version(
                str(file), pipeline_version_name=wanted.version, pipeline_id=pipeline
            )
            return {"pipeline_id": pipeline, "version_id": version.pipeline_version_id}

    def _all(self, kind: str, title: str | None, **options: str) -> Iterator[Any]:
        """Yield all runs or schedules of the experiment, of one name or of any."""
        experiment = self._client.create_experiment(self.platform.experiment, namespace=self.platform.namespace)
        listing, token = getattr(self._client, f"list_{kind}s"), ""
        while True:
            page = listing(page_token=token, page_size=_PAGE, experiment_id=experiment.experiment_id, **options)
            found = getattr(page, f"{kind}s") or []
            yield from (entry for entry in found if title is None or entry.display_name == title)
            token = page.next_page_token
            if not token:
                return

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        host = without_credentials(self.platform.kubeflow_host or "")
        try:
            with redirect_stdout(sys.stderr):  # kfp prints links, and the output here may be JSON
                yield
        except ApiException as error:
            credentials = error.status in (401, 403)
            raise ClusterError(
                f"Kubeflow refused to {what}: {error.status} {error.reason}",
                key="platform.kubeflow_host",
                value=host,
                hint=f"set a valid token in {KUBEFLOW_TOKEN}" if credentials else "see the API server's log",
            ) from error
        except (HTTPError, TimeoutError, OSError) as error:
            raise ClusterError(
                f"Kubeflow cannot be reached to {what}",
                key="platform.kubeflow_host",
                value=host,
                hint="check the URL and the network; --dry-run needs neither",
            ) from error


def pod_names(executor: str, retries: int) -> Iterator[str]:
    """Yield what the pod of a task may be called, the last attempt first.

    Kubeflow names the node of Argo that a task is carried out by, WORKFLOW-HASH, but no pod. A pod is called
    WORKFLOW-TEMPLATE-HASH; that of an attempt has the hash of its node's name, which is that of the task's node and
    the number of the attempt in parentheses. The hash is FNV-1a, so that it can be continued.
    """
    workflow, value = _workflow(executor), int(executor.rpartition("-")[2])
    for attempt in range(retries, -1, -1):
        yield f"{workflow}-retry-system-container-impl-{continued_hash(value, f'({attempt})')}"
    yield f"{workflow}-system-container-impl-{value}"


def continued_hash(value: int, text: str) -> int:
    """Return the 32-bit FNV-1a of a text whose beginning has the hash `value`."""
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


def _workflow(node: str) -> str:
    return node.rpartition("-")[0]


def _is(job: Any, wanted: Submission, version: str) -> bool:  # noqa: ANN401 -- kfp has no types
    """Return whether a schedule is the wanted one already."""
    return bool(
        job.trigger
        and job.trigger.cron_schedule
        and job.trigger.cron_schedule.cron == wanted.cron
        and job.pipeline_version_reference.pipeline_version_id == version
        and (job.runtime_config.parameters or {}) == dict(wanted.arguments)
        and (job.runtime_config.pipeline_root or None) == wanted.pipeline_root
        and (job.service_account or DEFAULT_ACCOUNT) == (wanted.service_account or DEFAULT_ACCOUNT)
        and job.status != "DISABLED"
    )
