"""What a cluster lacks of what the parameters and the values of a deployment name: `mbd doctor --cluster`.

The cluster is asked by `kubectl`, with its configuration and its logins. Whether image, claims, store, keys and
Pushgateway work is seen where they have to: `mbd doctor` runs in a pod that has what a task of the pipelines has.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import yaml

from mbd.deployment.manifests import Deployment, required_claims, required_secrets
from mbd.deployment.values import DeployValues, ResourceValues
from mbd.doctor import CheckState, DoctorFinding
from mbd.doctor.services import check_kubeflow
from mbd.params import Params

_ANSWER_SECONDS, _POD_SECONDS = 15, 180
_RUNNER = "pipeline-runner"
_LAUNCHER = "kfp-launcher"
_RIGHTS = (("create", "workflowtaskresults.argoproj.io"), ("get", "configmaps"), ("get", "secrets"))
"""what Argo's executor and Kubeflow's launcher do with the service account of a run"""
_APPLY = "mbd deploy render | kubectl apply --filename -"


def check_cluster(values: DeployValues, params: Params) -> Iterator[DoctorFinding]:
    """Check the namespace of a deployment, Kubeflow's own side in it, and a pod."""
    yield from check_kubeflow(params.platform.kubeflow_host)
    kubectl = _Kubectl(values.namespace)
    version = kubectl("get", "--raw=/version")
    if isinstance(version, str):
        yield DoctorFinding("cluster", CheckState.FAILED, version, "install kubectl and log in: `kubectl version`")
        return
    found = f"Kubernetes {version.get('gitVersion', '?')}, namespace {values.namespace}"
    yield DoctorFinding("cluster", CheckState.OK, found)
    objects = [*_objects(kubectl, values, params)]
    yield from objects
    yield from _kubeflow_side(kubectl, params)
    if any(each.state is CheckState.FAILED for each in objects):
        found = "not tried: it would wait for what is missing"
        yield DoctorFinding("pod", CheckState.WARNING, found, "make that first")
    else:
        yield from _in_a_pod(kubectl, values, params)


