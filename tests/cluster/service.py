"""The overlay `dev` in a namespace of its own, with everything that it names, and its store as seen from outside."""

import re
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mbd.formats.access import AccessTokens
from mbd.params import Params, load_params, to_yaml
from mbd.production.request_store import RequestStore
from mbd.steps import features, train
from mbd.storage import open_private, open_store
from mbd.storage.store import Store
from mbd.trust.keys import make_keys
from tests.certificate.authority import key_settings
from tests.cluster.node import ADDRESS, Cluster
from tests.cluster.objects import config_map, namespace, secret, volume
from tests.integration.servers.rgw import S3
from tests.production.small import SETTINGS

DEPLOY = Path(__file__).parents[2] / "deploy"


@dataclass(frozen=True)
class Service:
    """What was applied, and where its results are."""

    cluster: Cluster
    namespace: str
    params: Params
    state: Path
    """the volume of what must outlive a pod"""

    @property
    def within(self) -> str:
        """The option of kubectl that names the namespace."""
        return f"--namespace={self.namespace}"

    @property
    def store(self) -> Store:
        """The store, from outside."""
        return open_store(self.params.store.url, self.params.store)

    @property
    def requests(self) -> RequestStore:
        """The requests in the store."""
        return RequestStore(open_private(self.params.store.url, self.params.store))

    def certificates(self) -> set[str]:
        """Return the digests of what is published."""
        return {entry.name.split("/")[1] for entry in self.store.list("certificates/")}

    def start(self, cron_job: str, job: str) -> None:
        """Start what a CronJob describes now."""
        self.cluster.kubectl("create", "job", f"--from=cronjob/{cron_job}", job, self.within)

    def ended(self, job: str, seconds: float = 300) -> str:
        """Wait for the end of a job; return Complete or Failed."""

        def conditions() -> set[str]:
            status = self.cluster.get("job", job, self.within)["status"]
            return {each["type"] for each in status.get("conditions", []) if each["status"] == "True"}

        self.cluster.until(lambda: bool(conditions() & {"Complete", "Failed"}), f"job {job} has ended", seconds)
        return (conditions() & {"Complete", "Failed"}).pop()

    def run(self, cron_job: str, job: str) -> None:
        """Carry out what a CronJob describes, to a good end."""
        self.start(cron_job, job)
        ended = self.ended(job)
        assert ended == "Complete", self.cluster.kubectl("logs", f"job/{job}", "--all-containers", self.within)

    def working_pod(self, job: str, container: str) -> str:
        """Wait until a container of a job's pod runs; return the pod's name."""

        def running() -> list[str]:
            pods = self.cluster.get("pods", self.within, f"--selector=job-name={job}")["items"]
            return [
                pod["metadata"]["name"]
                for pod in pods
                for status in pod["status"].get("containerStatuses", [])
                if status["name"] == container and "running" in status["state"]
            ]

        self.cluster.until(lambda: bool(running()), f"{container} of job {job} runs", 120)
        return running()[0]

    def metrics(self) -> str:
        """Return the page of the exporter's pod."""
        chosen = "--selector=app.kubernetes.io/name=mbd-exporter"
        (pod,) = self.cluster.get("pods", self.within, chosen)["items"]
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9890/metrics", timeout=10) as page:
            return str(page.read().decode())


def overlay(name: str, folder: Path, changes: dict[str, str]) -> Path:
    """Return a copy of an overlay in which patterns are replaced."""
    shutil.copytree(DEPLOY, folder / "deploy")
    for file in (folder / "deploy/kustomize/overlays").glob("*/kustomization.yaml"):
        text = file.read_text()
        for pattern, by in changes.items():
            text = re.sub(pattern, by, text)
        file.write_text(text)
    return folder / "deploy" / "kustomize" / "overlays" / name


def apply(cluster: Cluster, folder: Path) -> None:
    """Apply an overlay; a field that the API server does not know is an error."""
    rendered = cluster.kubectl("kustomize", folder)
    cluster.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", given=rendered)


@contextmanager
def deployed(cluster: Cluster, s3: S3, folder: Path, where: str) -> Iterator[Service]:
    """Make what the overlay names, apply it, and let this process read its store."""
    volumes = cluster.folder / "volumes" / where
    make_keys(folder / "keys", "signer")
    chosen = overlay("dev", folder, {"namespace: mbd-dev": f"namespace: {where}"})
    params = chosen / "params.yaml"
    small = [*SETTINGS, f"store.url=s3://{where}", f"purge.tombstones=s3://{where}", "requests.lease_seconds=20"]
    params.write_text(to_yaml(load_params(params, small)))
    outside = [f"store.endpoint=http://{ADDRESS}:9000", "monitoring.mode=none", *key_settings(folder)]
    service = Service(cluster, where, load_params(params, outside), volumes / "state")
    s3.client().create_bucket(Bucket=where)
    features.run(service.params, folder / "features")
    train.run(service.params, folder / "features", volumes / "model" / "model")
    keys = {name: (folder / "keys" / name).read_text() for name in ("signer.pem", "log.pem", "lineage.key")}
    cluster.apply(
        namespace(where),
        secret(where, "mbd-store", s3.environment),
        secret(where, "mbd-keys", keys),
        secret(where, "mbd-access", {"tokens.json": AccessTokens().to_json()}),
        config_map(where, "mbd-trust", {"trust.json": (folder / "keys" / "trust.json").read_text()}),
        *volume(where, "mbd-model", volumes / "model"),
        *volume(where, "mbd-state", service.state),
    )
    apply(cluster, chosen)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        yield service
