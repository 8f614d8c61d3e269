"""A Kubernetes of one node: etcd, the control plane, containerd and the kubelet, each a child process.

It is started inside `tests/cluster/apart`, whose network, mounts and processes are its own. A bridge joins the pods;
its first address is the node, and the API server listens there. There is no kube-proxy: names of services lead to the
node (dnsmasq), where a server can take the place of what a service would have led to. Network policies are accepted,
and enforced by nothing.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.authority import Authority
from tests.cluster.image import PACKAGES, packages
from tests.cluster.images import scratch_image
from tests.cluster.tools import program
from tests.integration.servers.process import answers, need, running, wait_until

ADDRESS = "10.88.0.1"
NODE = "node"
PAUSE = "docker.io/library/pause:1"
_BRIDGE = "mbd0"
_SERVICES = "10.96.0.0/16"
_API_SERVICE = "10.96.0.1"  # the first of the services, which Kubernetes gives to its API
_ADMIN, _KUBELET = "admin", "kubelet"  # names of users and their tokens: nothing outside can reach the API server
# The kubelet wants the kernel to be set like this and would set it, for the whole machine.
_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_CONTAINERD = """
version = 2
root = "{folder}/containerd"
state = "{folder}/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{folder}/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  # Root in a container may not have the right to spare a process from being ended first.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "{folder}/container.json"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        """How an administrator reaches it."""
        return self.folder / f"{_ADMIN}.kubeconfig"

    def kubectl(self, *arguments: str | Path, given: str | None = None, seconds: float = 60) -> str:
        """Return the output of a kubectl command that has to succeed."""
        done = self.try_kubectl(*arguments, given=given, seconds=seconds)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def try_kubectl(
        self, *arguments: str | Path, given: str | None = None, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a kubectl command to its end, whatever that is."""
        command = [program("kubernetes", "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(
            list(map(str, command)), input=given, capture_output=True, text=True, check=False, timeout=seconds
        )

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply objects; a field that the API server does not know is an error."""
        given = {"apiVersion": "v1", "kind": "List", "items": documents}
        self.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", given=json.dumps(given))

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return an object, or a list of them, as the API server has it."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return found

    def until(self, ready: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Wait until `ready()`."""
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                pods = self.try_kubectl("describe", "pods", "--all-namespaces").stdout
                raise TimeoutError(f"{what}: not after {seconds} s\n{pods[-6000:]}")
            time.sleep(0.5)

    def ended(self, namespace: str, pod: str, seconds: float = 120) -> tuple[str, str]:
        """Wait until a pod has ended; return its phase and what it printed."""

        def phase() -> str:
            return str(self.get("pod", pod, f"--namespace={namespace}")["status"].get("phase"))

        self.until(lambda: phase() in {"Succeeded", "Failed"}, f"pod {pod} has ended", seconds)
        return phase(), self.kubectl("logs", pod, f"--namespace={namespace}", "--all-containers")

    def import_image(self, archive: Path) -> None:
        """Give the node the images of an archive."""
        self._images("import", str(archive))

    def tag_image(self, name: str, other: str) -> None:
        """Give an image of the node another name."""
        self._images("tag", "--force", name, other)

    def image_digest(self, name: str) -> str:
        """Return the digest of an image of the node."""
        (digest,) = re.findall(r"sha256:[0-9a-f]{64}", self._images("list", f"name=={name}"))
        return str(digest)

    def _images(self, *arguments: str) -> str:
        address = self.folder / "run" / "containerd.sock"
        command = ["ctr", "--address", str(address), "--namespace=k8s.io", "images", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return done.stdout


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run the cluster; its node is ready when this yields."""
    need("containerd", "ctr", "runc", "dnsmasq", "ip")
    if "MBD_CLUSTER_FOLDER" not in os.environ:
        pytest.fail("run this by tests/cluster/apart, or by make test-cluster")
    folder = Path(os.environ["MBD_CLUSTER_FOLDER"])
    for name in ("log", "run", "cni"):
        (folder / name).mkdir()
    started = Cluster(folder)
    _leave_the_kernel_alone(folder)
    _connect()
    _write_files(folder)
    for name in ("resolv.conf", "hosts"):
        _call("mount", "--bind", str(folder / name), f"/etc/{name}")
    with ExitStack() as stack:
        start = _Starter(folder / "log", stack)
        start("dnsmasq", *_dnsmasq())
        start("etcd", program("etcd"), *_etcd(folder), ready=lambda: answers("http://127.0.0.1:2379/health"))
        start("kube-apiserver", *_api_server(folder), ready=lambda: _healthy(started))
        for name in ("kube-controller-manager", "kube-scheduler"):
            start(name, *_controller(folder, name))
        socket = folder / "run" / "containerd.sock"
        start("containerd", "containerd", f"--config={folder / 'containerd.toml'}", ready=socket.exists)
        scratch_image(program("pause"), PAUSE, folder / "pause.tar")
        started.import_image(folder / "pause.tar")
        start("kubelet", *_kubelet(folder), ready=lambda: _node_is_ready(started))
        yield started


class _Starter:
    def __init__(self, logs: Path, stack: ExitStack) -> None:
        self._logs, self._stack = logs, stack

    def __call__(self, name: str, *command: str | Path, ready: Callable[[], bool] = lambda: True) -> None:
        log = self._logs / f"{name}.log"
        process = self._stack.enter_context(running(command, log))
        wait_until(ready, process, log, seconds=180, pause=0.5)


def _leave_the_kernel_alone(folder: Path) -> None:
    for name, value in _KERNEL.items():
        wanted = folder / "run" / name.replace("/", ".")
        wanted.write_text(value)
        _call("mount", "--bind", str(wanted), f"/proc/sys/{name}")


def _connect() -> None:
    # Without an address of its own a bridge takes the lowest of its ports: it changes as pods come and go, and what
    # pods remember of it is wrong for a minute.
    _call("ip", "link", "add", _BRIDGE, "address", "02:00:0a:58:00:01", "type", "bridge")
    _call("ip", "address", "add", f"{ADDRESS}/16", "dev", _BRIDGE)
    _call("ip", "address", "add", f"{_API_SERVICE}/32", "dev", _BRIDGE)
    _call("ip", "link", "set", _BRIDGE, "up")
    _call("hostname", NODE)


def _write_files(folder: Path) -> None:
    authority = Authority(folder / "keys")
    authority.issue("server", ADDRESS, _API_SERVICE, names=("kubernetes.default.svc",))
    authority.issue("kubelet", ADDRESS, names=(NODE,))
    authority.issue("accounts")
    tokens = [f"{_ADMIN},{_ADMIN},{_ADMIN},system:masters", f"{_KUBELET},system:node:{NODE},{_KUBELET},system:nodes"]
    (folder / "tokens.csv").write_text("\n".join(tokens))
    for user in (_ADMIN, _KUBELET):
        (folder / f"{user}.kubeconfig").write_text(json.dumps(_kubeconfig(folder, user)))
    (folder / "resolv.conf").write_text(f"nameserver {ADDRESS}\n")
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} {NODE}\n")
    (folder / "containerd.toml").write_text(_CONTAINERD.format(folder=folder, pause=PAUSE))
    (folder / "container.json").write_text(json.dumps(_container()))
    (folder / "cni" / "bridge.conflist").write_text(json.dumps(_pod_network(folder)))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet_settings(folder)))


def _kubeconfig(folder: Path, user: str) -> dict[str, Any]:
    where = {"server": f"https://{ADDRESS}", "certificate-authority": str(folder / "keys" / "authority.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": where}],
        "users": [{"name": user, "user": {"token": user}}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": user}}],
        "current-context": "cluster",
    }


def _container() -> dict[str, Any]:
    """Return what every container has, as `ctr oci spec` has it, and the packages that our image looks for."""
    done = subprocess.run(["ctr", "oci", "spec"], check=True, capture_output=True, text=True)
    spec: dict[str, Any] = json.loads(done.stdout)
    mount = {"destination": PACKAGES, "type": "bind", "source": str(packages()), "options": ["rbind", "ro"]}
    spec["mounts"].append(mount)
    return spec


def _pod_network(folder: Path) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "dataDir": str(folder / "run" / "addresses"),
        "ranges": [[{"subnet": "10.88.0.0/16", "rangeStart": "10.88.1.1", "gateway": ADDRESS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": _BRIDGE, "isGateway": True, "ipMasq": False, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _kubelet_settings(folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(folder / "keys" / "authority.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": str(folder / "keys" / "kubelet.crt"),
        "tlsPrivateKeyFile": str(folder / "keys" / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{folder / 'run' / 'containerd.sock'}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{folder.name}",
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(folder / "resolv.conf"),
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # An image that was removed could not be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "podLogsDir": str(folder / "log" / "pods"),
        "volumePluginDir": str(folder / "run" / "volume-plugins"),
        "syncFrequency": "10s",
    }


def _dnsmasq() -> Sequence[str]:
    listen = [f"--listen-address={ADDRESS}", "--bind-interfaces", "--no-resolv", "--no-hosts"]
    answer = [f"--address=/svc.cluster.local/{ADDRESS}"]
    return ["dnsmasq", "--keep-in-foreground", "--conf-file=", "--pid-file=", "--user=root", *listen, *answer]


def _etcd(folder: Path) -> Sequence[str]:
    return [f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn"]


def _api_server(folder: Path) -> Sequence[str | Path]:
    keys = folder / "keys"
    return [
        program("kubernetes", "kube-apiserver"),
        "--etcd-servers=http://127.0.0.1:2379",
        "--secure-port=443",
        f"--advertise-address={ADDRESS}",
        f"--service-cluster-ip-range={_SERVICES}",
        f"--tls-cert-file={keys / 'server.crt'}",
        f"--tls-private-key-file={keys / 'server.key'}",
        f"--client-ca-file={keys / 'authority.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={keys / 'authority.crt'}",
        f"--kubelet-client-certificate={keys / 'server.crt'}",
        f"--kubelet-client-key={keys / 'server.key'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys / 'accounts.crt'}",
        f"--service-account-signing-key-file={keys / 'accounts.key'}",
    ]


def _controller(folder: Path, name: str) -> Sequence[str | Path]:
    config = folder / f"{_ADMIN}.kubeconfig"
    common: list[str | Path] = [program("kubernetes", name), f"--kubeconfig={config}", "--leader-elect=false"]
    common += [f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}"]
    if name == "kube-scheduler":
        return common
    keys = folder / "keys"
    accounts = [f"--service-account-private-key-file={keys / 'accounts.key'}", "--use-service-account-credentials"]
    return [*common, *accounts, f"--root-ca-file={keys / 'authority.crt'}"]


def _kubelet(folder: Path) -> Sequence[str | Path]:
    return [
        program("kubernetes", "kubelet"),
        f"--config={folder / 'kubelet.json'}",
        f"--kubeconfig={folder / 'kubelet.kubeconfig'}",
        f"--root-dir={folder / 'kubelet'}",
        f"--cert-dir={folder / 'keys'}",
        f"--hostname-override={NODE}",
        f"--node-ip={ADDRESS}",
    ]


def _healthy(started: Cluster) -> bool:
    return started.try_kubectl("get", "--raw=/readyz").returncode == 0


def _node_is_ready(started: Cluster) -> bool:
    return started.try_kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s").returncode == 0


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