class _Kubectl:
    """kubectl in a namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def __call__(self, *arguments: str, given: str | None = None) -> dict[str, Any] | str:
        """Return the JSON that a command prints, or in words why it failed."""
        answer = self.text(*arguments, given=given)
        if isinstance(answer, RuntimeError):
            return str(answer)
        content: dict[str, Any] = json.loads(answer)
        return content

    def text(self, *arguments: str, given: str | None = None) -> str | RuntimeError:
        """Return what a command prints, or why it failed."""
        command = ["kubectl", f"--namespace={self.namespace}", f"--request-timeout={_ANSWER_SECONDS}s", *arguments]
        try:
            done = subprocess.run(  # noqa: S603 -- kubectl
                command, input=given, capture_output=True, text=True, check=False, timeout=2 * _ANSWER_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return RuntimeError(f"kubectl: {error}")
        lines = done.stderr.strip().splitlines()
        return RuntimeError(lines[-1] if lines else "kubectl failed") if done.returncode else done.stdout

    def get(self, kind: str, name: str) -> dict[str, Any] | str:
        """Return an object, or why it cannot be read."""
        return self("get", kind, name, "--output=json")


def _objects(kubectl: _Kubectl, values: DeployValues, params: Params) -> Iterator[DoctorFinding]:
    within = f"--namespace={values.namespace}"
    for name, keys in required_secrets(values, params).items():
        parts = [
            f'--from-literal={key}="{place}"' if place.startswith("$") else f"--from-file={values.secrets.folder}/{key}"
            for key, place in keys.items()
        ]
        to_do = f"kubectl create secret generic {name} {within} {' '.join(parts)}"
        yield _compare(kubectl.get("secret", name), f"secret {name}", keys, to_do)
    trust, file = params.platform.trust_config or "", f"{values.secrets.folder}/trust.json"
    to_do = f"kubectl create configmap {trust} {within} --from-file={file}"
    yield _compare(kubectl.get("configmap", trust), f"config map {trust}", ["trust.json"], to_do)
    yield _compare(kubectl.get("configmap", "mbd-params"), "config map mbd-params", ["params.yaml"], _APPLY)
    for name in required_claims(params):
        claim, title = kubectl.get("persistentvolumeclaim", name), f"claim {name}"
        if isinstance(claim, str):
            yield DoctorFinding(title, CheckState.FAILED, claim, _APPLY)
        elif (access := values.claims.access) not in claim["spec"]["accessModes"]:
            found = f"its access modes are {', '.join(claim['spec']['accessModes'])}, not {access}"
            yield DoctorFinding(title, CheckState.FAILED, found, "make it again in a storage class that has it")
        else:
            yield DoctorFinding(title, CheckState.OK, f"{access}, {claim['status']['phase']}")


def _compare(
    found: dict[str, Any] | str, title: str, keys: Sequence[str] | dict[str, str], to_do: str
) -> DoctorFinding:
    if isinstance(found, str):
        state = CheckState.WARNING if "orbidden" in found else CheckState.FAILED
        return DoctorFinding(title, state, found, to_do)
    if missing := [key for key in keys if key not in (found.get("data") or {})]:
        return DoctorFinding(title, CheckState.FAILED, f"it has no {', '.join(missing)}", to_do)
    return DoctorFinding(title, CheckState.OK, ", ".join(keys))


def _kubeflow_side(kubectl: _Kubectl, params: Params) -> Iterator[DoctorFinding]:
    """Check what Kubeflow's launcher and Argo's executor need in the namespace of the runs."""
    account = params.platform.service_account or _RUNNER
    for name, kind in ((account, "serviceaccount"), (_LAUNCHER, "configmap")):
        answer = kubectl.get(kind, name)
        if isinstance(answer, str):
            to_do = "it is part of Kubeflow Pipelines; docs/kubeflow.md has an example"
            yield DoctorFinding(f"{kind} {name}", CheckState.FAILED, answer, to_do)
        elif kind == "configmap":
            yield _launcher(kubectl, answer.get("data") or {}, params)
    user = f"--as=system:serviceaccount:{kubectl.namespace}:{account}"
    lacking = [
        f"{verb} {kind}"
        for verb, kind in _RIGHTS
        if str(kubectl.text("auth", "can-i", verb, kind, user)).strip() != "yes"
    ]
    state = CheckState.WARNING if lacking else CheckState.OK
    found = f"may not {', '.join(lacking)}, or you may not ask" if lacking else "has the rights that a run needs"
    yield DoctorFinding(
        f"rights of {account}", state, found, "bind the role of docs/kubeflow.md to it" if lacking else None
    )


def _launcher(kubectl: _Kubectl, data: dict[str, str], params: Params) -> DoctorFinding:
    """Return whether artifacts have a place, and the launcher credentials for it."""
    title, root = f"configmap {_LAUNCHER}", params.platform.pipeline_root or data.get("defaultPipelineRoot")
    if not root:
        return DoctorFinding(title, CheckState.WARNING, "no defaultPipelineRoot", "set it, and platform.pipeline_root")
    if params.platform.pipeline_root is None:
        return DoctorFinding(title, CheckState.WARNING, "no purge can search it", f"set platform.pipeline_root={root}")
    scheme = root.partition("://")[0]
    provider = (yaml.safe_load(data.get("providers") or "{}") or {}).get(scheme, {}).get("default", {})
    reference = provider.get("credentials", {}).get("secretRef", {})
    if scheme == "s3" and not reference and not provider.get("credentials", {}).get("fromEnv"):
        to_do = "add providers.s3.default with endpoint and credentials; docs/kubeflow.md has an example"
        return DoctorFinding(title, CheckState.WARNING, f"no credentials for {root}", to_do)
    keys = [reference[key] for key in ("accessKeyKey", "secretKeyKey") if key in reference]
    name = reference.get("secretName")
    to_do = f"kubectl create secret generic {name} --namespace={kubectl.namespace} --from-literal=KEY=VALUE …"
    lacks = _compare(kubectl.get("secret", name), f"secret {name} of {_LAUNCHER}", keys, to_do) if name else None
    return lacks if lacks and lacks.state is not CheckState.OK else DoctorFinding(title, CheckState.OK, root)


def _in_a_pod(kubectl: _Kubectl, values: DeployValues, params: Params) -> Iterator[DoctorFinding]:
    """Run `mbd doctor` in a pod with what a task has, and yield its findings; a pod that does not start is one.

    By its fsGroup, which Kubeflow's own pods lack, a fresh volume is given to the user of the image.
    """
    name = f"mbd-doctor-{uuid4().hex[:8]}"
    pod = Deployment(values, params).task_pod(name, ["doctor", "--json"], ResourceValues())
    made = kubectl("create", "--filename=-", "--output=json", given=json.dumps(pod))
    if isinstance(made, str):
        yield DoctorFinding("pod", CheckState.FAILED, made, "rights to create pods are needed for this check")
        return
    try:
        ended = _ended(kubectl, name)
        text = kubectl.text("logs", name) if ended is None else ended
        if ended or isinstance(text, RuntimeError):
            to_do = f"kubectl describe pod {name} shows more while it is there; see platform.image"
            yield DoctorFinding("pod", CheckState.FAILED, str(text), to_do)
            return
        for entry in json.loads(str(text)[str(text).index("{") :])["checks"]:
            state = CheckState(entry["state"])
            yield DoctorFinding(f"pod: {entry['name']}", state, entry["found"], entry["to_do"])
    finally:
        kubectl.text("delete", "pod", name, "--wait=false")


def _ended(kubectl: _Kubectl, name: str) -> str | None:
    """Wait until a pod has ended; return why it has not, None if it has."""
    end, waiting = time.monotonic() + _POD_SECONDS, "it has not started"
    while time.monotonic() < end:
        pod = kubectl.get("pod", name)
        if isinstance(pod, str):
            return pod
        status = pod["status"]
        if status.get("phase") in ("Succeeded", "Failed"):
            return None
        for each in status.get("containerStatuses", ()):
            reason = each["state"].get("waiting", {})
            waiting = f"{reason.get('reason', waiting)} {reason.get('message', '')}".strip()
            if "Image" in waiting and "ack" in waiting.partition(" ")[0]:  # ImagePullBackOff: it will not get better
                return waiting
        for each in status.get("conditions", ()):
            if each["type"] == "PodScheduled" and each["status"] == "False":
                waiting = f"not scheduled: {each.get('message', '')}"
        time.sleep(1)
    return f"{waiting} (after {_POD_SECONDS} s)"
