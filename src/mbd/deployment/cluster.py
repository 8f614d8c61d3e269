"""What a cluster lacks of what the parameters and the values of a deployment name: `mbd doctor --cluster`.

The cluster is asked by `kubectl`, with its configuration and its logins. Whether image, claims, store, keys and
Pushgateway work is seen where they have to: `mbd doctor` runs in a pod that has what a task of the pipelines has.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import yaml

from mbd.deployment.manifests import Deployment, required_claims, required_secrets
from mbd.deployment.values import DeployValues, ResourceValues
from mbd.doctor import CheckState, DoctorFinding
from mbd.doctor.services import check_kubeflow
from mbd.errors import MbdError
from mbd.params import Params

_ANSWER_SECONDS, _POD_SECONDS = 15, 180
_RUNNER = "pipeline-runner"
_LAUNCHER = "kfp-launcher"
_RIGHTS = (("create", "workflowtaskresults.argoproj.io"), ("get", "configmaps"), ("get", "secrets"))
"""what Argo's executor and Kubeflow's launcher do with the service account of a run"""
_APPLY = "mbd deploy render | kubectl apply --filename -"


class _DoubtError(MbdError):
    """It may work nevertheless."""


def check_cluster(values: DeployValues, params: Params) -> Iterator[DoctorFinding]:
    """Check the namespace of a deployment, Kubeflow's own side in it, and a pod; who may not look is warned."""
    yield from check_kubeflow(params.platform.kubeflow_host)
    kubectl = _Kubectl(values.namespace)
    answers = _check("cluster", "install kubectl and log in: `kubectl version`", kubectl.version)
    yield answers
    if answers.state is not CheckState.OK:
        return
    objects = [*_objects(kubectl, values, params)]
    yield from objects
    yield from _kubeflow_side(kubectl, params)
    if any(each.state is CheckState.FAILED for each in objects):
        reason = "not tried: it would wait for what is missing"
        yield DoctorFinding("pod", CheckState.WARNING, reason, "make that first")
    else:
        yield from _in_a_pod(kubectl, values, params)


class _Kubectl:
    """kubectl in a namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def __call__(self, *arguments: str, content: str | None = None) -> str:
        """Return what a command prints; an MbdError if it fails."""
        command = ["kubectl", f"--namespace={self.namespace}", f"--request-timeout={_ANSWER_SECONDS}s", *arguments]
        try:
            done = subprocess.run(  # noqa: S603 -- kubectl
                command, input=content, capture_output=True, text=True, check=False, timeout=2 * _ANSWER_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MbdError(f"kubectl: {error}") from error
        if done.returncode:
            raise MbdError((done.stderr.strip().splitlines() or ["kubectl failed"])[-1])
        return done.stdout

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object."""
        answer: dict[str, Any] = json.loads(self("get", kind, name, "--output=json"))
        return answer

    def version(self) -> str:
        """Return what answers."""
        version = json.loads(self("get", "--raw=/version")).get("gitVersion", "?")
        return f"Kubernetes {version}, namespace {self.namespace}"

    def keys(self, kind: str, name: str, keys: Iterable[str]) -> str:
        """Return the keys of a secret or a config map, which has to have them."""
        data = self.get(kind, name).get("data") or {}
        if missing := [key for key in keys if key not in data]:
            raise MbdError(f"it has no {', '.join(missing)}")
        return ", ".join(keys)

    def claim(self, name: str, access: str) -> str:
        """Return the state of a claim, which has to have an access mode."""
        claim = self.get("persistentvolumeclaim", name)
        modes = claim["spec"]["accessModes"]
        if access not in modes:
            hint = "make it again in a storage class that has it"
            raise MbdError(f"its access modes are {', '.join(modes)}, not {access}", hint=hint)
        return f"{access}, {claim['status']['phase']}"

    def may(self, account: str) -> str:
        """Return that a service account has the rights that a run needs."""
        lacking = []
        for verb, kind in _RIGHTS:
            with suppress(MbdError):  # kubectl fails where the answer is no
                if self("auth", "can-i", verb, kind, f"--as={account}").strip() == "yes":
                    continue
            lacking.append(f"{verb} {kind}")
        if lacking:
            raise _DoubtError(f"may not {', '.join(lacking)}, or you may not ask")
        return "has the rights that a run needs"


def _check(name: str, to_do: str, check: Callable[[], str]) -> DoctorFinding:
    """Return what a check finds, or the error that it raises; `to_do`: the hint where that has none."""
    try:
        return DoctorFinding(name, CheckState.OK, check())
    except MbdError as error:
        doubtful = isinstance(error, _DoubtError) or "orbidden" in error.problem
        state = CheckState.WARNING if doubtful else CheckState.FAILED
        return DoctorFinding(name, state, error.problem, error.hint or to_do)


