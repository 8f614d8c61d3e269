"""What `mbd deploy render` prints in a namespace of its own, with a registered model, and its store from outside."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mbd.deployment.manifests import render
from mbd.deployment.values import DeployValues, with_names
from mbd.history.replay import read_history
from mbd.params import Params, load_params, to_yaml
from mbd.production import register
from mbd.production.request_store import RequestStore
from mbd.serving.tokens import TokenFile
from mbd.steps import features, train
from mbd.storage import open_store
from mbd.storage.store import Store
from mbd.trust.keys import make_keys
from mbd.trust.trust_file import read_trust
from tests.certificate.authority import key_settings
from tests.cluster.node import ADDRESS, Cluster
from tests.cluster.objects import namespace, volume
from tests.integration.servers.rgw import S3
from tests.production.small import SETTINGS


@dataclass(frozen=True)
class Service:
    """What was applied, and where its results are."""

    cluster: Cluster
    namespace: str
    params: Params
    state: Path
    """the volume of what must outlive a pod"""
    token: str
    """of a client who may submit and read"""
    values: DeployValues
    inside: Params
    """the parameters as they are in pods"""

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
        return RequestStore.open(self.params, self.params.store.url)

    def ready(self, name: str) -> str:
        """Wait until a Deployment is ready; return the address of its pod."""
        self.cluster.kubectl("rollout", "status", f"deployment/{name}", self.within, seconds=240)
        pods = self.cluster.get("pods", self.within, f"--selector=app.kubernetes.io/name={name}")["items"]
        (pod,) = (each for each in pods if "deletionTimestamp" not in each["metadata"])
        (port,) = pod["spec"]["containers"][0]["ports"]
        return f"http://{pod['status']['podIP']}:{port['containerPort']}"

    def call(self, url: str, document: object = None) -> dict[str, Any]:
        """Return what a server answers, be it an error or not."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        body = None if document is None else json.dumps(document).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            answer = json.load(error)
        return answer

    def certificates(self) -> set[str]:
        """Return the digests of what is published, besides the registration."""
        found = read_history(self.store, read_trust(Path(self.params.certificate.trust)), cached=False)
        registered = {each.digest for each in found.model(self.params.certificate.model).registrations}
        return {entry.name.split("/")[1] for entry in self.store.list("certificates/")} - registered

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


@contextmanager
def deployed(cluster: Cluster, s3: S3, folder: Path, where: str, *more: str) -> Iterator[Service]:
    """Register a model, apply what `mbd deploy render` prints, and let this process read the store."""
    make_keys(folder / "keys", "signer")
    token, _ = TokenFile(folder / "keys" / "tokens.json").new("test", ("submit", "read"), 1)
    own = [f"store.url=s3://{where}", f"purge.tombstones=s3://{where}", "requests.lease_seconds=20", *more]
    own += ["store.endpoint=http://s3:9000", "store.lock_mode=null", "platform.memory=1Gi"]
    own += ["certificate.model=sentiment", "monitoring.mode=push", "monitoring.schedules={request-run: 3600}"]
    own.append("monitoring.pushgateway=http://pushgateway.monitoring:9091")
    own.append("certificate.first_time=true")  # what registers the model is another machine than the pods
    params = load_params(None, with_names(None, [*SETTINGS, *own]))
    (folder / "inside.yaml").write_text(to_yaml(params))
    outside = [f"store.endpoint=http://{ADDRESS}:9000", "monitoring.mode=none", *key_settings(folder)]
    state = cluster.folder / "volumes" / where / "state"
    values = DeployValues.model_validate(
        {
            "namespace": where,
            "secrets": {"source": "files", "folder": str(folder / "keys")},
            "claims": {"access": "ReadWriteOnce", "size": "1Gi", "storage_class": ""},
            "serve": {"replicas": 1},
            "inference": {"models": [params.certificate.model], "replicas": 1, "resources": {"cpu": "100m"}},
        }
    )
    seen = load_params(folder / "inside.yaml", outside)
    service = Service(cluster, where, seen, state, token, values, params)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        s3.client().create_bucket(Bucket=where)
        features.run(service.params, folder / "features")
        train.run(service.params, folder / "features", folder / "model")
        register.run(service.params, folder / "model", [], params.certificate.model, service.params.store.url)
        persistent, _ = volume(where, "mbd-state", service.state)
        cluster.apply(namespace(where), persistent, *render(values, params))
        yield service