def _objects(kubectl: _Kubectl, values: DeployValues, params: Params) -> Iterator[DoctorFinding]:
    within = f"--namespace={values.namespace}"
    for name, keys in required_secrets(values, params).items():
        parts = [
            f'--from-literal={key}="{place}"' if place.startswith("$") else f"--from-file={values.secrets.folder}/{key}"
            for key, place in keys.items()
        ]
        to_do = f"kubectl create secret generic {name} {within} {' '.join(parts)}"
        yield _check(f"secret {name}", to_do, partial(kubectl.keys, "secret", name, keys))
    trust, file = params.platform.trust_config or "", f"{values.secrets.folder}/trust.json"
    to_do = f"kubectl create configmap {trust} {within} --from-file={file}"
    yield _check(f"config map {trust}", to_do, partial(kubectl.keys, "configmap", trust, ["trust.json"]))
    yield _check("config map mbd-params", _APPLY, partial(kubectl.keys, "configmap", "mbd-params", ["params.yaml"]))
    for name in required_claims(params):
        yield _check(f"claim {name}", _APPLY, partial(kubectl.claim, name, values.claims.access))


def _kubeflow_side(kubectl: _Kubectl, params: Params) -> Iterator[DoctorFinding]:
    """Check what Kubeflow's launcher and Argo's executor need in the namespace of the runs."""
    account = params.platform.service_account or _RUNNER
    to_do = "it is part of Kubeflow Pipelines; docs/kubeflow.md has an example"
    yield _check(f"serviceaccount {account}", to_do, partial(kubectl.keys, "serviceaccount", account, ()))
    yield _check(f"configmap {_LAUNCHER}", to_do, partial(_launcher, kubectl, params))
    to_do = "bind the role of docs/kubeflow.md to it"
    user = f"system:serviceaccount:{kubectl.namespace}:{account}"
    yield _check(f"rights of {account}", to_do, partial(kubectl.may, user))


def _launcher(kubectl: _Kubectl, params: Params) -> str:
    """Return the place of artifacts, for which the launcher has to have credentials."""
    data = kubectl.get("configmap", _LAUNCHER).get("data") or {}
    root = params.platform.pipeline_root or data.get("defaultPipelineRoot")
    if not root:
        raise _DoubtError("no defaultPipelineRoot", hint="set it, and platform.pipeline_root")
    if params.platform.pipeline_root is None:
        raise _DoubtError("no purge can search it", hint=f"set platform.pipeline_root={root}")
    scheme = root.partition("://")[0]
    provider = (yaml.safe_load(data.get("providers") or "{}") or {}).get(scheme, {}).get("default", {})
    credentials = provider.get("credentials", {})
    reference = credentials.get("secretRef", {})
    if scheme == "s3" and not reference and not credentials.get("fromEnv"):
        hint = "add providers.s3.default with endpoint and credentials; docs/kubeflow.md has an example"
        raise _DoubtError(f"no credentials for {root}", hint=hint)
    if name := reference.get("secretName"):
        keys = [reference[key] for key in ("accessKeyKey", "secretKeyKey") if key in reference]
        hint = f"kubectl create secret generic {name} --namespace={kubectl.namespace} --from-literal=KEY=VALUE …"
        secret = _check(f"secret {name}", hint, partial(kubectl.keys, "secret", name, keys))
        if secret.state is not CheckState.OK:
            raise MbdError(f"{secret.name}: {secret.found}", hint=hint)
    return str(root)


def _in_a_pod(kubectl: _Kubectl, values: DeployValues, params: Params) -> Iterator[DoctorFinding]:
    """Run `mbd doctor` in a pod with what a task has, and yield its findings; a pod that does not start is one.

    By its fsGroup, which Kubeflow's own pods lack, a fresh volume is given to the user of the image.
    """
    name = f"mbd-doctor-{uuid4().hex[:8]}"
    pod = Deployment(values, params).task_pod(name, ["doctor", "--json"], ResourceValues())
    to_do = "rights to create pods are needed for this check"
    try:
        kubectl("create", "--filename=-", content=json.dumps(pod))
        to_do = f"kubectl describe pod {name} shows more while it is there; see platform.image"
        try:
            _wait(kubectl, name)
            yield from _findings(kubectl("logs", name))
        finally:
            with suppress(MbdError):
                kubectl("delete", "pod", name, "--wait=false")
    except MbdError as error:
        yield DoctorFinding("pod", CheckState.FAILED, error.problem, to_do)


def _findings(log: str) -> list[DoctorFinding]:
    """Return what `mbd doctor --json` has printed in a pod, whose log has standard error, too."""
    try:
        entries = json.JSONDecoder().raw_decode(log, log.index("{"))[0]["checks"]
        return [DoctorFinding(f"pod: {e['name']}", CheckState(e["state"]), e["found"], e["to_do"]) for e in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise MbdError(log.strip() or "`mbd doctor` has printed nothing") from error


def _wait(kubectl: _Kubectl, name: str) -> None:
    """Wait until a pod has ended; an MbdError says why it has not."""
    end, waiting = time.monotonic() + _POD_SECONDS, "it has not started"
    while time.monotonic() < end:
        status = kubectl.get("pod", name)["status"]
        if status.get("phase") in ("Succeeded", "Failed"):
            return
        for each in status.get("containerStatuses", ()):
            reason = each["state"].get("waiting", {})
            waiting = f"{reason.get('reason', waiting)} {reason.get('message', '')}".strip()
            if "Image" in waiting and "ack" in waiting.partition(" ")[0]:  # ImagePullBackOff: it will not get better
                raise MbdError(waiting)
        for each in status.get("conditions", ()):
            if each["type"] == "PodScheduled" and each["status"] == "False":
                waiting = f"not scheduled: {each.get('message', '')}"
        time.sleep(1)
    raise MbdError(f"{waiting} (after {_POD_SECONDS} s)")
